// What an op answers, from what a fold knows of an output: counts, values that are not finite, integers that may not
// fit, products. Written once for host and device. Finalize() (finalize.h) reads states by these functions, and so do
// the drivers' folds in registers, which only decide whether they know enough; exact/known_answers.h has the answers
// that come from sums as two doubles.
#ifndef REDUCED_KERNELS_ALGEBRA_ANSWER_H_
#define REDUCED_KERNELS_ALGEBRA_ANSWER_H_

#include <cstdint>
#include <limits>

#include "kernels/algebra/arithmetic.h"
#include "kernels/algebra/op.h"
#include "kernels/algebra/partial.h"
#include "kernels/algebra/portable.h"

namespace reduced {

// How many elements an output has. NaNs are among the elements and among those that aren't zero.
struct ElementCounts {
  std::int64_t elements = 0;
  std::int64_t nonzero = 0;
  std::int64_t nans = 0;
};

// The answer to an op of Accumulator::kCounts; any and all: 1 if true, else 0.
REDUCED_HD std::int64_t CountAnswer(Op op, const ElementCounts& counts, bool omit_nans) {
  const std::int64_t omitted = omit_nans ? counts.nans : 0;
  const std::int64_t counted = counts.elements - omitted, nonzero = counts.nonzero - omitted;
  switch (op) {
    case Op::kAny:
      return nonzero > 0 ? 1 : 0;
    case Op::kAll:
      return nonzero == counted ? 1 : 0;
    case Op::kCountNonzero:
      return nonzero;
    case Op::kNanCount:
      return counts.nans;
    default:
      return counted;
  }
}

// Which values that are not finite an output has, NaNs unless they are omitted.
struct SpecialValues {
  bool nan = false;
  bool positive_infinity = false;
  bool negative_infinity = false;

  REDUCED_HD bool any() const { return nan || positive_infinity || negative_infinity; }
};

// The answer to a sum, or to an op that is computed from sums, of an output that has such values: they decide it.
REDUCED_HD double SpecialAnswer(Op op, const SpecialValues& values) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (values.nan || DeviatesFromMean(op)) return kNan;
  if (op != Op::kSum && op != Op::kMean) return kInfinity;  // magnitudes and squares have no sign
  if (values.positive_infinity && values.negative_infinity) return kNan;
  return values.positive_infinity ? kInfinity : -kInfinity;
}

// The largest magnitude of the integers of 64 bits that have that sign.
REDUCED_HD std::uint64_t LargestMagnitude(bool negative, bool is_unsigned) {
  return is_unsigned ? ~std::uint64_t{0} : (std::uint64_t{1} << 63) - (negative ? 0 : 1);
}
// The bits of the integer of 64 bits that is nearest to one beyond them: see OverflowPolicy::kSaturate. An unsigned
// one isn't negative.
REDUCED_HD std::uint64_t SaturatedBits(bool negative, bool is_unsigned) {
  return LargestMagnitude(negative, is_unsigned);  // -2^63 has the bits of 2^63
}

// The product of floats, rounded where it is subnormal.
REDUCED_HD double ProductAnswer(const FloatProduct& product) {
  // In two steps, of which only the second rounds; beyond these exponents all products are infinite or zero.
  constexpr std::int64_t kMost = 2000;
  const std::int64_t exponent = product.exponent < -kMost  ? -kMost
                                : product.exponent > kMost ? kMost
                                                           : product.exponent;
  const std::int64_t half = exponent / 2;
  const auto power = [](std::int64_t e) { return DoubleFromBits(static_cast<std::uint64_t>(1023 + e) << 52); };
  return product.mantissa * power(half) * power(exponent - half);
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_ALGEBRA_ANSWER_H_
