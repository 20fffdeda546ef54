// Enums and values of the algebra as those of reduced.proto. The numbers of the proto's enums are those of the kernels'
// enums, so that they convert by a cast: values.cc asserts it.
#ifndef REDUCED_PROTO_CODEC_VALUES_H_
#define REDUCED_PROTO_CODEC_VALUES_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/repeated_field.h"
#include "kernels/algebra/spec.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced {

constexpr v1::DType ToProto(DType dtype) { return static_cast<v1::DType>(dtype); }
constexpr v1::Op ToProto(Op op) { return static_cast<v1::Op>(op); }
constexpr v1::Engine ToProto(EngineKind kind) { return static_cast<v1::Engine>(kind); }

void ToProto(const Value& value, v1::Value* out);

// Why an op has no result.
void ToProto(const absl::Status& error, v1::OpError* out);

// Appends the answers to spec.ops, in that order.
void ToProto(const ReduceSpec& spec, const std::vector<absl::StatusOr<Value>>& values,
             google::protobuf::RepeatedPtrField<v1::Result>* results);

}  // namespace reduced

#endif  // REDUCED_PROTO_CODEC_VALUES_H_
