// The answers that come from exact sums, of floats and of integers: each is rounded once, to the nearest double, ties
// to even.
#ifndef REDUCED_KERNELS_EXACT_ANSWERS_H_
#define REDUCED_KERNELS_EXACT_ANSWERS_H_

#include "kernels/algebra/partial.h"
#include "kernels/algebra/spec.h"
#include "kernels/exact/sums.h"

namespace reduced {

// True of ops and dtypes that Precision::kExact is about: sums of floats, and what is computed from them.
constexpr bool IsExactOp(Op op, DType dtype) {
  if (!RowOf(dtype).is_float) return false;
  const Accumulator accumulator = RowOf(op).accumulator;
  return accumulator == Accumulator::kMoments || (kExactAccumulators & SetOf(accumulator)) != 0;
}

// What ExactSums must have for spec's ops: a subset of kExactAccumulators, empty unless spec asks for kExact and has an
// op that it is about.
AccumulatorSet ExactAccumulatorsFor(const ReduceSpec& spec);

// The answer to `op`, one of spec's that IsExactOp(), of `count` elements with these sums. The mathematical value, an
// exact rational number or the root of one, rounded once, var and std too. Sums that have infinities of both signs,
// deviations from an infinite mean and, unless they are left out, NaNs give NaN.
double ExactAnswer(const ReduceSpec& spec, Op op, std::int64_t count, const ExactSums& sums);

// The answer to mean, var, std or l2, one of spec's ops, of the integers with these sums: rounded once as above.
// `partial` has kSum and kSumSquares as the op needs them.
double IntegerAnswer(const ReduceSpec& spec, Op op, const Partial& partial);

}  // namespace reduced

#endif  // REDUCED_KERNELS_EXACT_ANSWERS_H_
