// Exact sums of floats, for Precision::kExact: the state that any stretches of an array merge into, in any order, to
// the same bits. Rounding happens once, when the answers are read off it (exact/answers.h).
//
// Sources: S. Collange, D. Defour, S. Graillat, R. Iakymchuk, "Numerical reproducibility for the parallel reduction on
// multi- and many-core architectures" (2015, ExBLAS, hal-00949355); R. Neal, "Fast exact summation using small and
// large superaccumulators" (2015).
#ifndef REDUCED_KERNELS_EXACT_SUMS_H_
#define REDUCED_KERNELS_EXACT_SUMS_H_

#include <cstdint>

#include "kernels/algebra/op.h"
#include "kernels/exact/fixed_point.h"

#ifdef __FAST_MATH__
#error "exact sums need the arithmetic of IEEE 754: don't compile with -ffast-math"
#endif

namespace reduced {

// A sum of f64 or narrower: bits from 2^-1074, the smallest number, to 2^1023, the largest one's first, and 78 more: 63
// for the count of an array, one for the sign, and some to spare.
using ExactSum = FixedPoint<-1074, 34>;
// A sum of their squares: from 2^-2148 to 2^2047, and 92 more.
using ExactSquares = FixedPoint<-2148, 67>;

// Of ExactSums, what a reduction can ask for: kSum, kAbsSum and kSumSquares.
inline constexpr AccumulatorSet kExactAccumulators =
    SetOf(Accumulator::kSum) | SetOf(Accumulator::kAbsSum) | SetOf(Accumulator::kSumSquares);

// The sums of the finite elements of a stretch, those that were asked for; and how many of its elements aren't finite.
// The default is that of no element.
struct ExactSums {
  ExactSum sum;      // kSum
  ExactSum abs_sum;  // kAbsSum
  ExactSquares sum_squares;
  std::int64_t nans = 0;
  std::int64_t positive_infinities = 0;
  std::int64_t negative_infinities = 0;
  // kSum: there is a number other than -0. The sum of nothing but -0 is -0, as IEEE 754 adds.
  bool not_only_negative_zeros = false;

  std::int64_t specials() const { return nans + positive_infinities + negative_infinities; }

  friend bool operator==(const ExactSums&, const ExactSums&) = default;
};

// Adds one element to the sums that are in `set`. `elsewhere`: NaNs and infinities have been counted.
void Add(double x, AccumulatorSet set, bool elsewhere, ExactSums* into);

// Adds the sums of another stretch.
void Merge(const ExactSums& other, ExactSums* into);

}  // namespace reduced

#endif  // REDUCED_KERNELS_EXACT_SUMS_H_
