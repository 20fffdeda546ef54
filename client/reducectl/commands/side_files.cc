#include "client/reducectl/commands/side_files.h"

#include <unistd.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/reducectl/command_line/client.h"

namespace reduced::client {
namespace {

// Splits FILE:NAME, unless there is a file of the whole name.
std::pair<std::string, std::string> FileAndPart(const std::string& given) {
  const std::size_t colon = given.rfind(':');
  if (colon == std::string::npos || access(given.c_str(), F_OK) == 0) return {given, ""};
  return {given.substr(0, colon), given.substr(colon + 1)};
}

// Reads what `given` names into *into, unless it is an id, and has *side refer to it.
absl::Status Read(const std::string& given, InputOptions options, Input* into, SideArray* side) {
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
  absl::StatusOr<Input> input = ReadInput(file, options);
  if (!input.ok()) return input.status();
  *into = *std::move(input);
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

ExitCode ReadSideFiles(const SideArguments& arguments, const InputOptions& input, SideFiles* files,
                       PartitionOptions* options) {
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
  };
  for (const Side& side : {Side{"--segments", arguments.segments, &files->bounds, &segments.offsets, plain},
                           {"--lengths", arguments.lengths, &files->bounds, &segments.offsets, plain},
                           {"--keys", arguments.keys, &files->keys, &keys.keys, plain},
                           {"--where", arguments.where, &files->mask, &where.mask, plain},
                           {"--y", arguments.y, &files->y, &y, alike},
                           {"--weights", arguments.weights, &files->weights, &weights, alike}}) {
    if (side.given.empty()) continue;
    if (const absl::Status status = Read(side.given, side.options, side.input, side.array); !status.ok()) {
      return ReportError(absl::StrCat(side.option, " ", side.given), status.message(), kData);
    }
    for (const std::string& note : side.input->notes) {
      files->notes.push_back(absl::StrCat(side.option, " ", side.given, ": ", note));
    }
  }
  if (!arguments.segments.empty() || !arguments.lengths.empty()) options->segments = segments;
  if (!arguments.keys.empty()) options->keys = keys;
  where.bits = files->mask.layout.dtype == "u8";
  if (!arguments.where.empty()) options->where = where;
  if (!arguments.y.empty()) options->y = y;
  if (!arguments.weights.empty()) options->weights = weights;
  return kOk;
}

}  // namespace reduced::client
