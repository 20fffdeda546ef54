// What a thread knows of an output of ops about two arrays, or of a part of it, in registers, and how that becomes an
// answer: sums of terms (exact/terms.h) as two doubles with a bound on what was lost, as sums of one array have them
// (quick_sums.h). For the device, and for the host where a device is simulated.
//
// A product of elements of up to 32 bits is exact in f64; one of f64 is what it rounds to and, by fma, what it rounds
// off. Where the exponents of a few pairs are close, the products of these are added up by one two-sum each, whose
// rounding errors add up without rounding. Answer() returns false if the bound leaves two doubles to round to: then the
// output is to be added up by pair_sums.h.
#ifndef REDUCED_KERNELS_CUDA_PAIR_FOLDS_H_
#define REDUCED_KERNELS_CUDA_PAIR_FOLDS_H_

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/algebra/float_format.h"
#include "kernels/algebra/op.h"
#include "kernels/cuda/quick_folds.h"
#include "kernels/exact/two_doubles_algebra.h"

namespace reduced {

// The ops that one fold answers, and so one read: of the sums of y and x y; of x, y, x y, x^2 and y^2; of |x - y| and
// (x - y)^2.
enum class PairFamily : std::uint8_t { kMeans, kMoments, kDistances };

// What answers depend on besides the sums.
struct PairQuestion {
  std::int64_t count = 0;  // pairs of an output
  std::int64_t ddof = 0;
  bool omit_nan = false;
};

template <class X, PairFamily kFamily>
struct PairFold {
  using T = X;
  static constexpr bool kF64 = std::is_same_v<T, double>;
  static constexpr bool kMeans = kFamily == PairFamily::kMeans;
  static constexpr bool kDistances = kFamily == PairFamily::kDistances;
  static constexpr int kSums = kFamily == PairFamily::kMoments ? 5 : 2;
  static constexpr int kY = kMeans ? 0 : 1, kXY = kMeans ? 1 : 2, kXX = 3, kYY = 4;  // numbers of sums; that of x is 0
  static constexpr int kTile = kF64 ? 8 : 16;                                        // pairs that are added at once

  TwoDoubles sum[kSums];
  std::uint32_t nans = 0;
  std::uint32_t open = 0;  // whether some pair is infinite, or has a term beyond the range of doubles

  // Adds pairs. Pairs of zeros add nothing, so that they are padding.
  REDUCED_HD void Add(const T (&x)[kTile], const T (&y)[kTile]) {
    const Range of_x = RangeOf(x), of_y = RangeOf(y);
    if (!AreClose(of_x, of_y)) {
      Pairs pairs;
      REDUCED_UNROLL
      for (int i = 0; i < kTile; ++i) pairs.x[i] = x[i], pairs.y[i] = y[i];
      *this = AddedOneByOne(*this, pairs);
    } else if constexpr (kDistances) {
      AddDistances(x, y);
    } else {
      if constexpr (!kMeans) AddElements(x, &sum[0]);
      AddElements(y, &sum[kY]);
      AddProducts(x, y, &sum[kXY]);
      if constexpr (!kMeans) AddProducts(x, x, &sum[kXX]);
      if constexpr (!kMeans) AddProducts(y, y, &sum[kYY]);
    }
  }

  REDUCED_HD void Merge(const PairFold& other) {
    REDUCED_UNROLL
    for (int i = 0; i < kSums; ++i) {
      AddOne(other.sum[i].value, &sum[i]);
      AddRest(other.sum[i].rest, &sum[i]);
      sum[i].error += other.sum[i].error;
    }
    nans += other.nans;
    open |= other.open;
  }

  // The answer to an op of the family, rounded once. False: it is not known.
  REDUCED_HD bool Answer(Op op, const PairQuestion& of, double* answer) const {
    *answer = BitsAs<double>(std::uint64_t{0x7ff8000000000000});
    if (open != 0) return false;
    if (nans > 0 && !of.omit_nan) return true;
    const auto n = static_cast<double>(of.count - nans);
    if constexpr (kMeans) {
      const TwoDoubles weights = KnownTwo(sum[kY]), products = KnownTwo(sum[kXY]);
      if (op != Op::kWeightedMean) return Known(products, answer);
      return IsZero(weights) || Known(Over(products, weights), answer);
    } else if constexpr (kDistances) {
      const TwoDoubles distance = KnownTwo(sum[op == Op::kDistanceL1 ? 0 : 1]);
      if (op == Op::kDistanceL1 || IsZero(distance)) return Known(distance, answer);
      const bool positive = distance.value > 0 && ErrorInRange(distance.value, 0) == 0;
      return positive && Known(RootOf(distance), answer);
    } else {
      const TwoDoubles xy = KnownTwo(sum[kXY]), xx = KnownTwo(sum[kXX]), yy = KnownTwo(sum[kYY]);
      if (op == Op::kCosine) return OverRoot(xy, xx, yy, answer);
      const TwoDoubles x = KnownTwo(sum[0]), y = KnownTwo(sum[kY]), count{n};
      const TwoDoubles spread = Minus(Times(count, xy), Times(x, y));
      if (op == Op::kCov) {
        const double left = n - static_cast<double>(of.ddof);
        return left <= 0 || Known(Over(spread, Times(count, {left})), answer);
      }
      const TwoDoubles of_x = Minus(Times(count, xx), Times(x, x));
      if (op == Op::kCorr) return OverRoot(spread, of_x, Minus(Times(count, yy), Times(y, y)), answer);
      if (IsZero(of_x)) return true;
      const TwoDoubles above = op == Op::kSlope ? spread : Minus(Times(y, xx), Times(x, xy));
      return Known(Over(above, of_x), answer);
    }
  }

 private:
  using Format = FloatFormat<T>;
  static constexpr int kDigits = Format::kSignificant;
  struct Pairs {
    T x[kTile], y[kTile];
  };
  // By how many powers of two the elements of a tile may differ, so that f64 adds them, or rounding errors of their
  // sum, without rounding. A tile has 2^4 elements at most: the sum is of kDigits + 4 bits and as many more as they
  // differ by; of f64 an error is a multiple of the last digit, and they are less than that of the sum times 2^3.
  static constexpr int kElementsApart = kF64 ? 45 : 53 - kDigits - 4;
  // The same of errors of a sum of products, of both factors together: products have so many digits in f64, their sum
  // is below 2^6 times the largest powers of two, and its errors, together, 2^50 times less than that.
  static constexpr int kProductsApart = 97 - (kF64 ? 52 : 2 * (kDigits - 1)) - 3;
  // Differences are exact, and so is the sum of their magnitudes; errors of a sum of their squares add up exactly.
  static constexpr int kDistancesApart = 48 - kDigits;

  // Fields of exponents. Of zeros only: a span far below zero.
  struct Range {
    int largest, least;
    bool finite;
    REDUCED_HD int span() const { return largest - least; }
  };
  REDUCED_HD static Range RangeOf(const T (&x)[kTile]) {
    constexpr int kBelow = kF64 ? 32 : 0;  // bits that only tell zero from others
    constexpr std::uint32_t kMagnitude = (std::uint32_t{1} << (8 * sizeof(T) - kBelow - 1)) - 1;
    std::uint32_t largest = 0, least_less_one = ~std::uint32_t{0};
    REDUCED_UNROLL
    for (int i = 0; i < kTile; ++i) {
      const auto bits = BitsAs<typename Format::Word>(x[i]);
      std::uint32_t magnitude = static_cast<std::uint32_t>(bits >> kBelow) & kMagnitude;
      if constexpr (kF64) magnitude |= static_cast<std::uint32_t>(bits) != 0 ? 1 : 0;
      const std::uint32_t less_one = magnitude - 1;  // of 0: the largest, so that it drops out
      largest = largest > magnitude ? largest : magnitude;
      least_less_one = least_less_one < less_one ? least_less_one : less_one;
    }
    constexpr int kFraction = Format::kFraction - kBelow;
    return {static_cast<int>(largest >> kFraction), static_cast<int>(least_less_one >> kFraction),
            largest < static_cast<std::uint32_t>(Format::kInfinity >> kBelow)};
  }
  REDUCED_HD static bool AreClose(const Range& x, const Range& y) {
    if (!x.finite || !y.finite) return false;
    if constexpr (kDistances) {
      const int largest = x.largest > y.largest ? x.largest : y.largest;
      return !kF64 && largest - (x.least < y.least ? x.least : y.least) <= kDistancesApart;
    } else {
      if constexpr (kF64) {  // no part of a product is beyond the exponents
        constexpr int kLeast = 2 * Format::kBias - 960, kMost = 2 * Format::kBias + 1000;
        const int least = kMeans ? x.least + y.least : 2 * (x.least < y.least ? x.least : y.least);
        const int most = kMeans ? x.largest + y.largest : 2 * (x.largest > y.largest ? x.largest : y.largest);
        if (least < kLeast || most > kMost) return false;
      }
      if constexpr (kMeans) return y.span() <= kElementsApart && x.span() + y.span() <= kProductsApart;
      constexpr int kApart = kElementsApart < kProductsApart / 2 ? kElementsApart : kProductsApart / 2;
      return x.span() <= kApart && y.span() <= kApart;
    }
  }

  REDUCED_HD static void AddOne(double x, TwoDoubles* to) {
    to->error += std::fabs(AddToTwo(x, &to->value, &to->rest));
  }
  // What should be much smaller than the sum: fewer operations.
  REDUCED_HD static void AddRest(double x, TwoDoubles* to) {
    double more = 0;
    AddToSum(x, &to->rest, &more);
    to->error += std::fabs(more);
  }
  // The sum of rounded-off parts, whose magnitudes add up to `magnitudes`.
  REDUCED_HD static void AddTail(double tail, double magnitudes, TwoDoubles* to) {
    AddRest(tail, to);
    to->error += magnitudes * 0x1p-48;
  }

  REDUCED_HD static void AddElements(const T (&x)[kTile], TwoDoubles* to) {
    double total = ToDouble(x[0]), taken = 0;
    REDUCED_UNROLL
    for (int i = 1; i < kTile; ++i) {
      if constexpr (kF64) {
        AddToSum(ToDouble(x[i]), &total, &taken);
      } else {
        total += ToDouble(x[i]);
      }
    }
    AddOne(total, to);
    if constexpr (kF64) AddRest(taken, to);
  }

  REDUCED_HD static void AddProducts(const T (&x)[kTile], const T (&y)[kTile], TwoDoubles* to) {
    double total = 0, taken = 0, tail = 0, magnitudes = 0;
    REDUCED_UNROLL
    for (int i = 0; i < kTile; ++i) {
      const double a = ToDouble(x[i]), b = ToDouble(y[i]), product = a * b;
      if (i == 0) {
        total = product;
      } else {
        AddToSum(product, &total, &taken);
      }
      if constexpr (kF64) {
        const double rest = std::fma(a, b, -product);
        tail += rest;
        magnitudes += std::fabs(rest);
      }
    }
    AddOne(total, to);
    AddRest(taken, to);
    if constexpr (kF64) AddTail(tail, magnitudes, to);
  }

  REDUCED_HD void AddDistances(const T (&x)[kTile], const T (&y)[kTile]) {
    double distances = 0, total = 0, taken = 0, tail = 0, magnitudes = 0;
    REDUCED_UNROLL
    for (int i = 0; i < kTile; ++i) {
      const double distance = ToDouble(x[i]) - ToDouble(y[i]), square = distance * distance;
      distances += std::fabs(distance);
      AddToSum(square, &total, &taken);
      const double rest = std::fma(distance, distance, -square);
      tail += rest;
      magnitudes += std::fabs(rest);
    }
    AddOne(distances, &sum[0]);
    AddOne(total, &sum[1]);
    AddRest(taken, &sum[1]);
    AddTail(tail, magnitudes, &sum[1]);
  }

  REDUCED_SELDOM static PairFold AddedOneByOne(PairFold fold, Pairs pairs) {
    for (int i = 0; i < kTile; ++i) fold.AddAny(ToDouble(pairs.x[i]), ToDouble(pairs.y[i]));
    return fold;
  }
  REDUCED_HD void AddAny(double x, double y) {
    if (x != x || y != y) {
      ++nans;
    } else if (!(x - x == 0 && y - y == 0)) {
      open = 1;
    } else if constexpr (kDistances) {
      const double distance = x - y, b = x - distance;
      const double left = (x - (distance + b)) + (b - y);  // x - y is distance + left
      AddOne(std::fabs(distance), &sum[0]);
      AddOne(distance < 0 ? -left : left, &sum[0]);
      AddProduct(distance, distance, &sum[1]);
      if (left == 0) return;
      AddOne(2 * distance * left, &sum[1]);
      sum[1].error += std::fabs(distance * left) * 0x1p-50 + left * left;
    } else {
      if constexpr (!kMeans) AddOne(x, &sum[0]);
      AddOne(y, &sum[kY]);
      AddProduct(x, y, &sum[kXY]);
      if constexpr (!kMeans) AddProduct(x, x, &sum[kXX]);
      if constexpr (!kMeans) AddProduct(y, y, &sum[kYY]);
    }
  }
  REDUCED_HD void AddProduct(double x, double y, TwoDoubles* to) {
    const double product = x * y, magnitude = std::fabs(product);
    if (x != 0 && y != 0 && !(magnitude > 0x1p-960 && magnitude < 0x1p1000)) open = 1;
    AddOne(product, to);
    AddOne(std::fma(x, y, -product), to);
  }

  // The answer is x. False: its error leaves two doubles.
  REDUCED_HD static bool Known(const TwoDoubles& x, double* answer) {
    if (x.error == 0) {
      *answer = x.value + x.rest + 0.0;  // no sum is -0
      return x.value - x.value == 0;
    }
    double rounded;
    if (!RoundTwo(x, &rounded)) return false;
    *answer = rounded + 0.0;
    return true;
  }
  // x over the root of a b, NaN where one of these is not positive.
  REDUCED_HD static bool OverRoot(const TwoDoubles& x, const TwoDoubles& a, const TwoDoubles& b, double* answer) {
    if (IsZero(a) || IsZero(b)) return true;
    if (!(a.value > a.error && b.value > b.error)) return false;
    return Known(Over(x, RootOf(Times(a, b))), answer);
  }
};

// Which family answers an op, if one does.
constexpr bool HasPairFamily(Op op, PairFamily family) {
  switch (op) {
    case Op::kDot:
    case Op::kWeightedSum:
    case Op::kWeightedMean:
      return family == PairFamily::kMeans;
    case Op::kCov:
    case Op::kCorr:
    case Op::kSlope:
    case Op::kIntercept:
    case Op::kCosine:
      return family == PairFamily::kMoments;
    case Op::kDistanceL1:
    case Op::kDistanceL2:
      return family == PairFamily::kDistances;
    default:
      return false;
  }
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_PAIR_FOLDS_H_
