// The partition of one input by keys and masks that are columns of text.
#ifndef REDUCED_CLIENT_REDUCECTL_COMMANDS_TEXT_PARTITION_H_
#define REDUCED_CLIENT_REDUCECTL_COMMANDS_TEXT_PARTITION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/reducectl/commands/group_by.h"
#include "client/reducectl/commands/reduce_axes.h"
#include "client/reducectl/commands/side_files.h"
#include "client/reducectl/input/fields.h"
#include "reduced/client.h"

namespace reduced::client {

// What `options` refers to is here, and in the side files and fields that it was made of. Not to be moved.
struct TextPartition {
  PartitionOptions options{};
  std::string mask{};                  // a byte for each row; empty: there is none of text
  std::optional<TextGroups> groups{};  // of keys that were encoded
  std::string key_name{};              // of keys of text that were not
  std::vector<std::string> notes{};    // of keys and mask, after the option: "--keys: ..."
};

// The options of the arguments, with keys and masks of text added: those of the side files, or else of the `fields`
// that were read beside the input, null for a resident array. Rows without a mask are taken out of the groups here, so
// that none is empty. `shape`: of the input; null: only the server knows. INVALID_ARGUMENT: there are other rows than
// in the input; keys that have to be integers are not; those of GroupByFields and MaskOf.
absl::Status MakePartition(const AxesArguments& arguments, const SideFiles& sides,
                           const std::vector<FieldColumn>* fields, const std::vector<std::int64_t>* shape,
                           TextPartition* partition);

// What the groups are called: none, if the results are of no groups.
std::vector<LabelColumn> LabelsOf(const TextPartition& partition, const ArrayReply& reply);

// The reply about no group at all, which was asked for as one without rows.
void EndGroups(const TextPartition& partition, ArrayReply* reply);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_COMMANDS_TEXT_PARTITION_H_
