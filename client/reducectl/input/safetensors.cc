#include "client/reducectl/input/safetensors.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "kernels/system/quoted.h"
#include "kernels/system/status_macros.h"

namespace reduced::client {
namespace {

constexpr std::size_t kSizeBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // as the format's own library has it
constexpr std::size_t kMaxTensorDimensions = 64;
constexpr char kIndexName[] = ".safetensors.index.json";
constexpr char kMetadata[] = "__metadata__";

constexpr TensorDType kTensorDTypes[] = {
    {"BOOL", "bool", 8},
    {"U8", "u8", 8},
    {"I8", "i8", 8},
    {"U16", "u16", 16},
    {"I16", "i16", 16},
    {"F16", "f16", 16},
    {"BF16", "bf16", 16},
    {"U32", "u32", 32},
    {"I32", "i32", 32},
    {"F32", "f32", 32},
    {"U64", "u64", 64},
    {"I64", "i64", 64},
    {"F64", "f64", 64},
    {"F8_E4M3", "f8_e4m3fn", 8},
    {"F8_E5M2", "f8_e5m2", 8},
    {"F8_E8M0", "f8_e8m0fnu", 8},
    {"F4", "", 4},
    {"F8_E4M3FNUZ", "", 8},
    {"F8_E5M2FNUZ", "", 8},
    {"C64", "", 64},
    {"F6_E2M3", "", 6},
    {"F6_E3M2", "", 6},
};

template <class... What>
absl::Status BadTensors(const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat(what...));
}

// What both kinds of JSON have in common: an object of names. Handlers of what is not allowed return false. The depth
// is bounded, so that nesting takes neither memory nor time.
class TensorJson : public nlohmann::json_sax<nlohmann::json> {
 public:
  // `what`: of errors.
  explicit TensorJson(const char* what) : what_(what) {}

  absl::Status Read(absl::string_view text) {
    const bool right = nlohmann::json::sax_parse(text.begin(), text.end(), this);
    return right || !error_.ok() ? error_ : BadTensors("bad JSON");
  }

  bool null() override { return Refuse("null"); }
  bool boolean(bool value) override { return Refuse(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return Refuse(absl::StrCat(value)); }
  bool number_unsigned(number_unsigned_t value) override { return Refuse(absl::StrCat(value)); }
  bool number_float(number_float_t /*value*/, const string_t& text) override { return Refuse(text.substr(0, 40)); }
  bool string(string_t& value) override { return Refuse(Quoted(value)); }
  bool binary(binary_t& /*value*/) override { return Refuse("bytes"); }
  bool start_object(std::size_t /*elements*/) override { return Refuse("an object"); }
  bool start_array(std::size_t /*elements*/) override { return Refuse("a list"); }
  bool end_array() override { return true; }
  bool parse_error(std::size_t at, const std::string& /*token*/, const nlohmann::detail::exception& /*why*/) override {
    return Fail("got no JSON in UTF-8 from byte ", at, " on; allowed: an object");
  }

 protected:
  template <class... What>
  bool Fail(const What&... what) {
    error_ = BadTensors(what_, ": ", what...);
    return false;
  }
  bool Refuse(const std::string& got) { return Fail(where(), ": got ", got, "; allowed: ", allowed()); }
  virtual std::string where() const = 0;
  virtual const char* allowed() const = 0;

 private:
  const char* const what_;
  absl::Status error_;
};

class HeaderReader final : public TensorJson {
 public:
  HeaderReader() : TensorJson("header") {}

  std::vector<Tensor> tensors;

  bool start_object(std::size_t elements) override {
    if (depth_ > 1) return TensorJson::start_object(elements);
    ++depth_;
    if (depth_ == 2) {
      fields_.clear();
      if (!metadata_) tensors.push_back({.name = name_});
    }
    return true;
  }
  bool key(string_t& key) override {
    if (depth_ == 1) {
      if (!names_.insert(key).second) return Fail("got the name ", Quoted(key), " twice; allowed: once");
      name_ = key;
      metadata_ = key == kMetadata;
      return true;
    }
    field_ = key;
    if (metadata_) return true;
    if (key != "dtype" && key != "shape" && key != "data_offsets") return Refuse(absl::StrCat("a field ", Quoted(key)));
    if (!fields_.insert(key).second) return Fail(where(), ": got it twice; allowed: once");
    return true;
  }
  bool string(string_t& value) override {
    if (depth_ != 2 || (!metadata_ && field_ != "dtype")) return TensorJson::string(value);
    if (!metadata_) tensors.back().dtype = value;
    return true;
  }
  bool start_array(std::size_t elements) override {
    if (depth_ != 2 || metadata_ || field_ == "dtype") return TensorJson::start_array(elements);
    ++depth_;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (depth_ != 3) return TensorJson::number_unsigned(value);
    std::vector<std::int64_t>& numbers = field_ == "shape" ? tensors.back().shape : offsets_;
    const std::size_t most = field_ == "shape" ? kMaxTensorDimensions : 2;
    if (numbers.size() == most) return Fail(where(), ": got more than ", most, " numbers; allowed: ", allowed());
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max())) {
      return Refuse(absl::StrCat(value));
    }
    numbers.push_back(static_cast<std::int64_t>(value));
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool end_object() override {
    if (--depth_ == 0 || metadata_) return true;
    for (const char* const field : {"dtype", "shape", "data_offsets"}) {
      if (fields_.count(field) == 0) return Fail("tensor ", Quoted(name_), ": got no ", field, "; allowed: one");
    }
    field_ = "data_offsets";
    if (offsets_.size() != 2) return Refuse(absl::StrCat(offsets_.size(), " numbers"));
    tensors.back().begin = static_cast<std::size_t>(offsets_[0]);
    tensors.back().end = static_cast<std::size_t>(offsets_[1]);
    offsets_.clear();
    return true;
  }

 private:
  std::string where() const override {
    if (depth_ == 0) return "JSON";
    const std::string tensor = metadata_ ? name_ : absl::StrCat("tensor ", Quoted(name_));
    return depth_ == 1 ? tensor : absl::StrCat(tensor, ".", field_);
  }
  const char* allowed() const override {
    if (depth_ == 0) return "an object";
    if (metadata_) return depth_ == 1 ? "an object of texts" : "texts";
    if (depth_ == 1 || (field_ != "dtype" && field_ != "shape" && field_ != "data_offsets")) {
      return "an object with dtype, shape and data_offsets";
    }
    return field_ == "dtype"   ? "a text"
           : field_ == "shape" ? "a list of up to 64 lengths"
                               : "a list of two numbers of bytes";
  }

  int depth_ = 0;  // of objects and lists that are open
  std::set<std::string> names_, fields_;
  std::string name_, field_;
  bool metadata_ = false;
  std::vector<std::int64_t> offsets_;
};

class IndexReader final : public TensorJson {
 public:
  IndexReader() : TensorJson("index") {}

  std::vector<std::pair<std::string, std::string>> files;

  // What else the index has is passed over.
  bool null() override { return passes() || TensorJson::null(); }
  bool boolean(bool value) override { return passes() || TensorJson::boolean(value); }
  bool number_integer(number_integer_t value) override { return passes() || TensorJson::number_integer(value); }
  bool number_unsigned(number_unsigned_t value) override { return passes() || TensorJson::number_unsigned(value); }
  bool number_float(number_float_t value, const string_t& text) override {
    return passes() || TensorJson::number_float(value, text);
  }
  bool start_array(std::size_t elements) override {
    if (!passes()) return TensorJson::start_array(elements);
    return Open();
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool start_object(std::size_t elements) override {
    if (depth_ > 1 && !passes()) return TensorJson::start_object(elements);
    return Open();
  }
  bool key(string_t& key) override {
    if (depth_ == 1) {
      is_map_ = key == "weight_map";
      if (is_map_ && std::exchange(has_map_, true)) return Fail("got weight_map twice; allowed: once");
    } else if (is_map_) {
      if (!names_.insert(key).second) return Fail("weight_map: got ", Quoted(key), " twice; allowed: once");
      name_ = key;
    }
    return true;
  }
  bool string(string_t& value) override {
    if (passes()) return true;
    if (depth_ != 2) return TensorJson::string(value);
    if (value.empty() || absl::StrContains(value, '/') || absl::StrContains(value, '\0') || value == "..") {
      return Refuse(Quoted(value));
    }
    files.emplace_back(name_, value);
    return true;
  }
  bool end_object() override {
    return --depth_ > 0 || has_map_ || Fail("got no weight_map; allowed: one, of names of tensors and files");
  }

 private:
  bool passes() const { return depth_ > 0 && !is_map_; }
  bool Open() {
    constexpr int kMost = 64;
    return depth_++ < kMost || Fail("got more than ", kMost, " lists and objects in each other; allowed: fewer");
  }
  std::string where() const override {
    return depth_ == 0 ? "JSON" : depth_ == 1 ? "weight_map" : absl::StrCat("weight_map.", Quoted(name_));
  }
  const char* allowed() const override {
    return depth_ < 2 ? "an object" : "the name of a file in the folder of the index";
  }

  int depth_ = 0;
  bool is_map_ = false, has_map_ = false;
  std::set<std::string> names_;
  std::string name_;
};

// The bytes that so many elements take. Absent: more than 64 bits count, or no whole number of them.
std::optional<std::uint64_t> BytesOfElements(const std::vector<std::int64_t>& shape, int bits) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::uint64_t all = static_cast<std::uint64_t>(bits);
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(all, static_cast<std::uint64_t>(size), &all)) return std::nullopt;
  }
  return all % 8 == 0 ? std::optional(all / 8) : std::nullopt;
}

// Whether the tensors, in the order of their elements, are all that follows the header.
absl::Status CheckTensors(const std::vector<Tensor>& tensors, std::size_t data_bytes) {
  std::size_t next = 0;
  for (const Tensor& tensor : tensors) {
    const auto bad = [&tensor](const auto&... what) {
      return BadTensors("header: tensor ", Quoted(tensor.name), ".data_offsets: got ", what...);
    };
    if (tensor.begin != next) return bad(tensor.begin, " after ", next, "; allowed: neither holes nor overlaps");
    if (tensor.end < tensor.begin || tensor.end > data_bytes) {
      return bad(tensor.end, "; allowed: ", tensor.begin, " to ", data_bytes,
                 ", the bytes of the file after the header");
    }
    const TensorDType* const dtype = FindTensorDType(tensor.dtype);
    if (dtype != nullptr) {
      const std::optional<std::uint64_t> bytes = BytesOfElements(tensor.shape, dtype->bits);
      if (!bytes.has_value() || *bytes != tensor.end - tensor.begin) {
        return bad(tensor.end - tensor.begin,
                   " bytes; allowed: ", bytes.has_value() ? absl::StrCat(*bytes) : "a whole number below 2^61", ", of ",
                   dtype->name, " (", absl::StrJoin(tensor.shape, ", ").substr(0, 200), ")");
      }
    }
    next = tensor.end;
  }
  if (next == data_bytes) return absl::OkStatus();
  return BadTensors("data: got ", data_bytes, " bytes; allowed: ", next, ", which the tensors have");
}

std::uint64_t HeaderBytes(absl::string_view file) {
  std::uint64_t bytes = 0;
  for (std::size_t i = kSizeBytes; i-- > 0;) bytes = bytes << 8 | static_cast<unsigned char>(file[i]);
  return bytes;
}

}  // namespace

const TensorDType* FindTensorDType(absl::string_view name) {
  const auto* const found = std::find_if(std::begin(kTensorDTypes), std::end(kTensorDTypes),
                                         [name](const TensorDType& each) { return each.name == name; });
  return found == std::end(kTensorDTypes) ? nullptr : found;
}

absl::StatusOr<std::vector<Tensor>> ParseSafetensors(absl::string_view file) {
  if (file.size() < kSizeBytes) {
    return BadTensors("is no .safetensors file: got ", file.size(), " bytes; allowed: ", kSizeBytes, " and more");
  }
  const std::uint64_t header = HeaderBytes(file);
  if (header > kMaxHeaderBytes || header > file.size() - kSizeBytes) {
    return BadTensors("header: got ", header, " bytes; allowed: up to ",
                      std::min<std::uint64_t>(kMaxHeaderBytes, file.size() - kSizeBytes));
  }
  const absl::string_view text = file.substr(kSizeBytes, header);
  if (!absl::StartsWith(text, "{")) return BadTensors("header: got no JSON; allowed: an object");
  HeaderReader reader;
  RETURN_IF_ERROR(reader.Read(text));
  std::vector<Tensor>& tensors = reader.tensors;
  std::stable_sort(tensors.begin(), tensors.end(), [](const Tensor& a, const Tensor& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  const std::size_t data = kSizeBytes + header;
  RETURN_IF_ERROR(CheckTensors(tensors, file.size() - data));
  for (Tensor& tensor : tensors) {
    tensor.begin += data;
    tensor.end += data;
  }
  return std::move(tensors);
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ParseSafetensorsIndex(absl::string_view text) {
  if (text.size() > kMaxHeaderBytes)
    return BadTensors("index: got ", text.size(), " bytes; allowed: up to ", kMaxHeaderBytes);
  IndexReader reader;
  RETURN_IF_ERROR(reader.Read(text));
  return std::move(reader.files);
}

bool IsSafetensorsIndex(absl::string_view name) { return absl::EndsWithIgnoreCase(name, kIndexName); }

bool IsSafetensors(absl::string_view name, absl::string_view head) {
  if (absl::EndsWithIgnoreCase(name, ".safetensors") || IsSafetensorsIndex(name)) return true;
  return head.size() > kSizeBytes + 1 && HeaderBytes(head) <= kMaxHeaderBytes && head[kSizeBytes] == '{' &&
         (head[kSizeBytes + 1] == '"' || head[kSizeBytes + 1] == '}');
}

}  // namespace reduced::client
