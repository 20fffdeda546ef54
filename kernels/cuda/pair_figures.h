// What compare (folds/compare.h) knows of pairs of elements of one dtype, but for the sum of squared distances of
// floats. On the host and on a CUDA device, by numbers of which no operation is contracted.
#ifndef REDUCED_KERNELS_CUDA_PAIR_FIGURES_H_
#define REDUCED_KERNELS_CUDA_PAIR_FIGURES_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/float_format.h"
#include "kernels/algebra/portable.h"
#include "kernels/folds/compare.h"

namespace reduced {

struct PairRules {
  double rtol = 0;
  double atol = 0;
  bool equal_nan = false;
  bool omits_nans = false;
  bool is_signed = false;  // of integers
  bool is_bool = false;
};

enum PairCount {
  kMismatched,
  kOfOtherBits,
  kOmitted,          // with a NaN that is left out; in no other count
  kUndefined,        // other pairs with a NaN that do not match
  kInfinite,         // with an infinity, unequal
  kEqualInfinities,  // with two equal ones
  kPairCounts
};

// What some pairs have, in the memory of the device. Records are those of ComparisonRecord.
struct ComparedPairs {
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  struct Record {
    std::uint64_t rank = kNone;  // 0 of a mismatch; else the inverse of the figure's bits
    std::uint64_t index = kNone;
    std::uint64_t x = 0;  // the bits of the elements
    std::uint64_t y = 0;
  };
  unsigned long long count[kPairCounts] = {};
  Record record[kComparisonRecords] = {};
  unsigned long long squares[4] = {};  // of integers: the sum of squared distances in digits of 32 bits, not carried
};

// What a thread knows of pairs, whose indexes ascend. T: a float of 16 bits or more, or an unsigned integer, which has
// the bits of an integer of that size.
template <class T>
class PairFigures {
 public:
  // Of finite elements with equal bits.
  REDUCED_HD void AddEqual(std::int64_t index) {
    if (abs_at_ >= 0) return;
    abs_ = rel_ = 0;
    ulp_ = 0;
    abs_at_ = rel_at_ = ulp_at_ = index;
  }

  // True: the squared distance is neither 0 nor infinite, and was not added.
  REDUCED_HD bool Add(T x, T y, std::int64_t index, const PairRules& rules) {
    if constexpr (kIsFloat<T>) {
      return AddFloats(x, y, index, rules);
    } else {
      AddIntegers(x, y, index, rules);
      return false;
    }
  }

  unsigned count[kPairCounts] = {};
  static constexpr int kDigits = sizeof(T) <= 2 ? 1 : static_cast<int>(sizeof(T)) / 2;
  std::uint64_t squares[kDigits] = {};

  REDUCED_HD ComparedPairs::Record record(int which) const {
    const bool of_integers = !kIsFloat<T>;  // whose distances are their steps
    if (which == static_cast<int>(ComparisonRecord::kFirst)) return Found(0, first_);
    if (which == static_cast<int>(ComparisonRecord::kRel)) return Found(RankOf(rel_), rel_at_);
    const bool abs = which == static_cast<int>(ComparisonRecord::kAbs) || of_integers;
    return abs ? Found(RankOf(abs_), abs_at_) : Found(RankOf(static_cast<double>(ulp_)), ulp_at_);
  }

 private:
  using Steps = std::conditional_t<sizeof(T) == 8, double, std::int64_t>;  // compared as doubles

  REDUCED_HD static std::uint64_t RankOf(double figure) { return ~std::bit_cast<std::uint64_t>(figure); }
  REDUCED_HD static ComparedPairs::Record Found(std::uint64_t rank, std::int64_t index) {
    if (index < 0) return {};
    return {rank, static_cast<std::uint64_t>(index)};
  }

  REDUCED_HD bool AddFloats(T x, T y, std::int64_t index, const PairRules& rules) {
    using Format = FloatFormat<T>;
    using Word = typename Format::Word;
    using Signed = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>;
    using Unsigned = std::make_unsigned_t<Signed>;
    constexpr Word kMagnitude = static_cast<Word>(~Word{0}) >> 1;
    constexpr Signed kInfinity{Format::kInfinity};
    const Word p = std::bit_cast<Word>(x), q = std::bit_cast<Word>(y);
    const auto of_x = static_cast<Signed>(p & kMagnitude), of_y = static_cast<Signed>(q & kMagnitude);
    const bool x_nan = of_x > kInfinity, y_nan = of_y > kInfinity;
    if (x_nan || y_nan) {
      AddNan(p != q, x_nan && y_nan, index, rules);
      return false;
    }
    count[kOfOtherBits] += p != q ? 1 : 0;
    const double a = ToDouble(x), b = ToDouble(y);
    const bool infinite = of_x == kInfinity || of_y == kInfinity;
    const bool equal = p == q || (of_x | of_y) == 0;
    if (infinite) {
      count[kInfinite] += equal ? 0 : 1;
      count[kEqualInfinities] += equal ? 1 : 0;
    }
    // Steps from 0 to the next value and so on, with the sign of the element.
    const Signed from = p > kMagnitude ? -of_x : of_x, to = q > kMagnitude ? -of_y : of_y;
    const Unsigned steps = from < to ? static_cast<Unsigned>(to) - static_cast<Unsigned>(from)
                                     : static_cast<Unsigned>(from) - static_cast<Unsigned>(to);
    AddDistance(equal ? 0 : std::fabs(a - b), std::fabs(b), equal, infinite, index, rules);
    if (static_cast<Steps>(steps) > ulp_) {
      ulp_ = static_cast<Steps>(steps);
      ulp_at_ = index;
    }
    return !equal && !infinite;
  }

  REDUCED_HD void AddNan(bool differ, bool both, std::int64_t index, const PairRules& rules) {
    if (rules.omits_nans) {
      ++count[kOmitted];
      return;
    }
    count[kOfOtherBits] += differ ? 1 : 0;
    if (rules.equal_nan && both) return;
    ++count[kUndefined];
    AddMismatch(index);
  }

  // Of 32 bits in fewer instructions.
  REDUCED_HD static double DoubleOf(std::uint64_t x) {
    return sizeof(T) == 8 ? static_cast<double>(x) : static_cast<double>(static_cast<std::uint32_t>(x));
  }

  REDUCED_HD void AddIntegers(T x, T y, std::int64_t index, const PairRules& rules) {
    if (rules.is_bool) {
      x = x != 0;
      y = y != 0;
    }
    count[kOfOtherBits] += x != y ? 1 : 0;
    // Inverting the sign makes unsigned numbers of them that are as far from each other.
    const auto sign = static_cast<T>(rules.is_signed ? T{1} << (8 * sizeof(T) - 1) : T{0});
    const auto of_x = static_cast<T>(x ^ sign), of_y = static_cast<T>(y ^ sign);
    const std::uint64_t distance = of_x < of_y ? T(of_y - of_x) : T(of_x - of_y);
    const std::uint64_t magnitude = (y & sign) != 0 ? T(T{0} - y) : y;
    AddDistance(DoubleOf(distance), DoubleOf(magnitude), distance == 0, false, index, rules);
    if constexpr (sizeof(T) <= 2) {
      squares[0] += distance * distance;
    } else if constexpr (sizeof(T) == 4) {
      const std::uint64_t square = distance * distance;
      squares[0] += static_cast<std::uint32_t>(square);
      squares[1] += square >> 32;
    } else {
      const UInt128 square = static_cast<UInt128>(distance) * distance;
      for (int i = 0; i < kDigits; ++i) squares[i] += static_cast<std::uint32_t>(square >> (32 * i));
    }
  }

  REDUCED_HD void AddMismatch(std::int64_t index) {
    ++count[kMismatched];
    if (first_ < 0) first_ = index;
  }

  // Without contraction: a tolerance is rounded twice, as in NumPy. `of_y`: |y|.
  REDUCED_HD void AddDistance(double distance, double of_y, bool equal, bool infinite, std::int64_t index,
                              const PairRules& rules) {
    const double tolerance = rules.atol + rules.rtol * of_y;
    if (!equal && (infinite || !(distance <= tolerance))) AddMismatch(index);
    if (distance > abs_) {
      abs_ = distance;
      abs_at_ = index;
    }
    // A quotient that is greater than another number has a dividend of at least their product, rounded.
    if (distance < rel_ * of_y || (equal && rel_ >= 0)) return;
    const double infinity = std::bit_cast<double>(std::uint64_t{FloatFormat<double>::kInfinity});
    const double figure = equal ? 0 : of_y == 0 || distance == infinity ? infinity : distance / of_y;
    if (figure > rel_) {
      rel_ = figure;
      rel_at_ = index;
    }
  }

  double abs_ = -1, rel_ = -1;  // the greatest; -1: of no pair
  Steps ulp_ = -1;
  std::int64_t first_ = -1, abs_at_ = -1, rel_at_ = -1, ulp_at_ = -1;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_PAIR_FIGURES_H_
