#include "proto/codec/enums.h"

#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace reduced {
absl::Status UnknownValue(absl::string_view field, int number, const google::protobuf::EnumDescriptor& type) {
  std::string allowed;
  for (int i = 0; i < type.value_count(); ++i) {
    if (absl::EndsWith(type.value(i)->name(), "_UNSPECIFIED")) continue;
    absl::StrAppend(&allowed, allowed.empty() ? "" : ", ", type.value(i)->name(), " (", type.value(i)->number(), ")");
  }
  return absl::InvalidArgumentError(absl::StrFormat("%s: got %d; allowed: %s", field, number, allowed));
}

absl::StatusOr<DType> ParseDType(absl::string_view field, v1::DType number) {
  const std::optional<DType> dtype = DTypeFromNumber(number);
  if (!dtype.has_value()) return UnknownValue(field, number);
  return *dtype;
}

absl::StatusOr<Op> ParseOp(absl::string_view field, v1::Op number) {
  const std::optional<Op> op = OpFromNumber(number);
  if (!op.has_value()) return UnknownValue(field, number);
  return *op;
}

}  // namespace reduced
