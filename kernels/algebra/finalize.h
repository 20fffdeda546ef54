// From the state of a whole array to the answers. Every engine's states are finalized by this code, so that results,
// empty arrays, NaN and overflow follow one convention wherever the work ran.
#ifndef REDUCED_KERNELS_ALGEBRA_FINALIZE_H_
#define REDUCED_KERNELS_ALGEBRA_FINALIZE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/algebra/portable.h"
#include "kernels/algebra/spec.h"
#include "kernels/algebra/state.h"

namespace reduced {

// Returns the answer to `op`, which is one of spec.ops. `state` is one of a reduction by `spec`.
//
// INVALID_ARGUMENT: min, max, argmin, argmax or range of an array with no element (none but NaNs, under
// NanPolicy::kOmit), under EmptyPolicy::kError.
// OUT_OF_RANGE: an integer result that its type doesn't hold, under OverflowPolicy::kError; the message has the exact
// value where it is known.
absl::StatusOr<Value> Finalize(const ReduceSpec& spec, Op op, const State& state);

// The answers to spec.ops, in that order; or the first error.
absl::StatusOr<std::vector<Value>> Finalize(const ReduceSpec& spec, const State& state);
// The answers to spec.ops, in that order, each with its own error if `op_errors`; else the first error. If no op has an
// answer, the first error, too.
absl::StatusOr<std::vector<absl::StatusOr<Value>>> FinalizeEach(const ReduceSpec& spec, const State& state,
                                                                bool op_errors);

// The answer to an op that has none for no element, under EmptyPolicy::kFill: NaN for floats; the largest value of the
// dtype for min and bottomk and the smallest for max and topk, which any element replaces; 0 for the range of integers;
// 2^64 - 1 for an index.
Value EmptyValue(Op op, DType dtype);

// A result of integers: sign x magnitude, if that is known.
struct ExactInteger {
  bool negative = false;
  UInt128 magnitude = 0;
  bool beyond = false;        // the magnitude is at least 2^128, or not known but at least 2^64
  std::uint64_t wrapped = 0;  // the value modulo 2^64
};
// As an i64 or u64, whichever the op answers with, by the overflow policy. OUT_OF_RANGE, as Finalize.
absl::StatusOr<Value> FitInteger(const ReduceSpec& spec, const OpCall& call, const ExactInteger& exact);

// Writes an answer as an element of its dtype, of RowOf(value.dtype).bytes, to any address.
void StoreValue(const Value& value, std::byte* to);
// Writes the answer of output number `output` so, to its place in the array of the answers of all outputs.
void StoreAnswer(const Value& answer, std::byte* array, std::int64_t output);

}  // namespace reduced

#endif  // REDUCED_KERNELS_ALGEBRA_FINALIZE_H_
