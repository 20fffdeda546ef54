#include "kernels/exact/answers.h"

#include <cstdint>
#include <limits>
#include <utility>

#include "kernels/exact/natural.h"

namespace reduced {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// number x 2^exponent over one or two divisors, as a number that rounding and roots are right of.
struct Quotient {
  Natural number;
  int exponent;
  bool more = false;  // a remainder was left

  Quotient(Natural dividend, int dividend_exponent) : exponent(dividend_exponent - kShift) {
    exponent += dividend.DropLowZeros();
    number = dividend.ShiftedLeft(kShift);
  }
  void Divide(std::uint64_t divisor) { more = number.Divide(divisor) != 0 || more; }

 private:
  static constexpr int kShift = 256;  // two divisors take 128 bits at most, and roots want 126
};

// The variance, or its root, of `count` elements from the magnitude of their sum and the sum of their squares, which is
// in units of 2^exponent and the sum in units of the root of that.
double Deviation(const ReduceSpec& spec, Op op, std::int64_t count, const Natural& sum, const Natural& sum_squares,
                 int exponent) {
  // The sum of (x - mean)^2 times the number of elements.
  Natural spread = sum_squares.Times(Natural(static_cast<std::uint64_t>(count))).Minus(sum.Times(sum));
  Quotient quotient(std::move(spread), exponent);
  quotient.Divide(static_cast<std::uint64_t>(count));
  quotient.Divide(static_cast<std::uint64_t>(count - spec.ddof));
  const auto round = op == Op::kVar ? &RoundToDouble : &RoundRootToDouble;
  return round(quotient.number, quotient.exponent, quotient.more);
}

// The sum over `divisor`, with its sign.
double SignedQuotient(const ExactSums& sums, std::int64_t count, std::uint64_t divisor) {
  if (sums.positive_infinities > 0) return sums.negative_infinities > 0 ? kNan : kInfinity;
  if (sums.negative_infinities > 0) return -kInfinity;
  Natural magnitude = Natural::MagnitudeOf(sums.sum.word);
  if (magnitude.zero()) return count > 0 && !sums.not_only_negative_zeros ? -0.0 : 0.0;
  Quotient quotient(std::move(magnitude), ExactSum::kLow);
  quotient.Divide(divisor);
  const double value = RoundToDouble(quotient.number, quotient.exponent, quotient.more);
  return sums.sum.negative() ? -value : value;
}

}  // namespace

AccumulatorSet ExactAccumulatorsFor(const ReduceSpec& spec) {
  AccumulatorSet set = 0;
  if (spec.precision != Precision::kExact) return set;
  for (const Op op : spec.ops) {
    if (!IsExactOp(op, spec.dtype)) continue;
    const Accumulator accumulator = RowOf(op).accumulator;
    set |= accumulator == Accumulator::kMoments ? SetOf(Accumulator::kSum) | SetOf(Accumulator::kSumSquares)
                                                : SetOf(accumulator);
  }
  return set;
}

double ExactAnswer(const ReduceSpec& spec, Op op, std::int64_t count, const ExactSums& sums) {
  const bool omit = spec.nan_policy == NanPolicy::kOmit;
  if (omit) count -= sums.nans;
  const bool nan = !omit && sums.nans > 0;
  const bool infinite = sums.positive_infinities > 0 || sums.negative_infinities > 0;
  const bool deviates = op == Op::kVar || op == Op::kStd;
  if (nan || (op == Op::kMean && count == 0) || (deviates && (count <= spec.ddof || infinite))) return kNan;
  switch (op) {
    case Op::kSum:
      return SignedQuotient(sums, count, 1);
    case Op::kMean:
      return SignedQuotient(sums, count, static_cast<std::uint64_t>(count));
    case Op::kVar:
    case Op::kStd:
      static_assert(ExactSquares::kLow == 2 * ExactSum::kLow);
      return Deviation(spec, op, count, Natural::MagnitudeOf(sums.sum.word),
                       Natural::MagnitudeOf(sums.sum_squares.word), ExactSquares::kLow);
    default:
      break;
  }
  if (infinite) return kInfinity;
  if (op == Op::kL1) return RoundToDouble(Natural::MagnitudeOf(sums.abs_sum.word), ExactSum::kLow);
  const Natural squares = Natural::MagnitudeOf(sums.sum_squares.word);
  const auto round = op == Op::kL2 ? &RoundRootToDouble : &RoundToDouble;
  return round(squares, ExactSquares::kLow, /*more=*/false);
}

double IntegerAnswer(const ReduceSpec& spec, Op op, const Partial& partial) {
  const auto bits = static_cast<UInt128>(partial.int_sum);
  const std::uint64_t sum_words[] = {static_cast<std::uint64_t>(bits), static_cast<std::uint64_t>(bits >> 64)};
  const std::uint64_t(&squares)[3] = partial.int_sum_squares.word;
  const std::uint64_t square_words[] = {squares[0], squares[1], squares[2], 0};  // not negative
  const std::int64_t count = partial.count;
  if (op == Op::kL2) return RoundRootToDouble(Natural::MagnitudeOf(square_words), 0);
  if (op == Op::kMean) {
    if (count == 0) return kNan;
    Quotient quotient(Natural::MagnitudeOf(sum_words), 0);
    quotient.Divide(static_cast<std::uint64_t>(count));
    const double mean = RoundToDouble(quotient.number, quotient.exponent, quotient.more);
    return partial.int_sum < 0 ? -mean : mean;
  }
  if (count <= spec.ddof) return kNan;
  return Deviation(spec, op, count, Natural::MagnitudeOf(sum_words), Natural::MagnitudeOf(square_words), 0);
}

}  // namespace reduced
