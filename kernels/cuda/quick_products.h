// Folds of quick_folds.h: products.
//
// A product of floats is a mantissa and an exponent, so that no order of the factors overflows or underflows; a few
// elements, whose product is within the range of f64 whatever they are, are multiplied first. A product of integers is
// taken modulo 2^64, and once more in f64, which tells whether 64 bits hold it.
#ifndef REDUCED_KERNELS_CUDA_QUICK_PRODUCTS_H_
#define REDUCED_KERNELS_CUDA_QUICK_PRODUCTS_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/algebra/arithmetic.h"
#include "kernels/algebra/float_format.h"
#include "kernels/cuda/quick_folds.h"

namespace reduced {

template <class T>
struct QuickFloatProduct {
  using Float = T;
  using Word = typename FloatFormat<T>::Word;
  // Elements whose product is within the range of f64. Those of f64 are split into mantissa and exponent each.
  static constexpr int kFew = std::is_same_v<T, Half> ? 16 : std::is_same_v<T, double> ? 1 : 4;

  FloatProduct product;  // of the elements that are not NaN
  std::int64_t nans = 0;

  REDUCED_HD static double Value(Word word) { return ToDouble(BitsAs<T>(word)); }
  REDUCED_HD static Word Padding(Word /*first*/, const QuickElements&) {
    return static_cast<Word>(static_cast<Word>(FloatFormat<T>::kBias) << FloatFormat<T>::kFraction);  // 1
  }

  REDUCED_HD void MultiplyBy(double factor) {
    FloatProduct by{factor, 0};
    if constexpr (kFew == 1) Normalize(by);
    Multiply(product, by);
  }

  // Adds elements, of which those after the first `n` >= 1 are padding. Positions do not matter.
  template <int kCount, class Position>
  REDUCED_HD void Add(const QuickTile<Word, kCount>& x, int n, Position, const QuickElements&) {
    constexpr int kFactors = (kCount + kFew - 1) / kFew;
    double factors[kFactors];
    bool numbers = true;
    REDUCED_UNROLL
    for (int f = 0; f < kFactors; ++f) {
      double& factor = factors[f] = Value(x[f * kFew]);
      REDUCED_UNROLL
      for (int i = f * kFew + 1; i < (f + 1) * kFew && i < kCount; ++i) factor *= Value(x[i]);
      numbers = numbers && factor == factor;
    }
    if (!numbers) {
      *this = MultipliedOneByOne(*this, x, n);
      return;
    }
    REDUCED_UNROLL
    for (const double factor : factors) MultiplyBy(factor);
  }
  // Of a tile with NaNs, or with an infinity and a zero in one factor.
  template <int kCount>
  REDUCED_SELDOM static QuickFloatProduct MultipliedOneByOne(QuickFloatProduct fold, QuickTile<Word, kCount> tile,
                                                             int n) {
    for (int i = 0; i < n; ++i) {
      const double value = Value(tile[i]);
      if (value == value) {
        fold.MultiplyBy(value);
      } else {
        ++fold.nans;
      }
    }
    return fold;
  }

  REDUCED_HD void Merge(const QuickFloatProduct& other) {
    Multiply(product, other.product);
    nans += other.nans;
  }

  REDUCED_HD bool Finish(const QuickAnswer* answers, int ops, std::int64_t output, const QuickElements& of) const {
    const bool nan = nans > 0 && !of.omit_nan;
    const double value = nan ? std::numeric_limits<double>::quiet_NaN() : ProductAnswer(product);
    return StoreEachAnswer(answers, ops, output, nans, of, [&](const QuickAnswer& answer) {
      StoreAnswer(answer, output, value);
      return true;
    });
  }
};

// Of integers and bool.
template <int kBytes>
struct QuickIntegerProduct {
  using Word = WordOfBytes<kBytes>;
  // Elements of which 64 bits hold the product.
  static constexpr int kFew = kBytes < 4 ? 4 / kBytes : 1;

  std::uint64_t product = 1;  // modulo 2^64
  // The product in f64, which tells about how large it is. NaN: infinity times 0; `product` is 0 then.
  double about = 1;

  REDUCED_HD static Word Padding(Word /*first*/, const QuickElements& of) { return static_cast<Word>(1 ^ of.flip); }

  // Adds elements, of which those after the first `n` >= 1 are padding. Positions do not matter.
  template <int kCount, class Position>
  REDUCED_HD void Add(const QuickTile<Word, kCount>& x, int /*n*/, Position, const QuickElements& of) {
    REDUCED_UNROLL
    for (int i = 0; i < kCount; i += kFew) {
      if constexpr (kBytes == 8) {
        const std::uint64_t value = x[i] ^ of.flip;
        product *= value;
        about *= of.is_unsigned ? static_cast<double>(value) : static_cast<double>(static_cast<std::int64_t>(value));
      } else {
        const std::int64_t few = ProductOfFew(x, i, of);
        product *= static_cast<std::uint64_t>(few);
        about *= static_cast<double>(few);
      }
    }
  }

  REDUCED_HD void Merge(const QuickIntegerProduct& other) {
    product *= other.product;
    about *= other.about;
  }

  REDUCED_HD bool Finish(const QuickAnswer* answers, int ops, std::int64_t output, const QuickElements& of) const {
    // Rounding is by far less than 2^-40: products that fit have at most 63 factors that aren't 1 or -1.
    const double limit = of.is_unsigned ? 0x1p64 : 0x1p63, size = std::fabs(about);
    const bool fits = !(size >= limit * (1 - 0x1p-40)), is_open = !fits && size <= limit * (1 + 0x1p-40);
    if (is_open && !of.wraps) return false;
    return StoreEachAnswer(answers, ops, output, 0, of, [&](const QuickAnswer& answer) {
      return StoreInteger(answer, output, product, fits, about < 0, of.is_unsigned, of);
    });
  }

 private:
  template <int kCount>
  REDUCED_HD static std::int64_t ProductOfFew(const QuickTile<Word, kCount>& x, int first, const QuickElements& of) {
    const auto value = [&](int i) {
      using Value = std::conditional_t<kBytes == 4, std::int64_t, std::int32_t>;
      const auto word = static_cast<Value>(static_cast<std::make_signed_t<Word>>(x[i < kCount ? i : 0]));
      return i < kCount ? word + static_cast<Value>(of.flip) : 1;
    };
    if constexpr (kBytes == 1) {
      return std::int64_t{value(first) * value(first + 1)} * (value(first + 2) * value(first + 3));
    } else if constexpr (kBytes == 2) {
      return std::int64_t{value(first)} * value(first + 1);
    } else {
      return value(first);
    }
  }
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_QUICK_PRODUCTS_H_
