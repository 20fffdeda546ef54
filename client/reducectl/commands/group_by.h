// GROUP BY columns of text: which row is in which group, and what the groups are called.
#ifndef REDUCED_CLIENT_REDUCECTL_COMMANDS_GROUP_BY_H_
#define REDUCED_CLIENT_REDUCECTL_COMMANDS_GROUP_BY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "client/reducectl/input/dates.h"
#include "client/reducectl/input/fields.h"
#include "reduced/client.h"
#include "reduced/group_keys.h"

namespace reduced::client {

// What --sort, --missing-keys and --bucket say.
struct GroupByOptions {
  bool sort = EncodeOptions().sort;
  std::string missing = EncodeOptions().missing;
  std::optional<Bucket> bucket{};
};

// A key: none where it is missing, text, or a number.
using Label = std::variant<std::monostate, std::string, Value>;

// The keys of one column, of each group.
struct LabelColumn {
  std::string name{};
  std::string dtype{};  // of numbers; "text"
  std::vector<Label> labels{};
};

struct TextGroups {
  KeyCodes codes{};
  std::vector<LabelColumn> labels{};
  std::int64_t dropped = 0;  // rows of which a key is missing, and which are in no group for that
  std::vector<std::string> notes{};
};

// Groups the rows by one column or more, of as many rows each. `mask`: empty, or a byte for each row: where it is 0 the
// row is in no group, as if there were none. INVALID_ARGUMENT: with a bucket, a field is no date, which the message
// names by its line, or no column has dates; those of EncodeKeys.
absl::StatusOr<TextGroups> GroupByFields(const std::vector<const FieldColumn*>& columns, const GroupByOptions& options,
                                         const std::string& mask);

// The labels of groups whose keys are numbers.
LabelColumn LabelsOf(std::string name, const HostArray& keys);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_COMMANDS_GROUP_BY_H_
