// The results of groups as a table: a row for each group, of its keys and of what each op says.
#ifndef REDUCED_CLIENT_REDUCECTL_COMMANDS_GROUP_TABLE_H_
#define REDUCED_CLIENT_REDUCECTL_COMMANDS_GROUP_TABLE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/reducectl/commands/group_by.h"
#include "client/reducectl/output/render.h"
#include "reduced/client.h"

namespace reduced::client {

// Whether a file of this name is written as a table: .csv or .json.
bool IsTableName(absl::string_view path);

// For a terminal, under the names of the columns; of more than 1,000 groups the first and the last. A result of several
// numbers is a column for each: "topk(2)[0]". An op without results has "-".
std::string GroupTableText(const std::vector<LabelColumn>& labels, const std::vector<ResultArray>& results);

// The labels alone: of each column a line, "[1 2]" or of text ["north" "south"].
std::string LabelsText(const std::vector<LabelColumn>& labels);
// The labels of one column as an object with name, dtype, shape and values; of several a list of these. A missing key
// is null.
Json LabelsJson(const std::vector<LabelColumn>& labels);

// The content of a file of that name: CSV with a header, in which a missing key is empty; or JSON, a list of an object
// for each group, in which it is null. INVALID_ARGUMENT: two columns have the same name.
absl::StatusOr<std::string> GroupTableFile(absl::string_view path, const std::vector<LabelColumn>& labels,
                                           const std::vector<ResultArray>& results);

// The labels of a column as a .npy file: numbers, or NumPy's U, in which a missing key is empty. INVALID_ARGUMENT: a
// missing key is among numbers, or text is not UTF-8.
absl::StatusOr<std::string> LabelsNpy(const LabelColumn& labels);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_COMMANDS_GROUP_TABLE_H_
