// Parses the proto's enums into the kernels'; values.h converts the other way.
#ifndef REDUCED_PROTO_CODEC_ENUMS_H_
#define REDUCED_PROTO_CODEC_ENUMS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/generated_enum_reflection.h"
#include "kernels/algebra/dtype.h"
#include "kernels/algebra/op.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced {

// INVALID_ARGUMENT: names `field`, the number and the allowed values.
absl::StatusOr<DType> ParseDType(absl::string_view field, v1::DType number);
absl::StatusOr<Op> ParseOp(absl::string_view field, v1::Op number);

// "FIELD: got 7; allowed: OP_SUM (1), OP_PROD (2), ...", with every value of the enum but an unspecified one.
absl::Status UnknownValue(absl::string_view field, int number, const google::protobuf::EnumDescriptor& type);
template <class Enum>
absl::Status UnknownValue(absl::string_view field, Enum value) {
  return UnknownValue(field, static_cast<int>(value), *google::protobuf::GetEnumDescriptor<Enum>());
}

}  // namespace reduced

#endif  // REDUCED_PROTO_CODEC_ENUMS_H_
