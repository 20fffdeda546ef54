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
#include "client/reducectl/commands/where.h"
#include "client/reducectl/input/fields.h"
#include "client/reducectl/input/input.h"
#include "reduced/client.h"

namespace reduced::client {

// What names a side array: a file of one array or column; FILE:NAME, an array of a .npz file or a column of a text;
// or @ID, a resident array. A file of that whole name comes first. Keys are also columns of one text, FILE:NAME,NAME;
// keys and masks also columns of the input, NAME,NAME, if there is no file of the name; and a mask a comparison of one.
struct SideArguments {
  std::string segments{}, lengths{}, keys{}, where{}, y{}, weights{};  // empty: there is none

  // Whether any of them makes the results arrays; y and weights do not.
  bool given() const { return !segments.empty() || !lengths.empty() || !keys.empty() || !where.empty(); }
  std::vector<std::string> files() const;  // without the names; of an id, what is no file
};

// Their elements, to which the options refer.
struct SideFiles {
  Input bounds{}, keys{}, mask{}, y{}, weights{};
  std::vector<FieldColumn> key_fields{}, mask_fields{};  // instead of keys and mask, of a text beside the input
  std::vector<std::string> key_columns{};                // instead, of the input; empty: there are none
  std::string mask_column{};
  std::optional<ColumnComparison> comparison{};  // of the mask's column of the input
  std::vector<std::string> notes{};              // of all of them, after the option: "--keys a.csv: ..."

  bool encodes_keys() const { return !key_fields.empty() || !key_columns.empty(); }

  // INVALID_ARGUMENT: a mask of u8 has not a bit for each of so many elements. Which elements these are is left to the
  // server.
  absl::Status CheckMask(const SideArguments& arguments, const std::vector<std::int64_t>& shape) const;
};

// Reads them, and has the options refer to those that are arrays; the options are else as in the command line. An error
// is reported, and its code returned. y and weights are read as an input of these options is. `sources`: the inputs, of
// which keys and masks may name columns. What is both a file and a column of an input is an error, kUsage.
ExitCode ReadSideFiles(const SideArguments& arguments, const InputOptions& input,
                       const std::vector<std::string>& sources, SideFiles* files, PartitionOptions* options);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_COMMANDS_SIDE_FILES_H_
