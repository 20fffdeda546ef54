// The formats of the float dtypes, and the conversion to them. (ToDouble, in dtype.h, is the way back.)
#ifndef REDUCED_KERNELS_ALGEBRA_FLOAT_FORMAT_H_
#define REDUCED_KERNELS_ALGEBRA_FLOAT_FORMAT_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
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
  static constexpr bool kSigned = true;
  // All numbers are below 2^kTop in magnitude, and multiples of 2^kUnit.
  static constexpr int kTop = kExponentBias + 1;
  static constexpr int kUnit = 1 - kExponentBias - kFractionBits;
  // The bits of infinity or, in a format without infinities, of the largest number: magnitudes above are NaNs.
  static constexpr Word kInfinity = static_cast<Word>(Word{2 * kExponentBias + 1} << kFractionBits);
  static constexpr Word kNan = static_cast<Word>(kInfinity | Word{1} << (kFractionBits - 1));
  static constexpr Word kBeyond = kInfinity;  // what numbers are converted to that are too large
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
template <>
struct FloatFormat<F8E5M2> : FloatFormatOf<std::uint8_t, 2, 15> {};
// Of the highest exponent only the highest fraction is no number.
template <>
struct FloatFormat<F8E4M3> : FloatFormatOf<std::uint8_t, 3, 7> {
  static constexpr int kTop = 9;
  static constexpr Word kInfinity = 0x7e, kNan = 0x7f, kBeyond = kNan;
};
// An exponent alone; that of 0 is one like others.
template <>
struct FloatFormat<F8E8M0> {
  using Word = std::uint8_t;
  static constexpr int kFraction = 0, kSignificant = 1, kBias = 127, kTop = 128, kUnit = -127;
  static constexpr bool kSigned = false;
  static constexpr Word kInfinity = 0xfe, kNan = 0xff, kBeyond = kNan;
};

// The type whose vectors stand for those of T: of 8 bits a float of 16 bits that has all of its values.
template <class T>
struct WideOf {
  using Type = T;
};
template <>
struct WideOf<F8E4M3> {
  using Type = Half;
};
template <>
struct WideOf<F8E5M2> {
  using Type = Half;
};
template <>
struct WideOf<F8E8M0> {
  using Type = BFloat16;
};

// Its dtype.
constexpr DType WideDType(DType dtype) {
  return HasKernels(dtype) ? dtype : dtype == DType::kF8E8M0 ? DType::kBF16 : DType::kF16;
}

// The float of type T that is nearest to x, with ties to even; beyond the largest number an infinity or, of a type
// without infinities, NaN, as are numbers that are not positive of a type that has no others. What is between the two
// least numbers of F8E8M0 becomes the second one, as in ml_dtypes.
template <class T>
T FromDouble(double x) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(x);
  } else {
    using Format = FloatFormat<T>;
    using Word = typename Format::Word;
    constexpr int kFraction = Format::kFraction;
    const auto bits = std::bit_cast<std::uint64_t>(x);
    if (!Format::kSigned && !(x > 0)) return T{Format::kNan};
    const auto sign = static_cast<int>(bits >> (64 - 8 * sizeof(Word)) & (std::uint64_t{1} << (8 * sizeof(Word) - 1)));
    if (std::isnan(x)) return T{static_cast<Word>(sign | Format::kNan)};
    // Subnormal numbers share the lowest exponent.
    const int exponent = std::max(static_cast<int>(bits >> 52 & 0x7ff) - 1023, 1 - Format::kBias);
    if (exponent >= Format::kTop) return T{static_cast<Word>(sign | Format::kBeyond)};
    // How often x has the last place at this exponent: adding 2^52 leaves no bits for less than 1, and so rounds it.
    const auto last_place = std::bit_cast<double>(static_cast<std::uint64_t>(1023 + exponent - kFraction) << 52);
    const auto places = static_cast<Word>(std::bit_cast<std::uint64_t>(std::fabs(x) / last_place + 0x1p52));
    // A normal number's places have the bit that is not stored, which is 1 in the exponent; what rounds up to a power
    // of 2 carries into the exponent, and beyond the largest number to infinity.
    const int magnitude = ((exponent + Format::kBias - 1) << kFraction) + places;
    return T{static_cast<Word>(sign | (magnitude > Format::kInfinity ? Format::kBeyond : magnitude))};
  }
}

// The same; absent: it would be infinite or NaN, and x is not.
template <class T>
std::optional<T> FromNumber(double x) {
  const T nearest = FromDouble<T>(x);
  const double value = ToDouble(nearest);
  if (std::isnan(value) != std::isnan(x) || std::isinf(value) != std::isinf(x)) return std::nullopt;
  return nearest;
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_ALGEBRA_FLOAT_FORMAT_H_
