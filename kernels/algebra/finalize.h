// From the partial of a whole array to the answers: the same code for every engine, so that results, empty arrays, NaN
// and overflow follow one convention wherever the work ran.
#ifndef REDUCED_KERNELS_ALGEBRA_FINALIZE_H_
#define REDUCED_KERNELS_ALGEBRA_FINALIZE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "kernels/algebra/spec.h"
#include "kernels/exact/sums.h"

namespace reduced {

// The answers to spec.ops, in that order. `partial` has the accumulators of AccumulatorsFor(spec) filled, `exact` those
// of ExactAccumulatorsFor(spec): null if there are none.
//
// INVALID_ARGUMENT: min, max, argmin or argmax of an array with no element (none but NaNs, under NanPolicy::kOmit).
// OUT_OF_RANGE: an integer result that its type doesn't hold, under OverflowPolicy::kError; the message has the exact
// value where it is known.
absl::StatusOr<std::vector<Value>> Finalize(const ReduceSpec& spec, const Partial& partial,
                                            const ExactSums* exact = nullptr);

}  // namespace reduced

#endif  // REDUCED_KERNELS_ALGEBRA_FINALIZE_H_
