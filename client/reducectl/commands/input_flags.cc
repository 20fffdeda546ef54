#include "client/reducectl/commands/input_flags.h"

#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/reducectl/command_line/flags.h"
#include "client/reducectl/output/render.h"
#include "reduced/array.h"

namespace reduced::client {
namespace {

std::string ParseShape(const std::string& text, std::optional<std::vector<std::int64_t>>* shape) {
  shape->emplace();
  for (const absl::string_view extent : absl::StrSplit(text, ',')) {
    const std::optional<std::int64_t> value = ParseSize(extent);
    if (!value.has_value()) return absl::StrCat("got \"", text, "\"; allowed: shapes like 1000 or 20,50");
    (*shape)->push_back(*value);
  }
  return "";
}

std::string ParseOffset(const std::string& text, std::int64_t* offset) {
  *offset = ParseSize(text).value_or(-1);
  if (*offset >= 0) return "";
  return absl::StrCat("got \"", text, "\"; allowed: numbers of bytes like 128 or 4Ki");
}

std::string ParseHeader(const std::string& text, Header* header) {
  for (const auto& [name, value] : {std::pair{"auto", Header::kAuto}, {"yes", Header::kYes}, {"no", Header::kNo}}) {
    if (text != name) continue;
    *header = value;
    return "";
  }
  return absl::StrCat("got \"", text, "\"; allowed: auto, yes, no");
}

std::string ParseDelimiter(const std::string& text, char* delimiter) {
  const std::string one = text == "tab" || text == "\\t" ? "\t" : text == "space" ? " " : text;
  if (one.size() != 1 || one == "\"" || one == "\n" || one == "\r" || absl::ascii_isalnum(one[0]) ||
      !absl::ascii_isascii(one[0])) {
    return absl::StrCat("got \"", text, "\"; allowed: one character like , ; |, tab or space");
  }
  *delimiter = one[0];
  return "";
}

std::string ParseComment(const std::string& text, std::string* comment) {
  *comment = text;
  return text.empty() ? "got nothing; allowed: what comments begin with, such as #" : "";
}

std::string ParseDecimal(const std::string& text, Comma* comma) {
  *comma = text == "," ? Comma::kDecimal : Comma::kThousands;
  return text == "," || text == "." ? "" : absl::StrCat("got \"", text, "\"; allowed: . and ,");
}

}  // namespace

std::vector<CLI::Option*> AddInput(CommandLine& line, CLI::App* command, std::vector<std::string>* sources,
                                   InputOptions* input) {
  CLI::Option* file =
      command
          ->add_option("FILE", *sources,
                       "files to read, also compressed as .gz, .zst, .xz or .bz2, or alone in a .zip; - is "
                       "standard input")
          ->type_name("");
  CLI::Option* format =
      AddChoice(line, command, "--format", &input->format, "the format of the files; default: by content and name",
                {std::begin(kFormats), std::end(kFormats)});
  CLI::Option* dtype =
      AddChoice(line, command, "--dtype", &input->dtype,
                "read raw little-endian elements of this type; of text: the type of the columns; bf16: also of |V2 in "
                "a .npy file; f8_e4m3fn, f8_e5m2, f8_e8m0fnu: also of V1",
                DTypeNames());
  CLI::Option* offset = AddParsed(command, "--offset", ParseOffset, &input->offset, "raw: bytes to skip at the start")
                            ->type_name("BYTES")
                            ->needs(dtype)
                            ->default_str("0");
  CLI::Option* shape = AddParsed(command, "--shape", ParseShape, &input->shape,
                                 "raw: elements along each dimension; default: one dimension, up to the end")
                           ->type_name("N,...")
                           ->needs(dtype);
  CLI::Option* column =
      command
          ->add_option("--column", input->columns,
                       "text: a name in the header, or an index from 0; may be repeated; all: all that have numbers")
          ->allow_extra_args(false)
          ->type_name("NAME|INDEX");
  line.choices["--header"] = {"auto", "yes", "no"};
  CLI::Option* header =
      AddParsed(
          command, "--header", ParseHeader, &input->header,
          "text: whether the first row is a header; auto: if --column names one of its fields, or all are text; it "
          "is data if all are numbers, and must be told if it can be either, as 2019,2020 can: auto, yes, no")
          ->type_name("NAME")
          ->default_str("auto");
  CLI::Option* delimiter =
      AddParsed(command, "--delimiter", ParseDelimiter, &input->delimiter,
                "text: what is between fields: a character, tab or space; default: found in the first lines")
          ->type_name("CHARACTER");
  CLI::Option* decimal =
      AddParsed(
          command, "--decimal", ParseDecimal, &input->comma,
          "text: the decimal point: . or ,; then the other of them, a space or ' separates thousands; default: ., "
          "with commas between thousands only where a comma is the delimiter")
          ->type_name("CHARACTER");
  CLI::Option* comment = AddParsed(command, "--comment", ParseComment, &input->comment,
                                   "text: skip lines that begin so; default: only those with # that stand before the "
                                   "first row and are not like it")
                             ->type_name("PREFIX");
  CLI::Option* missing =
      command
          ->add_option(
              "--missing", input->missing_words,
              "text: fields that are missing values, besides empty ones, NA, NaN, null and the like; a number, "
              "such as -9999, however it is written; may be repeated")
          ->delimiter(',')
          ->allow_extra_args(false)
          ->type_name("WORD,...");
  return {file, format, dtype, offset, shape, column, header, delimiter, decimal, comment, missing};
}

void AddArrayNames(CLI::App* command, std::vector<std::string>* arrays) {
  command->add_option("--array", *arrays, "the names of arrays in .npz and .safetensors files; default: all")
      ->allow_extra_args(false)
      ->type_name("NAME");
}

void CheckInput(const InputOptions& input) {
  const std::string& format = input.format;
  if (format == "raw" && input.dtype.empty()) throw CLI::ValidationError("--format raw", "requires --dtype");
  if ((format == "npy" || format == "npz") && !input.dtype.empty() && !IsVoidDType(input.dtype)) {
    throw CLI::ValidationError("--dtype",
                               absl::StrCat("got ", input.dtype, " with --format ", format,
                                            "; allowed: bf16 of |V2; f8_e4m3fn, f8_e5m2 and f8_e8m0fnu of V1"));
  }
}

}  // namespace reduced::client
