// --where by a column of text: of 0 and 1 or true and false, or compared with a value.
#ifndef REDUCED_CLIENT_REDUCECTL_COMMANDS_WHERE_H_
#define REDUCED_CLIENT_REDUCECTL_COMMANDS_WHERE_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/reducectl/input/fields.h"

namespace reduced::client {

// "price > 0": a column, one of < <= > >= == !=, and a number or text, which may be in quotes.
struct ColumnComparison {
  std::string column{}, op{}, value{};
  bool quoted = false;
};

// Absent: the text has no such op in it. INVALID_ARGUMENT: it has one, but is no comparison.
absl::StatusOr<std::optional<ColumnComparison>> ParseComparison(absl::string_view text);

// A byte for each row: 1 where the field is true, or compares so. A missing field never does. Numbers are compared as
// numbers, text by its bytes. INVALID_ARGUMENT: a field is neither 0 nor 1, true nor false; numbers are compared with
// text, or text with a number; the value is a missing one. The message names the line.
absl::StatusOr<std::string> MaskOf(const FieldColumn& column, const std::optional<ColumnComparison>& comparison);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_COMMANDS_WHERE_H_
