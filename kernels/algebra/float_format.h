// The formats of the float dtypes, and the conversion to them. (ToDouble, in dtype.h, is the way back.)
#ifndef REDUCED_KERNELS_ALGEBRA_FLOAT_FORMAT_H_
#define REDUCED_KERNELS_ALGEBRA_FLOAT_FORMAT_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/algebra/dtype.h"

namespace reduced {

// IEEE 754's parameters of a float type: a sign, an exponent with that bias, and a fraction of so many bits.
template <class W, int kFractionBits, int kExponentBias>
struct FloatFormatOf {
  using Word = W;  // of its size
  static constexpr int kFraction = kFractionBits;
  static constexpr int kSignificant = kFractionBits + 1;  // with the bit that is not stored
  static constexpr int kBias = kExponentBias;
  static constexpr Word kInfinity = static_cast<Word>(Word{2 * kExponentBias + 1} << kFractionBits);  // its bits
};

template <class T>
struct FloatFormat;
template <>
struct FloatFormat<Half> : FloatFormatOf<std::uint16_t, 10, 15> {};
template <>
struct FloatFormat<BFloat16> : FloatFormatOf<std::uint16_t, 7, 127> {};
template <>
struct FloatFormat<float> : FloatFormatOf<std::uint32_t, 23, 127> {};
template <>
struct FloatFormat<double> : FloatFormatOf<std::uint64_t, 52, 1023> {};

// The float of type T that is nearest to x, with ties to even; beyond the largest number an infinity.
template <class T>
T FromDouble(double x) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(x);
  } else {
    using Format = FloatFormat<T>;
    using Word = typename Format::Word;
    constexpr int kFraction = Format::kFraction;
    const auto bits = std::bit_cast<std::uint64_t>(x);
    const auto sign = static_cast<int>(bits >> (64 - 8 * sizeof(Word)) & (std::uint64_t{1} << (8 * sizeof(Word) - 1)));
    if (std::isnan(x)) return T{static_cast<Word>(sign | Format::kInfinity | 1 << (kFraction - 1))};
    // Subnormal numbers share the lowest exponent.
    const int exponent = std::max(static_cast<int>(bits >> 52 & 0x7ff) - 1023, 1 - Format::kBias);
    if (exponent > Format::kBias) return T{static_cast<Word>(sign | Format::kInfinity)};
    // How often x has the last place at this exponent: adding 2^52 leaves no bits for less than 1, and so rounds it.
    const auto last_place = std::bit_cast<double>(static_cast<std::uint64_t>(1023 + exponent - kFraction) << 52);
    const auto places = static_cast<Word>(std::bit_cast<std::uint64_t>(std::fabs(x) / last_place + 0x1p52));
    // A normal number's places have the bit that is not stored, which is 1 in the exponent; what rounds up to a power
    // of 2 carries into the exponent, and beyond the largest number to infinity.
    return T{static_cast<Word>(sign | (((exponent + Format::kBias - 1) << kFraction) + places))};
  }
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_ALGEBRA_FLOAT_FORMAT_H_
