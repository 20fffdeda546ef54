// Names of the values of the proto enums, read off their descriptors: OP_ARGMAX is "argmax".
#ifndef REDUCED_CLIENT_LIB_NAMES_H_
#define REDUCED_CLIENT_LIB_NAMES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/generated_enum_reflection.h"

namespace reduced::client {

// Those that can be asked for, in order: all but UNSPECIFIED and DEFAULT.
std::vector<std::string> NamesOf(const google::protobuf::EnumDescriptor* type);

// "7" if this build's proto has no such number: a newer server may send one.
std::string NameOf(const google::protobuf::EnumDescriptor* type, int number);

// INVALID_ARGUMENT: no such name; the message calls it a `what`.
absl::StatusOr<int> NumberOf(const google::protobuf::EnumDescriptor* type, absl::string_view what,
                             absl::string_view name);

template <class Enum>
std::string NameOf(Enum value) {
  return NameOf(google::protobuf::GetEnumDescriptor<Enum>(), static_cast<int>(value));
}

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_NAMES_H_
