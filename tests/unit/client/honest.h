// What an honest server answers: the fake servers of these tests fill in with it what a test leaves out.
#ifndef REDUCED_TESTS_UNIT_CLIENT_HONEST_H_
#define REDUCED_TESTS_UNIT_CLIENT_HONEST_H_

#include <cstdint>
#include <string>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/op.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced::client {

// A value of this dtype: 0.
inline void SetZero(DType dtype, v1::Value* value) {
  value->set_dtype(static_cast<v1::DType>(dtype));
  if (RowOf(dtype).is_float) {
    value->set_f(0);
  } else if (dtype == DType::kBool) {
    value->set_b(false);
  } else if (RowOf(dtype).is_signed) {
    value->set_i(0);
  } else {
    value->set_u(0);
  }
}

// Fills in the parts of an answer that are missing. Resident arrays are taken to be 3 elements of f32.
inline void Complete(const v1::ReduceRequest& request, v1::ReduceResponse* response) {
  const DType dtype = request.has_array() ? static_cast<DType>(request.array().dtype()) : DType::kF32;
  std::int64_t count = request.has_array() ? 1 : 3;
  for (const std::int64_t extent : request.array().shape()) count *= extent;
  if (response->results().empty() && !request.omit_results()) {
    for (const int op : request.ops()) {
      v1::Result* const result = response->add_results();
      result->set_op(static_cast<v1::Op>(op));
      SetZero(ResultDType(static_cast<Op>(op), dtype), result->mutable_value());
    }
  }
  if (response->count() == 0) response->set_count(count);
  v1::Execution* const ran = response->mutable_execution();
  const v1::ReduceOptions& options = request.options();
  if (ran->engine() == v1::ENGINE_AUTO) {
    ran->set_engine(options.engine() == v1::ENGINE_AUTO ? v1::ENGINE_CPU : options.engine());
  }
  if (ran->device().empty()) ran->set_device(options.device().empty() ? "cpu" : options.device());
  if (ran->pipeline().empty()) ran->set_pipeline(options.pipeline().empty() ? "tiled_simd" : options.pipeline());
  if (ran->precision() == v1::PRECISION_DEFAULT) ran->set_precision(v1::PRECISION_F64);
  if (response->timing().bytes() == 0) response->mutable_timing()->set_bytes(count * RowOf(dtype).bytes);
}

inline void Complete(const v1::PutArrayHeader& header, v1::ArrayInfo* array) {
  if (array->id().empty()) array->set_id("0123456789abcdef");
  if (!array->has_array()) {
    *array->mutable_array() = header.array();
    std::int64_t bytes = RowOf(static_cast<DType>(header.array().dtype())).bytes;
    for (const std::int64_t extent : header.array().shape()) bytes *= extent;
    array->set_bytes(bytes);
  }
  if (array->device().empty()) array->set_device(header.device().empty() ? "cpu" : header.device());
  if (array->owner().empty()) array->set_owner(header.owner());
}

// The state of `count` zeros of i32, asked for their sum.
inline v1::State SumState(std::int64_t count) {
  v1::State state;
  state.set_version(1);
  state.set_dtype(v1::DTYPE_I32);
  state.set_count(count);
  state.add_ops(v1::OP_SUM);
  state.set_precision(v1::PRECISION_F64);
  state.set_nan_policy(v1::NAN_POLICY_PROPAGATE);
  state.set_overflow_policy(v1::OVERFLOW_POLICY_ERROR);
  state.mutable_sum()->set_integer("");
  return state;
}

}  // namespace reduced::client

#endif  // REDUCED_TESTS_UNIT_CLIENT_HONEST_H_
