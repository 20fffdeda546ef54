#include "client/reducectl/commands/input_flags.h"

#include <cstdint>
#include <iterator>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/reducectl/command_line/flags.h"
#include "reduced/array.h"

namespace reduced::client {
namespace {

std::string ParseShape(const std::string& text, std::optional<std::vector<std::int64_t>>* shape) {
  shape->emplace();
  for (const absl::string_view extent : absl::StrSplit(text, ',')) {
    std::int64_t value = 0;
    if (!absl::SimpleAtoi(extent, &value) || value < 0) {
      return absl::StrCat("got \"", text, "\"; allowed: shapes like 1000 or 20,50");
    }
    (*shape)->push_back(value);
  }
  return "";
}

}  // namespace

std::vector<CLI::Option*> AddInput(CommandLine& line, CLI::App* command, std::vector<std::string>* sources,
                                   InputOptions* input) {
  CLI::Option* file = command->add_option("FILE", *sources, "files to read; - is standard input")->type_name("");
  CLI::Option* format =
      AddChoice(line, command, "--format", &input->format, "the format of the files; default: by content and name",
                {std::begin(kFormats), std::end(kFormats)});
  CLI::Option* dtype =
      AddChoice(line, command, "--dtype", &input->dtype, "read raw little-endian elements of this type", DTypeNames());
  CLI::Option* offset = command->add_option("--offset", input->offset, "raw: bytes to skip at the start")
                            ->check(CLI::NonNegativeNumber)
                            ->type_name("BYTES")
                            ->needs(dtype)
                            ->capture_default_str();
  CLI::Option* shape = AddParsed(command, "--shape", ParseShape, &input->shape,
                                 "raw: elements along each dimension; default: one dimension, up to the end")
                           ->type_name("N,...")
                           ->needs(dtype);
  CLI::Option* column = command->add_option("--column", input->column, "CSV: a name in the header, or an index from 0")
                            ->type_name("NAME|INDEX")
                            ->excludes(dtype);
  return {file, format, dtype, offset, shape, column};
}

void CheckInput(const InputOptions& input) {
  const std::string& format = input.format;
  if (format == "raw" && input.dtype.empty()) throw CLI::ValidationError("--format raw", "requires --dtype");
  if (!format.empty() && format != "raw" && !input.dtype.empty()) {
    throw CLI::ValidationError("--dtype", absl::StrCat("got it with --format ", format, "; allowed: --format raw"));
  }
}

}  // namespace reduced::client
