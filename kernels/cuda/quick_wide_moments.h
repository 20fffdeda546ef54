// Folds of quick_folds.h: sums of 64-bit integers with sums of their squares, from which come variances, their roots
// and norms.
//
// Both are exact. So is n Q - S^2, which a variance is a quotient of: it does not matter how much larger the mean is
// than the deviations. Only then are numbers rounded, to twice the precision of a double (exact/two_doubles.h).
#ifndef REDUCED_KERNELS_CUDA_QUICK_WIDE_MOMENTS_H_
#define REDUCED_KERNELS_CUDA_QUICK_WIDE_MOMENTS_H_

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/algebra/arithmetic.h"
#include "kernels/algebra/partial.h"
#include "kernels/cuda/quick_sums.h"

namespace reduced {

// Of words as they are prepared: unsigned integers are 2^63 less. Fewer than 2^31 elements.
struct QuickWideMoments {
  static constexpr bool kTakesManyRegisters = true;
  using Sum = QuickIntegerSum<8>;
  using Word = Sum::Word;

  Sum sums;
  UInt192 squares;

  REDUCED_HD static Word Padding(Word first, const QuickElements& of) { return Sum::Padding(first, of); }

  // Adds elements. Padding is zeros.
  template <int kCount, class Position>
  REDUCED_HD void Add(const QuickTile<Word, kCount>& x, int n, Position position, const QuickElements& of) {
    sums.Add(x, n, position, of);
    REDUCED_UNROLL
    for (int i = 0; i < kCount; ++i) {
      const std::uint64_t magnitude = Magnitude(static_cast<std::int64_t>(x[i]));
      const UInt128 square = static_cast<UInt128>(magnitude) * magnitude;
      Increase(squares, UInt192{{static_cast<std::uint64_t>(square), static_cast<std::uint64_t>(square >> 64), 0}});
    }
  }

  REDUCED_HD void Merge(const QuickWideMoments& other) {
    sums.Merge(other.sums);
    Increase(squares, other.squares);
  }

  REDUCED_HD bool Finish(const QuickAnswer* answers, int ops, std::int64_t output, const QuickElements& of) const {
    return StoreEachAnswer(answers, ops, output, 0, of, [&](const QuickAnswer& answer) {
      if (answer.op == Op::kSum || answer.op == Op::kMean) return sums.Finish(&answer, 1, output, of);
      const bool deviates = DeviatesFromMean(answer.op);
      if (deviates && of.count <= of.ddof) {
        StoreAnswer(answer, output, std::numeric_limits<double>::quiet_NaN());
        return true;
      }
      const Wide wide = deviates ? Deviations(of.count) : Squares(of);
      if (answer.op == Op::kSumSquares) {
        return StoreInteger(answer, output, wide.low, wide.high == 0, false, true, of);
      }
      TwoDoubles value = Rounded(wide);
      value.value = NotHoisted(value.value);
      if (deviates) value = DividedByCounts(value, of.count, of.ddof);
      if (answer.op != Op::kVar) {
        value.value = NotHoisted(value.value);
        value = RootOf(value);
      }
      double rounded;
      if (!RoundTwo(value, &rounded)) return false;
      StoreAnswer(answer, output, rounded);
      return true;
    });
  }

 private:
  struct Wide {  // 192 bits
    std::uint64_t low;
    UInt128 high;
  };

  // The sum of the squares of the elements: of unsigned ones from those of x - 2^63, the sum of these and their number.
  REDUCED_HD Wide Squares(const QuickElements& of) const {
    Wide wide{squares.word[0], static_cast<UInt128>(squares.word[2]) << 64 | squares.word[1]};
    if (of.is_unsigned) {
      wide.high += static_cast<UInt128>(static_cast<std::uint64_t>(sums.high)) << 64 | sums.sum;
      wide.high += static_cast<UInt128>(static_cast<std::uint64_t>(of.count)) << 62;
    }
    return wide;
  }

  // n Q - S^2, which is below 2^188, as both are. What is taken from all elements alike does not change it.
  REDUCED_HD Wide Deviations(std::int64_t count) const {
    const auto n = static_cast<std::uint64_t>(count);
    const UInt128 low = static_cast<UInt128>(squares.word[0]) * n;
    const UInt128 high =
        (static_cast<UInt128>(squares.word[2]) << 64 | squares.word[1]) * n + static_cast<std::uint64_t>(low >> 64);
    auto sum = static_cast<UInt128>(static_cast<std::uint64_t>(sums.high)) << 64 | sums.sum;
    if (sums.high < 0) sum = UInt128{0} - sum;
    const auto sum_low = static_cast<std::uint64_t>(sum), sum_high = static_cast<std::uint64_t>(sum >> 64);  // < 2^31
    const UInt128 square = static_cast<UInt128>(sum_low) * sum_low;
    const UInt128 square_high = (static_cast<UInt128>(sum_high * sum_high) << 64) +
                                (static_cast<UInt128>(sum_low) * sum_high << 1) +
                                static_cast<std::uint64_t>(square >> 64);
    const auto n_squares_low = static_cast<std::uint64_t>(low), square_low = static_cast<std::uint64_t>(square);
    return {n_squares_low - square_low, high - square_high - (n_squares_low < square_low ? 1 : 0)};
  }

  // In twice the precision of a double, and normalized. The error is 0 for numbers of up to 105 bits.
  REDUCED_HD static TwoDoubles Rounded(const Wide& x) {
    const std::uint64_t words[] = {static_cast<std::uint64_t>(x.high >> 64), static_cast<std::uint64_t>(x.high), x.low};
    TwoDoubles all;
    double scale = 0x1p160;  // of each half of a word, which a double holds
    REDUCED_UNROLL
    for (int i = 0; i < 6; ++i, scale *= 0x1p-32) {
      const auto half = static_cast<std::uint32_t>(words[i / 2] >> (i % 2 == 0 ? 32 : 0));
      all.error += std::fabs(AddToTwo(half * scale, &all.value, &all.rest));
    }
    all.error *= 1 + 0x1p-20;  // how it was added up
    return Normalized(all);
  }
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_QUICK_WIDE_MOMENTS_H_
