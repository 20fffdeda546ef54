// Arrays beside the one that is reduced, from what --segments, --lengths, --keys, --where, --y and --weights name.
#ifndef REDUCED_CLIENT_REDUCECTL_COMMANDS_SIDE_FILES_H_
#define REDUCED_CLIENT_REDUCECTL_COMMANDS_SIDE_FILES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/reducectl/command_line/exit_code.h"
#include "client/reducectl/input/input.h"
#include "reduced/client.h"

namespace reduced::client {

// What names a side array: a file of one array or column; FILE:NAME, an array of a .npz file or a column of a text;
// or @ID, a resident array. A file of that whole name comes first.
struct SideArguments {
  std::string segments{}, lengths{}, keys{}, where{}, y{}, weights{};  // empty: there is none

  // Whether any of them makes the results arrays; y and weights do not.
  bool given() const { return !segments.empty() || !lengths.empty() || !keys.empty() || !where.empty(); }
  std::vector<std::string> files() const;  // without the names; of an id, what is no file
};

// Their elements, to which the options refer.
struct SideFiles {
  Input bounds{}, keys{}, mask{}, y{}, weights{};
  std::vector<std::string> notes{};  // of all of them, after the option: "--keys a.csv: ..."

  // INVALID_ARGUMENT: a mask of u8 has not a bit for each of so many elements. Which elements these are is left to the
  // server.
  absl::Status CheckMask(const SideArguments& arguments, const std::vector<std::int64_t>& shape) const;
};

// Reads them, and has the options refer to them, which are else as in the command line. An error is reported, and its
// code returned. y and weights are read as an input of these options is.
ExitCode ReadSideFiles(const SideArguments& arguments, const InputOptions& input, SideFiles* files,
                       PartitionOptions* options);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_COMMANDS_SIDE_FILES_H_
