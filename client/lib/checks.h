// What checks of answers (answer.h) are made of. Their errors are INTERNAL and have the form `field: got X; allowed:
// A`.
#ifndef REDUCED_CLIENT_LIB_CHECKS_H_
#define REDUCED_CLIENT_LIB_CHECKS_H_

#include <initializer_list>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "kernels/algebra/dtype.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced::client {

template <class Got, class Allowed>
absl::Status Wrong(absl::string_view field, const Got& got, const Allowed& allowed) {
  return absl::InternalError(absl::StrCat(field, ": got ", got, "; allowed: ", allowed));
}

// The error of a field of `message`.
inline absl::Status Within(absl::string_view message, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::InternalError(absl::StrCat(message, ".", status.message()));
}

inline std::string Element(absl::string_view field, int index) { return absl::StrCat(field, "[", index, "]"); }

inline std::string DTypeName(DType dtype) { return std::string(RowOf(dtype).name); }

struct Number {
  template <class Amount>
  Number(const char* name, Amount amount) : field(name), value(static_cast<double>(amount)) {}
  const char* field;
  double value;
};
// Amounts, which are finite and not negative.
absl::Status CheckAmounts(std::initializer_list<Number> numbers);
// The numbers of a message, but not those of its repeated fields and messages, as amounts.
absl::Status CheckAmounts(const google::protobuf::Message& message);

absl::Status CheckName(absl::string_view field, const std::string& name);
// A name that the caller may have chosen.
absl::Status CheckChosen(absl::string_view field, const std::string& name, const std::string& chosen);

// A value of its dtype.
absl::Status CheckValue(const v1::Value& value);

// Whether this can be the id of a resident array or the token of a region: one of kIds.
bool IsId(absl::string_view text);
inline constexpr char kIds[] = "1 to 64 letters, digits, - and _";

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_CHECKS_H_
