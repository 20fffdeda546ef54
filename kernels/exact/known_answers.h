// The answers to ops that are computed from sums and from sums of squares, where these are two doubles with a bound on
// their error (two_doubles.h). An answer is the exact one, rounded once, or it is not known: then the driver leaves the
// output open, to be folded to a state. Written once for host and device, to be compiled without contraction of
// operations.
#ifndef REDUCED_KERNELS_EXACT_KNOWN_ANSWERS_H_
#define REDUCED_KERNELS_EXACT_KNOWN_ANSWERS_H_

#include <cstdint>
#include <limits>

#include "kernels/algebra/op.h"
#include "kernels/algebra/portable.h"
#include "kernels/exact/two_doubles.h"

namespace reduced {

// Stores the answer to sum, l1 or mean of `count` elements. False: it is not known.
REDUCED_HD bool KnownSumAnswer(Op op, const TwoDoubles& sum, std::int64_t count, double* answer) {
  if (op != Op::kMean) return KnownSum(sum, answer);
  if (count > 0) return KnownMean(sum, count, answer);
  *answer = std::numeric_limits<double>::quiet_NaN();
  return true;
}

// The same of any op that is computed from sums. `sum` is not looked at for sum_squares and l2.
REDUCED_HD bool KnownAnswer(Op op, const TwoDoubles& sum, TwoDoubles squares, std::int64_t count, std::int64_t ddof,
                            double* answer) {
  if (op == Op::kSum || op == Op::kMean) return KnownSumAnswer(op, sum, count, answer);
  if (op == Op::kSumSquares) return KnownSum(squares, answer);
  squares.value = NotHoisted(squares.value);
  TwoDoubles value;
  if (!DeviatesFromMean(op)) {
    value = RootOf(Normalized({squares.value, squares.rest, squares.error * (1 + 0x1p-20)}));
    return RoundTwo(value, answer);
  }
  if (count <= ddof) {
    *answer = std::numeric_limits<double>::quiet_NaN();
    return true;
  }
  if (!Variance(sum, squares, count, ddof, &value)) return false;
  if (op == Op::kStd) {
    value.value = NotHoisted(value.value);
    value = RootOf(value);
  }
  return RoundTwo(value, answer);
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_EXACT_KNOWN_ANSWERS_H_
