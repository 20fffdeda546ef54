#include "kernels/exact/answers.h"

#include <cstdint>
#include <limits>
#include <span>

#include "kernels/algebra/answer.h"
#include "kernels/exact/scaled.h"

namespace reduced {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Sums as a state has them: two's complement, least significant word first. `sum` is in units of 2^low, `squares` in
// units of 2^(2 low); one that the op doesn't ask for may be empty.
struct SumWords {
  std::span<const std::uint64_t> sum;
  std::span<const std::uint64_t> squares;
  int low = 0;
};

// The answer to `op` of `count` elements: a rational number or the root of one, rounded once.
double RoundedAnswer(const ReduceSpec& spec, Op op, std::int64_t count, const SumWords& sums) {
  const Scaled sum = Scaled::Of(sums.sum, sums.low);
  if (op == Op::kSum || op == Op::kL1) return Rounded(sum);
  if (op == Op::kMean) return count == 0 ? kNan : RoundedQuotient(sum, Scaled::Of(count));
  const Scaled squares = Scaled::Of(sums.squares, 2 * sums.low), n = Scaled::Of(count);
  if (op == Op::kSumSquares) return Rounded(squares);
  if (op == Op::kL2) return RoundedRootOfQuotient(squares, Scaled::Of(1));
  if (count <= spec.ddof) return kNan;
  // The sum of (x - mean)^2 times the number of elements.
  const Scaled deviations = n * squares - sum * sum;
  return (op == Op::kVar ? &RoundedQuotient : &RoundedRootOfQuotient)(deviations, n * Scaled::Of(count - spec.ddof));
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
  static_assert(ExactSquares::kLow == 2 * ExactSum::kLow);
  const bool omit = spec.nan_policy == NanPolicy::kOmit;
  const SpecialValues special{!omit && sums.nans > 0, sums.positive_infinities > 0, sums.negative_infinities > 0};
  if (special.any()) return SpecialAnswer(op, special);
  if (omit) count -= sums.nans;
  const auto& sum = op == Op::kL1 ? sums.abs_sum : sums.sum;
  const double answer = RoundedAnswer(spec, op, count, {sum.word, sums.sum_squares.word, ExactSum::kLow});
  const bool has_sign = op == Op::kSum || op == Op::kMean;
  return answer == 0 && has_sign && count > 0 && !sums.not_only_negative_zeros ? -0.0 : answer;
}

double IntegerAnswer(const ReduceSpec& spec, Op op, const Partial& partial) {
  const auto bits = static_cast<UInt128>(partial.int_sum);
  const std::uint64_t sum[] = {static_cast<std::uint64_t>(bits), static_cast<std::uint64_t>(bits >> 64)};
  const std::uint64_t(&squares)[3] = partial.int_sum_squares.word;
  const std::uint64_t unsigned_squares[] = {squares[0], squares[1], squares[2], 0};
  return RoundedAnswer(spec, op, partial.count, {sum, unsigned_squares});
}

}  // namespace reduced
