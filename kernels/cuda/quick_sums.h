// Folds of quick_folds.h: sums, also of absolute values, and means.
//
// Sums of floats are two doubles and a bound on what they lost (exact/two_doubles.h, which names the sources). A few
// elements whose exponents are close are first added to each other: f64 does not round that, or, of elements of f64,
// what rounding takes is added up, which is not rounded. NaNs and infinities are counted apart.
#ifndef REDUCED_KERNELS_CUDA_QUICK_SUMS_H_
#define REDUCED_KERNELS_CUDA_QUICK_SUMS_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/algebra/float_format.h"
#include "kernels/cuda/quick_folds.h"
#include "kernels/exact/known_answers.h"

namespace reduced {

// Sums and means of floats.
template <class T>
struct QuickFloatSum {
  using Float = T;
  using Word = typename FloatFormat<T>::Word;
  static constexpr bool kTakesAbsolute = true;
  enum : std::uint32_t { kPositiveInfinity = 1, kNegativeInfinity = 2 };

  double sum = -0.0;  // to which -0 adds -0, and +0 adds +0
  double rest = 0;
  double lost = 0;  // at most, from sum + rest
  std::uint32_t flags = 0;
  std::uint32_t nans = 0;

  REDUCED_HD static double Value(Word word) { return ToDouble(BitsAs<T>(word)); }
  // Padding for positions beyond the row, whose first element is `first`.
  REDUCED_HD static Word Padding(Word /*first*/, const QuickElements&) {
    return static_cast<Word>(Word{1} << (8 * sizeof(Word) - 1));  // -0
  }

  REDUCED_HD void AddOne(double x) { lost += std::fabs(AddToTwo(x, &sum, &rest)); }
  // Adds to the rest, which takes fewer operations: what should be much smaller than the sum.
  REDUCED_HD void AddRest(double x) {
    double more = 0;
    AddToSum(x, &rest, &more);
    lost += std::fabs(more);
  }
  REDUCED_HD void AddAny(double x) {
    if (x - x == 0) return AddOne(x);
    if (x != x) {
      ++nans;
    } else {
      flags |= x > 0 ? kPositiveInfinity : kNegativeInfinity;
    }
  }

  // Adds elements, of which those after the first `n` >= 1 are padding. Positions do not matter.
  template <int kCount, class Position>
  REDUCED_HD void Add(const QuickTile<Word, kCount>& x, int n, Position, const QuickElements&) {
    if constexpr (std::is_same_v<T, double>) {
      // If the exponents of the elements are close, what rounding takes from their sum adds up without rounding.
      double total = -0.0, taken = 0;
      REDUCED_UNROLL
      for (int i = 0; i < kCount; ++i) AddToSum(Value(x[i]), &total, &taken);
      if (AreClose<53 - 2 * kLog2<kCount>>(x) && total - total == 0) {
        AddOne(total);
        return AddRest(taken);
      }
    } else {
      double total = Value(x[0]);
      REDUCED_UNROLL
      for (int i = 1; i < kCount; ++i) total += Value(x[i]);
      if (AddedWithoutRounding(x, total)) return AddOne(total);
    }
    *this = AddedOneByOne(*this, x, n);
  }

  template <int kCount>
  REDUCED_SELDOM static QuickFloatSum AddedOneByOne(QuickFloatSum fold, QuickTile<Word, kCount> tile, int n) {
    for (int i = 0; i < n; ++i) fold.AddAny(Value(tile[i]));
    return fold;
  }

  REDUCED_HD void Merge(const QuickFloatSum& other) {
    AddOne(other.sum);
    AddOne(other.rest == 0 ? -0.0 : other.rest);  // -0 changes nothing
    lost += other.lost;
    flags |= other.flags;
    nans += other.nans;
  }

  // Whether there is nothing but a sum.
  REDUCED_HD bool plain() const { return rest == 0 && lost == 0 && (flags | nans) == 0; }
  // Merges another plain fold into a plain one: across(member) is that member of the other.
  template <class Across>
  REDUCED_HD void MergePlain(Across across) {
    AddOne(across(sum));
  }
  REDUCED_HD TwoDoubles two() const { return {sum, rest, lost}; }

  REDUCED_HD SpecialValues specials(const QuickElements& of) const {
    return {nans > 0 && !of.omit_nan, (flags & kPositiveInfinity) != 0, (flags & kNegativeInfinity) != 0};
  }

  REDUCED_HD bool Finish(const QuickAnswer* answers, int ops, std::int64_t output, const QuickElements& of) const {
    if ((flags | nans) != 0 || lost != 0 || !(sum - sum == 0)) return FinishOther(*this, answers, ops, output, of);
    return StoreEachAnswer(answers, ops, output, 0, of, [&](const QuickAnswer& answer) {
      double value = RoundedSum(sum, rest);
      if (answer.op == Op::kMean && !RoundedMean(sum, rest, of.count, &value)) return false;
      StoreAnswer(answer, output, value);
      return true;
    });
  }
  // Of elements that are not all finite, or a sum that has lost something. It does not use StoreEachAnswer: with that
  // the kernels of rows in shared memory would need 80 registers instead of 72, and an eighth fewer blocks would be
  // resident.
  REDUCED_SELDOM static bool FinishOther(QuickFloatSum fold, const QuickAnswer* answers, int ops, std::int64_t output,
                                         const QuickElements& of) {
    const std::int64_t counted = of.count - (of.omit_nan ? fold.nans : 0);
    const bool infinite = (fold.flags & (kPositiveInfinity | kNegativeInfinity)) != 0;
    const bool both = (fold.flags & kPositiveInfinity) != 0 && (fold.flags & kNegativeInfinity) != 0;
    const bool nan = both || (fold.nans > 0 && !of.omit_nan);
    double special = (fold.flags & kPositiveInfinity) != 0 ? BitsAs<double>(std::uint64_t{0x7ff0000000000000})
                                                           : BitsAs<double>(std::uint64_t{0xfff0000000000000});
    if (nan) special = BitsAs<double>(std::uint64_t{0x7ff8000000000000});
    if (!infinite && !nan && !(fold.sum - fold.sum == 0)) return false;  // it has overflowed
    for (int i = 0; i < ops; ++i) {
      const QuickAnswer& answer = answers[i];
      if (answer.op == Op::kCount || answer.op == Op::kNanCount) {
        StoreAnswer(answer, output, answer.op == Op::kCount ? counted : std::int64_t{fold.nans});
        continue;
      }
      const bool is_sum = answer.op != Op::kMean;
      double value = special;
      if (!infinite && !nan) {
        if (counted == 0) {
          value = is_sum ? 0.0 : BitsAs<double>(std::uint64_t{0x7ff8000000000000});
        } else if (!(is_sum ? KnownSum(fold.two(), &value) : KnownMean(fold.two(), counted, &value))) {
          return false;
        }
      }
      StoreAnswer(answer, output, value);
    }
    return true;
  }
  // Whether f64 adds the elements without rounding, in any order: they are finite, and those that aren't zero differ by
  // few powers of two. By their bits, as integers: magnitudes compare as those do. Multiples of 2^-24 below 2^16, as
  // all numbers of f16 are, never round.
  template <int kCount>
  REDUCED_HD static bool AddedWithoutRounding(const QuickTile<Word, kCount>& x, double total) {
    if constexpr (std::is_same_v<T, Half>) {
      return total - total == 0;
    } else {
      return AreClose<53 - FloatFormat<T>::kSignificant - kLog2<kCount>>(x);
    }
  }
  template <int kCount>
  static constexpr int kLog2 = kCount <= 1   ? 0
                               : kCount <= 2 ? 1
                               : kCount <= 4 ? 2
                               : kCount <= 8 ? 3
                                             : 4;
  // Whether they are finite, and the exponents of those that aren't zero differ by at most kMostApart and are kLeast or
  // more, as the format has them.
  template <std::uint32_t kMostApart, std::uint32_t kLeast = 0, int kCount>
  REDUCED_HD static bool AreClose(const QuickTile<Word, kCount>& x) {
    using Format = FloatFormat<T>;
    static_assert(kCount <= 16);
    constexpr int kBelow = sizeof(Word) == 8 ? 32 : 0;  // bits that only tell zero from others
    constexpr int kFraction = Format::kFraction - kBelow;
    constexpr std::uint32_t kMagnitude = (std::uint32_t{1} << (8 * sizeof(Word) - kBelow - 1)) - 1;
    std::uint32_t largest = 0, least_less_one = ~std::uint32_t{0};
    REDUCED_UNROLL
    for (int i = 0; i < kCount; ++i) {
      std::uint32_t magnitude = static_cast<std::uint32_t>(x[i] >> kBelow) & kMagnitude;
      if constexpr (kBelow > 0) magnitude |= static_cast<std::uint32_t>(x[i]) != 0 ? 1 : 0;
      const std::uint32_t less_one = magnitude - 1;  // of 0: the largest, so that it drops out
      largest = largest > magnitude ? largest : magnitude;
      least_less_one = least_less_one < less_one ? least_less_one : less_one;
    }
    const std::uint32_t least = least_less_one >> kFraction;
    return largest < Format::kInfinity >> kBelow && largest >> kFraction <= least + kMostApart && least + 1 > kLeast;
  }
};

#ifdef __CUDACC__
// total and the sum of the signed integers that are packed in 32 bits.
template <int kBytes>
__device__ __forceinline__ int TotalOfPack(std::uint32_t pack, int total) {
  if constexpr (kBytes == 1) return __dp4a(static_cast<int>(pack), 0x01010101, total);
  return __dp2a_lo(static_cast<int>(pack), 0x0101, total);
}
#endif

// Sums and means of integers and bool: in 64 bits, or in 128 those of 64 bits. Unsigned ones are taken as signed, 2^(w
// - 1) less each.
template <int kBytes>
struct QuickIntegerSum {
  using Word = WordOfBytes<kBytes>;
  using Signed = std::make_signed_t<Word>;
  static constexpr bool kTakesAbsolute = true;

  std::uint64_t sum = 0;
  std::conditional_t<kBytes == 8, std::int64_t, char> high = 0;  // 64 more bits

  REDUCED_HD static Word Padding(Word /*first*/, const QuickElements&) { return 0; }

  REDUCED_HD void AddWide(std::uint64_t low, std::int64_t more) {
    sum += low;
    if constexpr (kBytes == 8) high += more + (sum < low ? 1 : 0);
  }

  template <int kCount, class Position>
  REDUCED_HD void Add(const QuickTile<Word, kCount>& x, int /*n*/, Position, const QuickElements&) {
    if constexpr (kBytes == 8) {
      REDUCED_UNROLL
      for (int i = 0; i < kCount; ++i) {
        const auto value = static_cast<std::int64_t>(x[i]);
        AddWide(static_cast<std::uint64_t>(value), value >> 63);
      }
    } else {
      using Few = std::conditional_t<kBytes == 4, std::int64_t, std::int32_t>;  // which a few elements fit in
      sum += static_cast<std::uint64_t>(std::int64_t{TotalOf<Few>(x)});
    }
  }

  REDUCED_HD void Merge(const QuickIntegerSum& other) { AddWide(other.sum, other.high); }

  REDUCED_HD bool Finish(const QuickAnswer* answers, int ops, std::int64_t output, const QuickElements& of) const {
    if constexpr (kBytes < 8) {
      return FinishNarrow(answers, ops, output, of);
    } else {
      return FinishWide(answers, ops, output, of);
    }
  }

 private:
  // Fewer than 2^31 elements of less than 2^32 each.
  REDUCED_HD bool FinishNarrow(const QuickAnswer* answers, int ops, std::int64_t output,
                               const QuickElements& of) const {
    // Not a shift by 31 bits: where the count is the same for all threads, the assembler of CUDA 13.0 takes that for a
    // multiplication by -2^31.
    const auto total = static_cast<std::int64_t>(sum + static_cast<std::uint64_t>(of.count) * of.flip);
    return StoreEachAnswer(answers, ops, output, 0, of, [&](const QuickAnswer& answer) {
      if (answer.op != Op::kMean) {
        StoreAnswer(answer, output, total);
        return true;
      }
      const auto most = static_cast<double>(total);
      double mean;
      if (!(std::fabs(most) < 0x1p63) ||
          !RoundedMean(most, static_cast<double>(total - static_cast<std::int64_t>(most)), of.count, &mean)) {
        return false;
      }
      StoreAnswer(answer, output, mean);
      return true;
    });
  }

  REDUCED_HD bool FinishWide(const QuickAnswer* answers, int ops, std::int64_t output, const QuickElements& of) const {
    auto total = static_cast<Int128>(static_cast<UInt128>(static_cast<std::uint64_t>(high)) << 64 | sum);
    total += static_cast<Int128>(static_cast<UInt128>(static_cast<std::uint64_t>(of.count)) * of.flip);
    const bool negative = total < 0;
    const auto magnitude = static_cast<UInt128>(negative ? -total : total);
    const bool fits = magnitude <= LargestMagnitude(negative, of.is_unsigned);
    return StoreEachAnswer(answers, ops, output, 0, of, [&](const QuickAnswer& answer) {
      if (answer.op != Op::kMean) {
        return StoreInteger(answer, output, static_cast<std::uint64_t>(total), fits, negative, of.is_unsigned, of);
      }
      const TwoDoubles two = TwoDoublesOf(magnitude);  // less than 2^96
      double mean;
      if (!RoundedMean(two.value, two.rest, of.count, &mean)) return false;
      StoreAnswer(answer, output, negative ? -mean : mean);
      return true;
    });
  }

  template <class Few, int kCount>
  REDUCED_HD static Few TotalOf(const QuickTile<Word, kCount>& x) {
    Few total = 0;
#ifdef __CUDA_ARCH__
    if constexpr (kBytes <= 2 && kCount % (4 / kBytes) == 0) {  // those of a pack in an instruction
      REDUCED_UNROLL
      for (const std::uint32_t pack : x.pack) total = TotalOfPack<kBytes>(pack, total);
    } else
#endif
    {
      REDUCED_UNROLL
      for (int i = 0; i < kCount; ++i) total += static_cast<Signed>(x[i]);
    }
    return total;
  }
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_QUICK_SUMS_H_
