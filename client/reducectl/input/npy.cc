// The .npy format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
//
//   "\x93NUMPY", major and minor version, header length (2 bytes in version 1, 4 in versions 2 and 3, little-endian),
//   header, elements. The header is a Python dict: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
//   Version 3 is version 2 with a header in UTF-8.
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/reducectl/input/input.h"
#include "kernels/system/quoted.h"
#include "kernels/system/status_macros.h"

namespace reduced::client {
namespace {

constexpr absl::string_view kMagic("\x93NUMPY", 6);
constexpr std::size_t kVersionEnd = kMagic.size() + 2;
// The header of an array of numbers has some hundred bytes.
constexpr std::size_t kMaxHeader = 1 << 16;

// NumPy's type codes, without the byte order, and what NumPy reads as well: one letter, which has no byte order other
// than the machine's unless it is given, and names. NumPy has no bf16 and no floats of 8 bits: ml_dtypes saves bf16 as
// '<V2', two bytes, and f8_e5m2 as '<f1', which NumPy does not read. It saves f8_e4m3fn, f8_e8m0fnu and a dozen other
// dtypes, also of 4 bits, as '<V1'; nothing tells which of them an array has. NumPy saves all of these as '|V1' and
// '|V2'.
constexpr struct {
  absl::string_view code, dtype, letter, name;
} kTypeCodes[] = {{"b1", "bool", "?", "bool"},   {"i1", "i8", "b", "int8"},
                  {"i2", "i16", "h", "int16"},   {"i4", "i32", "i", "int32"},
                  {"i8", "i64", "q", "int64"},   {"u1", "u8", "B", "uint8"},
                  {"u2", "u16", "H", "uint16"},  {"u4", "u32", "I", "uint32"},
                  {"u8", "u64", "Q", "uint64"},  {"f1", "f8_e5m2", "float8_e5m2", "float8_e5m2"},
                  {"f2", "f16", "e", "float16"}, {"f4", "f32", "f", "float32"},
                  {"f8", "f64", "d", "float64"}};

absl::Status HeaderError(absl::string_view what, absl::string_view header) {
  return absl::InvalidArgumentError(absl::StrCat("bad .npy header: ", what, " in ", Quoted(header)));
}

// Removes the text before `end` from *rest and returns it. Skips an `end` within brackets or quotes.
absl::string_view TakeItem(absl::string_view* rest, char end) {
  int depth = 0;
  char quote = 0;
  std::size_t i = 0;
  for (; i < rest->size(); ++i) {
    const char c = (*rest)[i];
    if (quote == 0 && depth == 0 && c == end) break;
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '(' || c == '[' || c == '{') {
      ++depth;
    } else if (c == ')' || c == ']' || c == '}') {
      --depth;
    }
  }
  const absl::string_view item = rest->substr(0, i);
  rest->remove_prefix(i < rest->size() ? i + 1 : i);
  return absl::StripAsciiWhitespace(item);
}

// Removes the brackets or quotes around *text. Returns false if there are none.
bool Unwrap(absl::string_view* text, char open, char close) {
  if (text->size() < 2 || text->front() != open || text->back() != close) return false;
  *text = absl::StripAsciiWhitespace(text->substr(1, text->size() - 2));
  return true;
}
// Also of Python 2's u'text'.
bool Unquote(absl::string_view* text) {
  absl::string_view quoted = absl::StripPrefix(*text, "u");
  if (!Unwrap(&quoted, '\'', '\'') && !Unwrap(&quoted, '"', '"')) return false;
  *text = quoted;
  return true;
}

// `given`: empty, or one that IsVoidDType.
absl::StatusOr<std::string> DTypeOf(absl::string_view descr, absl::string_view given, bool* big_endian) {
  absl::string_view name = descr;
  if (Unquote(&name) && !name.empty()) {
    if (absl::StrContains(name, 'O')) {
      return absl::InvalidArgumentError("dtype: got Python objects (object); allowed: numbers and bool");
    }
    if (name == "<V2" && (given.empty() || given == "bf16")) return "bf16";
    const absl::string_view bytes = given == "bf16" ? "|V2" : given.empty() ? "" : "V1";
    if (!bytes.empty() && (name == bytes || name.substr(1) == bytes)) return std::string(given);
    *big_endian = absl::ConsumePrefix(&name, ">");
    if (!*big_endian && !name.empty() && absl::StrContains("<|=", name[0])) name.remove_prefix(1);
    for (const auto& row : kTypeCodes) {
      if (name != row.code && name != row.letter && name != row.name) continue;
      if (given.empty() || given == row.dtype) return std::string(row.dtype);
      return absl::InvalidArgumentError(absl::StrCat("dtype: got ", given,
                                                     " for a .npy file, which has its own dtype, ", row.dtype,
                                                     "; to read it as raw elements, add --format raw"));
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "dtype: got ", descr.substr(0, 60), "; allowed: ",
      absl::StrJoin(kTypeCodes, ", ", [](std::string* out, const auto& row) { absl::StrAppend(out, row.code); }),
      ", <V2 of bf16, |V2 with --dtype bf16, and V1, which several dtypes of 8 and 4 bits are saved as, with --dtype "
      "f8_e4m3fn, f8_e5m2 or f8_e8m0fnu"));
}

// Of a length: "3", "3L" as Python 2 writes it, "np.int64(3)" and "numpy.int64(3)" as NumPy 2 prints it.
absl::string_view DigitsOf(absl::string_view extent) {
  extent = absl::StripAsciiWhitespace(extent);
  if (absl::ConsumePrefix(&extent, "np.") || absl::ConsumePrefix(&extent, "numpy.")) {
    const std::size_t open = extent.find('(');
    if (open == absl::string_view::npos || !absl::StrContains(extent.substr(0, open), "int")) return "";
    extent.remove_prefix(open);
    if (!Unwrap(&extent, '(', ')')) return "";
  }
  absl::ConsumeSuffix(&extent, "L");
  return extent;
}

absl::StatusOr<std::vector<std::int64_t>> ShapeOf(absl::string_view tuple, absl::string_view header) {
  std::vector<std::int64_t> shape;
  if (!Unwrap(&tuple, '(', ')')) return HeaderError("'shape' is not a tuple", header);
  absl::ConsumeSuffix(&tuple, ",");
  if (tuple.empty()) return shape;
  for (const absl::string_view extent : absl::StrSplit(tuple, ',')) {
    shape.push_back(0);
    if (!absl::SimpleAtoi(DigitsOf(extent), &shape.back()) || shape.back() < 0) {
      return HeaderError("'shape' has an item that isn't a length", header);
    }
  }
  return shape;
}

// Sets the dtype and the shape.
absl::Status ParseHeader(absl::string_view header, absl::string_view dtype_given, Layout* layout) {
  absl::string_view dict = absl::StripAsciiWhitespace(header);
  if (!Unwrap(&dict, '{', '}')) return HeaderError("no dictionary", header);
  absl::string_view descr, fortran_order, shape;
  while (!dict.empty()) {
    absl::string_view item = TakeItem(&dict, ',');
    absl::string_view key = TakeItem(&item, ':');
    const absl::string_view value = absl::StripAsciiWhitespace(item);
    if (!Unquote(&key)) return HeaderError("a key isn't a string", header);
    if (key == "descr") descr = value;
    if (key == "fortran_order") fortran_order = value;
    if (key == "shape") shape = value;
  }
  if (descr.empty() || fortran_order.empty() || shape.empty()) {
    return HeaderError("'descr', 'fortran_order' or 'shape' is missing", header);
  }
  ASSIGN_OR_RETURN(std::string dtype, DTypeOf(descr, dtype_given, &layout->big_endian));
  layout->fortran = fortran_order == "True";
  if (!layout->fortran && fortran_order != "False")
    return HeaderError("'fortran_order' is neither True nor False", header);
  ASSIGN_OR_RETURN(std::vector<std::int64_t> extents, ShapeOf(shape, header));
  layout->dtype = std::move(dtype);
  layout->shape = std::move(extents);
  return absl::OkStatus();
}

absl::Status Truncated(absl::string_view part, std::int64_t expected, std::int64_t got) {
  return absl::InvalidArgumentError(
      absl::StrCat("is truncated: got ", got, " bytes of ", part, "; allowed: ", expected));
}

}  // namespace

std::string NpyHeader(const std::string& dtype, const std::vector<std::int64_t>& shape) {
  // bf16 as ml_dtypes saves it, floats of 8 bits as NumPy does.
  std::string code = DTypeBytes(dtype).value_or(0) == 1 ? "V1" : "V2";
  for (const auto& row : kTypeCodes) {
    if (row.dtype == dtype && !IsVoidDType(dtype)) code = std::string(row.code);
  }
  const bool text = dtype[0] == 'U';
  if (text) code = dtype;
  const char order = code.back() == '1' && !text ? '|' : '<';
  std::string header = absl::StrCat("{'descr': '", std::string(1, order), code, "', 'fortran_order': False, 'shape': (",
                                    absl::StrJoin(shape, ", "), shape.size() == 1 ? "," : "", "), }");
  constexpr std::size_t kAlignment = 64;  // of the elements, as NumPy has it
  const std::size_t unpadded = kVersionEnd + 2 + header.size() + 1;
  header.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ').append("\n");
  std::string file(kMagic);
  file.push_back(1);
  file.push_back(0);
  file.push_back(static_cast<char>(header.size() & 0xff));
  file.push_back(static_cast<char>(header.size() >> 8));
  return file + header;
}

bool IsVoidDType(absl::string_view dtype) { return dtype == "bf16" || absl::StartsWith(dtype, "f8_"); }

bool IsNpy(absl::string_view head) { return absl::StartsWith(head, kMagic); }

absl::StatusOr<Layout> ParseNpyHeader(absl::string_view bytes, absl::string_view dtype) {
  if (!IsNpy(bytes)) {
    return absl::InvalidArgumentError(absl::StrCat("isn't a .npy file: it starts with ",
                                                   Quoted(bytes.substr(0, kMagic.size())), ", not ", Quoted(kMagic)));
  }
  const auto size = static_cast<std::int64_t>(bytes.size());
  if (bytes.size() < kVersionEnd) return Truncated("preamble", kVersionEnd, size);
  const int major = static_cast<unsigned char>(bytes[kVersionEnd - 2]);
  const int minor = static_cast<unsigned char>(bytes[kVersionEnd - 1]);
  if (major < 1 || major > 3 || minor != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("format version: got ", major, ".", minor, "; allowed: 1.0, 2.0 and 3.0"));
  }
  const std::size_t header_start = kVersionEnd + (major == 1 ? 2 : 4);
  if (bytes.size() < header_start) return Truncated("preamble", static_cast<std::int64_t>(header_start), size);
  std::size_t header_size = 0;
  for (std::size_t i = header_start; i > kVersionEnd; --i) {
    header_size = header_size << 8 | static_cast<unsigned char>(bytes[i - 1]);
  }
  if (header_size > kMaxHeader) {
    return absl::InvalidArgumentError(absl::StrCat("header: got ", header_size, " bytes; allowed: ", kMaxHeader));
  }
  if (bytes.size() - header_start < header_size) {
    return Truncated("header", static_cast<std::int64_t>(header_size), size - static_cast<std::int64_t>(header_start));
  }

  Layout layout;
  layout.offset = header_start + header_size;
  RETURN_IF_ERROR(ParseHeader(bytes.substr(header_start, header_size), dtype, &layout));
  RETURN_IF_ERROR(ArrayBytes(layout.dtype, layout.shape).status());
  return layout;
}

absl::StatusOr<Layout> ParseNpy(absl::string_view bytes) {
  absl::StatusOr<Layout> layout = ParseNpyHeader(bytes);
  if (!layout.ok()) return layout;
  const auto size = static_cast<std::int64_t>(bytes.size());
  const std::int64_t end = static_cast<std::int64_t>(layout->offset) + *ArrayBytes(layout->dtype, layout->shape);
  const absl::string_view next = end < size ? bytes.substr(static_cast<std::size_t>(end)) : "";
  RETURN_IF_ERROR(CheckNpySize(*layout, size, next));
  return layout;
}

absl::Status CheckNpySize(const Layout& layout, std::int64_t size, absl::string_view next) {
  const std::int64_t expected = *ArrayBytes(layout.dtype, layout.shape);
  const std::int64_t got = size - static_cast<std::int64_t>(layout.offset);
  if (got < expected) return Truncated("data", expected, got);
  if (got == expected) return absl::OkStatus();
  return GoesOn(next, absl::StrCat(got, " bytes; allowed: ", expected));
}

absl::Status GoesOn(absl::string_view next, absl::string_view got) {
  if (!IsNpy(next)) return absl::InvalidArgumentError(absl::StrCat("data: got ", got));
  return absl::InvalidArgumentError(
      "data: got another array after the first one, as a second numpy.save appends it; allowed: one array, or several "
      "in a .npz file");
}

}  // namespace reduced::client
