// The columns of a text as arrays.
#ifndef REDUCED_CLIENT_REDUCECTL_INPUT_TEXT_COLUMNS_H_
#define REDUCED_CLIENT_REDUCECTL_INPUT_TEXT_COLUMNS_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "client/reducectl/input/bytes.h"
#include "client/reducectl/input/input.h"

namespace reduced::client {

// Gives a text from its beginning once more.
using ReopenText = std::function<absl::StatusOr<std::shared_ptr<ByteSource>>()>;

// The columns that are asked for, of a text. All of them are in one piece each if the text is not too long. `reopen`:
// used if a column that began with whole numbers has others, too; null: the text can be read only once, and that is an
// error. `json`: the text is JSON lines.
absl::StatusOr<std::unique_ptr<InputReader>> OpenTextColumns(std::shared_ptr<ByteSource> source, ReopenText reopen,
                                                             const InputOptions& options, bool json);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_INPUT_TEXT_COLUMNS_H_
