// Folds of quick_folds.h: sums with sums of squares, from which come variances, their
// roots and norms.
//
// Both are kept as two doubles, or as integers of up to 32 bits in as many bits as they take (quick_wide_moments.h has
// those of 64 bits), and the answers computed in twice the precision of a double. An answer is only known if its error
// leaves one double to round to.
#ifndef REDUCED_KERNELS_CUDA_QUICK_MOMENTS_H_
#define REDUCED_KERNELS_CUDA_QUICK_MOMENTS_H_

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/quick_sums.h"

namespace reduced {

template <class T>
struct QuickFloatMoments {
  using Float = T;
  static constexpr bool kTakesManyRegisters = true;
  using Sum = QuickFloatSum<T>;
  using Word = typename Sum::Word;

  Sum sums;
  double squares = 0;
  double squares_rest = 0;
  double squares_lost = 0;

  REDUCED_HD static Word Padding(Word first, const QuickElements& of) { return Sum::Padding(first, of); }

  template <int kCount, class Position>
  REDUCED_HD void Add(const QuickTile<Word, kCount>& x, int n, Position position, const QuickElements& of) {
    if (AddClose(x)) return;
    sums.Add(x, n, position, of);
    if constexpr (std::is_same_v<T, double>) {
      REDUCED_UNROLL
      for (int i = 0; i < kCount; ++i) AddSquare(Sum::Value(x[i]));
    } else {
      *this = SquaredOneByOne(*this, x, n);
    }
  }

  // As those of the sums; here there may be a rest of the squares.
  REDUCED_HD bool plain() const { return sums.plain() && squares_lost == 0; }
  template <class Across>
  REDUCED_HD void MergePlain(Across across) {
    sums.MergePlain(across);
    const double rest = across(squares_rest);
    AddOne(across(squares));
    AddRest(rest);
  }

  REDUCED_HD void Merge(const QuickFloatMoments& other) {
    sums.Merge(other.sums);
    AddOne(other.squares);
    AddOne(other.squares_rest);
    squares_lost += other.squares_lost;
  }

  REDUCED_HD bool Finish(const QuickAnswer* answers, int ops, std::int64_t output, const QuickElements& of) const {
    const SpecialValues specials = sums.specials(of);
    if (!specials.any() && !(squares - squares == 0 && sums.sum - sums.sum == 0)) return false;  // overflow
    const std::int64_t counted = of.count - (of.omit_nan ? sums.nans : 0);
    return StoreEachAnswer(answers, ops, output, sums.nans, of, [&](const QuickAnswer& answer) {
      if (answer.op == Op::kSum || answer.op == Op::kMean) return sums.Finish(&answer, 1, output, of);
      double value = 0;
      if (specials.any()) {
        value = SpecialAnswer(answer.op, specials);
      } else if (!KnownAnswer(answer.op, sums.two(), {squares, squares_rest, squares_lost}, counted, of.ddof, &value)) {
        return false;
      }
      StoreAnswer(answer, output, value);
      return true;
    });
  }

 private:
  // Adds elements whose exponents are so close that f64 adds them, and what two-sum takes from the sum of their
  // squares, without rounding; or, of 16-bit floats, the squares themselves. Of f64 that is what two-sum takes from
  // either sum; what squares lose when they are rounded is added up with a bound on what is lost of that. False: they
  // are not close, and nothing is added.
  template <int kCount>
  REDUCED_HD bool AddClose(const QuickTile<Word, kCount>& x) {
    constexpr int kSignificant = FloatFormat<T>::kSignificant, kLog = Sum::template kLog2<kCount>;
    constexpr bool kPlain = kSignificant <= 11, kDouble = std::is_same_v<T, double>;
    constexpr int kMostApart = kPlain    ? (53 - 2 * kSignificant - kLog) / 2
                               : kDouble ? (52 - 2 * kLog) / 2
                                         : 53 - kSignificant - kLog;
    constexpr int kLeast = kDouble ? 1023 - 480 : 0;  // whose squares, and what they lose, do not underflow
    if (!Sum::template AreClose<kMostApart, kLeast>(x)) return false;
    double total = -0.0, taken = 0, square_total = 0, square_taken = 0, left = 0, lefts = 0;
    REDUCED_UNROLL
    for (int i = 0; i < kCount; ++i) {
      const double value = Sum::Value(x[i]);
      const double square = value * value;
      if constexpr (kDouble) {
        AddToSum(value, &total, &taken);
        const double more = std::fma(value, value, -square);
        left += more;
        lefts += std::fabs(more);
      } else {
        total += value;
      }
      if constexpr (kPlain) {
        square_total += square;
      } else {
        AddToSum(square, &square_total, &square_taken);
      }
    }
    if (kDouble && !(square_total - square_total == 0)) return false;  // it has overflowed
    sums.AddOne(total);
    AddOne(square_total);
    if constexpr (!kPlain) AddRest(square_taken);
    if constexpr (kDouble) {
      sums.AddRest(taken);
      AddRest(left);
      squares_lost += (kCount - 1) * 0x1p-53 * (1 + 0x1p-40) * lefts;  // by as many additions
    }
    return true;
  }
  template <int kCount>
  REDUCED_SELDOM static QuickFloatMoments SquaredOneByOne(QuickFloatMoments fold, QuickTile<Word, kCount> tile, int n) {
    for (int i = 0; i < n; ++i) fold.AddSquare(Sum::Value(tile[i]));
    return fold;
  }
  REDUCED_HD void AddOne(double x) { squares_lost += std::fabs(AddToTwo(x, &squares, &squares_rest)); }
  REDUCED_HD void AddRest(double x) {
    double more = 0;
    AddToSum(x, &squares_rest, &more);
    squares_lost += std::fabs(more);
  }
  // f64 holds the square of other floats.
  REDUCED_HD void AddSquare(double x) {
    if (!(x - x == 0)) return;  // the sums know
    const double square = x * x;
    AddOne(square);
    if constexpr (std::is_same_v<T, double>) {
      AddOne(std::fma(x, x, -square));
      if (std::fabs(x) < 0x1p-480 && x != 0) squares_lost += 0x1p-960;  // its square underflows, or what is left of it
    }
  }
};

template <int kBytes>
struct QuickIntegerMoments {
  static_assert(kBytes <= 4);
  static constexpr bool kTakesManyRegisters = true;
  using Word = WordOfBytes<kBytes>;

  std::int64_t sum = 0;
  std::uint64_t squares = 0;
  std::conditional_t<kBytes == 4, std::uint64_t, char> high = 0;  // 64 more bits of `squares`

  REDUCED_HD static Word Padding(Word /*first*/, const QuickElements& of) { return static_cast<Word>(of.flip); }

  template <int kCount, class Position>
  REDUCED_HD void Add(const QuickTile<Word, kCount>& x, int /*n*/, Position, const QuickElements& of) {
    const auto flip = static_cast<std::int64_t>(of.flip);
    if constexpr (kBytes == 4) {
      REDUCED_UNROLL
      for (int i = 0; i < kCount; ++i) {
        const std::int64_t value = static_cast<std::int32_t>(x[i]) + flip;
        sum += value;
        AddSquares(static_cast<std::uint64_t>(value) * static_cast<std::uint64_t>(value), 0);
      }
    } else {  // of the words first, which are `flip` less
      std::int32_t total = 0;
      std::int64_t square_total = 0;
      TotalsOf(x, &total, &square_total);
      sum += total + kCount * flip;
      squares += static_cast<std::uint64_t>(square_total + 2 * flip * total + kCount * flip * flip);
    }
  }

  REDUCED_HD void Merge(const QuickIntegerMoments& other) {
    sum += other.sum;
    AddSquares(other.squares, other.high);
  }

  REDUCED_HD bool Finish(const QuickAnswer* answers, int ops, std::int64_t output, const QuickElements& of) const {
    // Each as two doubles, which hold 106 bits.
    const auto sum_value = static_cast<double>(sum);
    if (std::fabs(sum_value) >= 0x1p62) return false;
    const auto sum_rest = static_cast<double>(sum - static_cast<std::int64_t>(sum_value));
    auto all = UInt128{squares};
    if constexpr (kBytes == 4) all |= UInt128{high} << 64;
    if (all >> 106 != 0) return false;
    const TwoDoubles two = TwoDoublesOf(all);
    return StoreEachAnswer(answers, ops, output, 0, of, [&](const QuickAnswer& answer) {
      if (answer.op == Op::kSum) {
        StoreAnswer(answer, output, sum);
        return true;
      }
      if (answer.op == Op::kSumSquares) {
        return StoreInteger(answer, output, static_cast<std::uint64_t>(all), all >> 64 == 0, false, true, of);
      }
      double value;
      if (!KnownAnswer(answer.op, {sum_value, sum_rest, 0}, two, of.count, of.ddof, &value)) return false;
      StoreAnswer(answer, output, value);
      return true;
    });
  }

 private:
  // Of up to 16 signed words of up to 16 bits, and of their squares.
  template <int kCount>
  REDUCED_HD static void TotalsOf(const QuickTile<Word, kCount>& x, std::int32_t* total, std::int64_t* square_total) {
    static_assert(kCount <= 16);
#ifdef __CUDA_ARCH__
    if constexpr (kBytes == 1 && kCount % 4 == 0) {
      int few = 0, squares_of_few = 0;
      REDUCED_UNROLL
      for (const std::uint32_t pack : x.pack) {
        few = TotalOfPack<1>(pack, few);
        squares_of_few = __dp4a(static_cast<int>(pack), static_cast<int>(pack), squares_of_few);
      }
      *total = few;
      *square_total = squares_of_few;
    } else
#endif
    {
      REDUCED_UNROLL
      for (int i = 0; i < kCount; ++i) {
        const std::int32_t word = static_cast<std::make_signed_t<Word>>(x[i]);
        *total += word;
        *square_total += std::int64_t{word} * word;
      }
    }
  }
  REDUCED_HD void AddSquares(std::uint64_t low, std::uint64_t more) {
    squares += low;
    if constexpr (kBytes == 4) high += more + (squares < low ? 1 : 0);
  }
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_QUICK_MOMENTS_H_
