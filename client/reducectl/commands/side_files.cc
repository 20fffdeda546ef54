#include "client/reducectl/commands/side_files.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/reducectl/command_line/client.h"
#include "kernels/system/status_macros.h"

namespace reduced::client {
namespace {

// Splits FILE:NAME, unless there is a file of the whole name.
std::pair<std::string, std::string> FileAndPart(const std::string& given) {
  const std::size_t colon = given.rfind(':');
  if (colon == std::string::npos || access(given.c_str(), F_OK) == 0) return {given, ""};
  return {given.substr(0, colon), given.substr(colon + 1)};
}

bool NamesFile(const std::string& given) {
  return given[0] == '@' || access(FileAndPart(given).first.c_str(), F_OK) == 0;
}

// Whether a text has these columns; of what can't be read twice nobody knows.
bool HasColumns(const std::string& source, InputOptions options, const std::vector<std::string>& columns) {
  std::error_code none;
  if (source == "-" || !std::filesystem::is_regular_file(source, none)) return false;
  options.fields = columns;
  options.columns.clear();
  options.only_fields = true;
  options.on_read = nullptr;
  const absl::StatusOr<std::unique_ptr<InputReader>> reader = InputReader::Open(source, options);
  // Which keys JSON has is known at its end.
  return reader.ok() && (*reader)->fields() != nullptr && (*reader)->Next().ok();
}

// Reads what `given` names into *into, unless it is an id, and has *side refer to it. `fields`: not null: of a text the
// columns come there instead.
absl::Status Read(const std::string& given, InputOptions options, Input* into, SideArray* side,
                  std::vector<FieldColumn>* fields) {
  if (given[0] == '@') {
    *side = RemoteArray::Resident(given.substr(1));
    return absl::OkStatus();
  }
  const auto [file, part] = FileAndPart(given);
  options.part = part;
  if (absl::EndsWithIgnoreCase(file, ".npy") || absl::EndsWithIgnoreCase(file, ".npz")) {  // which say what they have
    options = {.part = part, .timeout = options.timeout};
  }
  options.positions = true;
  if (fields != nullptr) {
    options.only_fields = options.one_piece = options.in_memory = true;
    if (!part.empty()) options.fields = absl::StrSplit(part, ',');
    ASSIGN_OR_RETURN(const std::unique_ptr<InputReader> reader, InputReader::Open(file, options));
    ASSIGN_OR_RETURN(std::optional<Piece> piece, reader->Next());
    into->notes = reader->notes();
    if (reader->fields() != nullptr) {
      *fields = std::move(*reader->fields());
      return absl::OkStatus();
    }
    if (!piece.has_value()) return absl::InvalidArgumentError("has no array");
    if (!piece->input.status.ok()) return piece->input.status;
    piece->input.notes = std::move(into->notes);
    *into = std::move(piece->input);
    *side = into->View();
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(*into, ReadInput(file, options));
  *side = into->View();
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> SideArguments::files() const {
  std::vector<std::string> files;
  for (const std::string& given : {segments, lengths, keys, where, y, weights})
    files.push_back(FileAndPart(given).first);
  return files;
}

absl::Status SideFiles::CheckMask(const SideArguments& arguments, const std::vector<std::int64_t>& shape) const {
  if (mask.layout.dtype != "u8") return absl::OkStatus();
  std::int64_t elements = 1, bytes = 1;
  for (const std::int64_t size : shape) elements *= size;
  for (const std::int64_t size : mask.layout.shape) bytes *= size;
  if (bytes == (elements + 7) / 8) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--where ", arguments.where, ": got u8 (", absl::StrJoin(mask.layout.shape, ", "), "); allowed: bool (",
      absl::StrJoin(shape, ", "), "), or u8 (", (elements + 7) / 8, "), whose bits are the elements"));
}

ExitCode ReadSideFiles(const SideArguments& arguments, const InputOptions& input,
                       const std::vector<std::string>& sources, SideFiles* files, PartitionOptions* options) {
  Segments segments{{}, !arguments.lengths.empty()};
  Keys keys = options->keys.value_or(Keys());
  Mask where;
  SideArray y, weights;
  const InputOptions plain{.timeout = input.timeout};
  InputOptions alike = input;
  alike.columns.clear();
  alike.arrays.clear();
  alike.on_read = nullptr;
  alike.hold = Hold::kOwn;
  struct Side {
    const char* option;
    const std::string& given;
    Input* input;
    SideArray* array;
    const InputOptions& options;
    std::vector<FieldColumn>* fields = nullptr;  // of a text; null: it is read as an array
    std::vector<std::string> columns{};          // of the input, that `given` may mean
  };
  const absl::StatusOr<std::optional<ColumnComparison>> comparison = ParseComparison(arguments.where);
  const bool compares = comparison.ok() && comparison->has_value();
  std::vector<std::string> mask_columns = {compares ? (*comparison)->column : arguments.where};
  for (const Side& side :
       {Side{"--segments", arguments.segments, &files->bounds, &segments.offsets, plain},
        {"--lengths", arguments.lengths, &files->bounds, &segments.offsets, plain},
        {"--keys", arguments.keys, &files->keys, &keys.keys, plain, &files->key_fields,
         absl::StrSplit(arguments.keys, ',')},
        {"--where", arguments.where, &files->mask, &where.mask, plain, &files->mask_fields, mask_columns},
        {"--y", arguments.y, &files->y, &y, alike},
        {"--weights", arguments.weights, &files->weights, &weights, alike}}) {
    if (side.given.empty()) continue;
    if (side.fields != nullptr && !sources.empty()) {
      if (!NamesFile(side.given)) {
        if (side.fields == &files->mask_fields && !comparison.ok()) {
          return ReportError("--where", comparison.status().message(), kUsage);
        }
        if (std::find(side.columns.begin(), side.columns.end(), "") != side.columns.end()) {
          return ReportError(side.option,
                             absl::StrCat("got \"", side.given, "\"; allowed: names with commas between them"), kUsage);
        }
        continue;
      }
      for (const std::string& source : sources) {
        if (side.given[0] == '@' || !HasColumns(source, input, side.columns)) continue;
        return ReportError(
            side.option,
            absl::StrCat("got ", side.given, ", which is both a file and a column of ", source, "; allowed: ./",
                         side.given, " for the file, ", source, ":", side.given, " for the column"),
            kUsage);
      }
    }
    if (const absl::Status status = Read(side.given, side.options, side.input, side.array, side.fields); !status.ok()) {
      return ReportError(absl::StrCat(side.option, " ", side.given), status.message(), kData);
    }
    for (const std::string& note : side.input->notes) {
      files->notes.push_back(absl::StrCat(side.option, " ", side.given, ": ", note));
    }
  }
  if (!arguments.segments.empty() || !arguments.lengths.empty()) options->segments = segments;
  const bool key_file = !arguments.keys.empty() && (sources.empty() || NamesFile(arguments.keys));
  const bool mask_file = !arguments.where.empty() && (sources.empty() || NamesFile(arguments.where));
  if (!arguments.keys.empty() && !key_file) files->key_columns = absl::StrSplit(arguments.keys, ',');
  if (!arguments.where.empty() && !mask_file) {
    files->mask_column = mask_columns.front();
    if (compares) files->comparison = *comparison;
  }
  if (key_file && files->key_fields.empty()) options->keys = keys;
  if (files->mask_fields.size() > 1) {
    return ReportError(absl::StrCat("--where ", arguments.where), "got several columns; allowed: one", kData);
  }
  where.bits = files->mask.layout.dtype == "u8";
  if (mask_file && files->mask_fields.empty()) options->where = where;
  if (!arguments.y.empty()) options->y = y;
  if (!arguments.weights.empty()) options->weights = weights;
  return kOk;
}

}  // namespace reduced::client
