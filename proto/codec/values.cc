#include "proto/codec/values.h"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <type_traits>
#include <variant>

namespace reduced {
namespace {

// The tables list every value of the proto's enums under the same numbers: 1, 2, 3... (Service tests check that the
// names agree.)
template <class Rows, class Number>
constexpr bool NumberedFromOne(const Rows& rows, Number number) {
  int expected = 1;
  for (const auto& row : rows) {
    if (static_cast<int>(number(row)) != expected++) return false;
  }
  return true;
}
static_assert(NumberedFromOne(kDTypes, [](const DTypeRow& row) { return row.dtype; }));
static_assert(NumberedFromOne(kOps, [](const OpRow& row) { return row.op; }));
static_assert(std::size(kDTypes) + 1 == v1::DType_ARRAYSIZE, "a dtype is missing in reduced.proto or in dtype.h");
static_assert(std::size(kOps) + 1 == v1::Op_ARRAYSIZE, "an op is missing in reduced.proto or in op.h");
static_assert(static_cast<int>(EngineKind::kAuto) == v1::ENGINE_AUTO);
static_assert(static_cast<int>(EngineKind::kCpu) == v1::ENGINE_CPU);
static_assert(static_cast<int>(EngineKind::kCuda) == v1::ENGINE_CUDA && v1::Engine_MAX == v1::ENGINE_CUDA);
static_assert(static_cast<int>(NanPolicy::kPropagate) == v1::NAN_POLICY_PROPAGATE);
static_assert(static_cast<int>(NanPolicy::kOmit) == v1::NAN_POLICY_OMIT && v1::NanPolicy_MAX == v1::NAN_POLICY_OMIT);
static_assert(static_cast<int>(Precision::kF64) == v1::PRECISION_F64);
static_assert(static_cast<int>(Precision::kExact) == v1::PRECISION_EXACT && v1::Precision_MAX == v1::PRECISION_EXACT);
static_assert(static_cast<int>(OverflowPolicy::kError) == v1::OVERFLOW_POLICY_ERROR);
static_assert(static_cast<int>(OverflowPolicy::kWrap) == v1::OVERFLOW_POLICY_WRAP);
static_assert(static_cast<int>(OverflowPolicy::kSaturate) == v1::OVERFLOW_POLICY_SATURATE &&
              v1::OverflowPolicy_MAX == v1::OVERFLOW_POLICY_SATURATE);
static_assert(static_cast<int>(EmptyPolicy::kError) == v1::EMPTY_POLICY_ERROR);
static_assert(static_cast<int>(EmptyPolicy::kFill) == v1::EMPTY_POLICY_FILL &&
              v1::EmptyPolicy_MAX == v1::EMPTY_POLICY_FILL);

}  // namespace

void ToProto(const Value& value, v1::Value* out) {
  out->set_dtype(ToProto(value.dtype));
  std::visit(
      [out](auto x) {
        using T = decltype(x);
        if constexpr (std::is_same_v<T, bool>) out->set_b(x);
        if constexpr (std::is_same_v<T, double>) out->set_f(x);
        if constexpr (std::is_same_v<T, std::int64_t>) out->set_i(x);
        if constexpr (std::is_same_v<T, std::uint64_t>) out->set_u(x);
      },
      value.value);
}

void ToProto(const absl::Status& error, v1::OpError* out) {
  out->set_code(error.raw_code());
  out->set_message(std::string(error.message()));
}

void ToProto(const ReduceSpec& spec, const std::vector<absl::StatusOr<Value>>& values,
             google::protobuf::RepeatedPtrField<v1::Result>* results) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    v1::Result* const result = results->Add();
    result->set_op(ToProto(spec.ops[i]));
    if (values[i].ok()) {
      ToProto(*values[i], result->mutable_value());
    } else {
      ToProto(values[i].status(), result->mutable_error());
    }
  }
}

}  // namespace reduced
