// The names of the values of the proto enums, from their descriptors: OP_ARGMAX is "argmax".
#ifndef REDUCED_CLIENT_LIB_NAMES_H_
#define REDUCED_CLIENT_LIB_NAMES_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/generated_enum_reflection.h"

namespace reduced::client {

// The names that users can give, in order: all but UNSPECIFIED and DEFAULT.
std::vector<std::string> NamesOf(const google::protobuf::EnumDescriptor* type);

// "7" if this build's enum has no such number: a newer server may send one.
std::string NameOf(const google::protobuf::EnumDescriptor* type, int number);

// The names of the values 0, 1, ... of an enum, up to its last one.
std::vector<std::string> NamesByNumber(const google::protobuf::EnumDescriptor* type);

// INVALID_ARGUMENT: there is no such name; the message starts with `field`.
absl::StatusOr<int> NumberOf(const google::protobuf::EnumDescriptor* type, absl::string_view field,
                             absl::string_view name);

template <class Enum>
std::string NameOf(Enum value) {
  // Every answer has some.
  static const auto* const names =
      new std::vector<std::string>(NamesByNumber(google::protobuf::GetEnumDescriptor<Enum>()));
  const auto number = static_cast<std::size_t>(static_cast<int>(value));
  return number < names->size() ? (*names)[number] : std::to_string(static_cast<int>(value));
}

// Sets *value to the value with this name.
template <class Enum>
absl::Status Parse(absl::string_view field, absl::string_view name, Enum* value) {
  const absl::StatusOr<int> number = NumberOf(google::protobuf::GetEnumDescriptor<Enum>(), field, name);
  if (number.ok()) *value = static_cast<Enum>(*number);
  return number.status();
}

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_NAMES_H_
