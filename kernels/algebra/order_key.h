// Order keys: integers that compare as the elements do, -0 below +0. The keys of NaNs lie beyond those of the
// infinities, on the side of the NaN's sign.
#ifndef REDUCED_KERNELS_ALGEBRA_ORDER_KEY_H_
#define REDUCED_KERNELS_ALGEBRA_ORDER_KEY_H_

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/float_format.h"
#include "kernels/algebra/portable.h"

namespace reduced {

// From the bits of an element, as a signed integer, to its key and back: a negative float has the bits of `fold`
// inverted, which are all but the sign. Integers have none.
template <class Key>
REDUCED_HD Key FoldedKey(Key bits, Key fold) {
  return static_cast<Key>(bits ^ ((bits >> (8 * sizeof(Key) - 1)) & fold));
}

template <class T>
struct OrderKey {  // integers: themselves
  using Type = T;
  REDUCED_HD static Type Of(T x) { return x; }
};
template <>
struct OrderKey<Bool> {
  using Type = std::uint8_t;
  REDUCED_HD static Type Of(Bool x) { return ToInteger(x); }
};
template <>
struct OrderKey<Half> {
  using Type = std::int16_t;
  REDUCED_HD static Type Of(Half x) { return FoldedKey(static_cast<Type>(x.bits), std::numeric_limits<Type>::max()); }
};
template <>
struct OrderKey<BFloat16> {
  using Type = std::int16_t;
  REDUCED_HD static Type Of(BFloat16 x) { return OrderKey<Half>::Of(Half{x.bits}); }
};
template <>
struct OrderKey<F8E4M3> {
  using Type = std::int8_t;
  REDUCED_HD static Type Of(F8E4M3 x) { return FoldedKey(static_cast<Type>(x.bits), std::numeric_limits<Type>::max()); }
};
template <>
struct OrderKey<F8E5M2> {
  using Type = std::int8_t;
  REDUCED_HD static Type Of(F8E5M2 x) { return OrderKey<F8E4M3>::Of(F8E4M3{x.bits}); }
};
template <>
struct OrderKey<F8E8M0> {  // has no sign
  using Type = std::uint8_t;
  REDUCED_HD static Type Of(F8E8M0 x) { return x.bits; }
};
template <>
struct OrderKey<float> {
  using Type = std::int32_t;
  REDUCED_HD static Type Of(float x) {
#ifdef __CUDA_ARCH__
    const Type bits = __float_as_int(x);
#else
    const auto bits = std::bit_cast<Type>(x);
#endif
    return FoldedKey(bits, std::numeric_limits<Type>::max());
  }
};
template <>
struct OrderKey<double> {
  using Type = std::int64_t;
  REDUCED_HD static Type Of(double x) {
#ifdef __CUDA_ARCH__
    const Type bits = __double_as_longlong(x);
#else
    const auto bits = std::bit_cast<Type>(x);
#endif
    return FoldedKey(bits, std::numeric_limits<Type>::max());
  }
};

// The bits of the element that has the key.
template <class T>
REDUCED_HD auto BitsOfKey(typename OrderKey<T>::Type key) {
  if constexpr (kIsFloat<T> && std::is_signed_v<decltype(key)>) {
    return FoldedKey(key, std::numeric_limits<typename OrderKey<T>::Type>::max());
  } else {
    return key;
  }
}

// The key of +infinity, which is its bits; of a type without infinities that of the largest number.
template <class T>
inline constexpr auto kInfinityKey = static_cast<typename OrderKey<T>::Type>(FloatFormat<T>::kInfinity);

// The key as ExtremaState holds it: in 64 bits, u64 with its top bit flipped so that it compares as signed.
template <class Key>
REDUCED_HD std::int64_t WidenKey(Key key) {
  if constexpr (std::is_same_v<Key, std::uint64_t>) {
    return static_cast<std::int64_t>(key ^ (std::uint64_t{1} << 63));
  } else {
    return static_cast<std::int64_t>(key);
  }
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_ALGEBRA_ORDER_KEY_H_
