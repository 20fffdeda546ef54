#include "kernels/exact/sums.h"

#include <bit>
#include <limits>

namespace reduced {

static_assert(std::numeric_limits<double>::is_iec559 && std::numeric_limits<float>::is_iec559);

void Add(double x, AccumulatorSet set, bool elsewhere, ExactSums* into) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const bool negative = bits >> 63 != 0;
  const auto field = static_cast<int>(bits >> 52 & 0x7ff);
  auto magnitude = static_cast<std::int64_t>(bits & ((std::uint64_t{1} << 52) - 1));
  if (field == 0x7ff) {
    if (elsewhere) return;
    std::int64_t& count = magnitude != 0 ? into->nans
                          : negative     ? into->negative_infinities
                                         : into->positive_infinities;
    ++count;
    if (magnitude == 0 && (set & SetOf(Accumulator::kSum)) != 0) into->not_only_negative_zeros = true;
    return;
  }
  if (field != 0) magnitude |= std::int64_t{1} << 52;
  const int exponent = (field == 0 ? 1 : field) - 1075;  // x = magnitude x 2^exponent
  if ((set & SetOf(Accumulator::kSum)) != 0) {
    into->sum.Add(negative ? -magnitude : magnitude, exponent);
    if (magnitude != 0 || !negative) into->not_only_negative_zeros = true;
  }
  if ((set & SetOf(Accumulator::kAbsSum)) != 0) into->abs_sum.Add(magnitude, exponent);
  if ((set & SetOf(Accumulator::kSumSquares)) != 0) {
    const UInt128 square = static_cast<UInt128>(magnitude) * static_cast<UInt128>(magnitude);
    constexpr int kHalf = 53;
    into->sum_squares.Add(static_cast<std::int64_t>(square & ((UInt128{1} << kHalf) - 1)), 2 * exponent);
    into->sum_squares.Add(static_cast<std::int64_t>(square >> kHalf), 2 * exponent + kHalf);
  }
}

void Merge(const ExactSums& other, ExactSums* into) {
  into->sum.Add(other.sum);
  into->abs_sum.Add(other.abs_sum);
  into->sum_squares.Add(other.sum_squares);
  into->nans += other.nans;
  into->positive_infinities += other.positive_infinities;
  into->negative_infinities += other.negative_infinities;
  into->not_only_negative_zeros = into->not_only_negative_zeros || other.not_only_negative_zeros;
}

}  // namespace reduced
