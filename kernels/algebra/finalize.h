// From the state of a whole array to the answers. Every engine's states are finalized by this code, so that results,
// empty arrays, NaN and overflow follow one convention wherever the work ran.
#ifndef REDUCED_KERNELS_ALGEBRA_FINALIZE_H_
#define REDUCED_KERNELS_ALGEBRA_FINALIZE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "kernels/algebra/spec.h"
#include "kernels/algebra/state.h"

namespace reduced {

// Returns the answers to spec.ops, in that order. `state` is one of a reduction by `spec`.
//
// INVALID_ARGUMENT: min, max, argmin or argmax of an array with no element (none but NaNs, under NanPolicy::kOmit).
// OUT_OF_RANGE: an integer result that its type doesn't hold, under OverflowPolicy::kError; the message has the exact
// value where it is known.
absl::StatusOr<std::vector<Value>> Finalize(const ReduceSpec& spec, const State& state);

}  // namespace reduced

#endif  // REDUCED_KERNELS_ALGEBRA_FINALIZE_H_
