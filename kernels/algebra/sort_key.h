// Sort keys: unsigned integers that compare as the elements do, -0 below +0. All NaNs have the largest key, which no
// other float has: they sort last, as in NumPy.
#ifndef REDUCED_KERNELS_ALGEBRA_SORT_KEY_H_
#define REDUCED_KERNELS_ALGEBRA_SORT_KEY_H_

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/float_format.h"
#include "kernels/algebra/order_key.h"
#include "kernels/algebra/portable.h"

namespace reduced {

template <class T>
struct SortKey {
  using Signed = typename OrderKey<T>::Type;
  using Type = std::make_unsigned_t<Signed>;
  static constexpr int kBits = 8 * sizeof(Type);
  static constexpr Type kSign = std::is_signed_v<Signed> ? Type{1} << (kBits - 1) : Type{0};
  static constexpr Type kMost = std::numeric_limits<Type>::max();
  static constexpr Type kNan = kMost;                                                  // of floats
  static constexpr Type kMinusZero = static_cast<Type>(kSign - 1), kPlusZero = kSign;  // of floats with a sign

  REDUCED_HD static Type Of(T x) {
    const Type key = static_cast<Type>(static_cast<Type>(OrderKey<T>::Of(x)) ^ kSign);
    return kIsFloat<T> && IsNan(x) ? kNan : key;
  }
  // As Of(), but -0 has the key of +0: elements with the same value have the same key.
  REDUCED_HD static Type OfValue(T x) {
    const Type key = Of(x);
    return kIsFloat<T> && kSign != 0 && key == kMinusZero ? kPlusZero : key;
  }
  // The keys of the lowest and the highest float that is no NaN: of infinities, if T has any.
  static constexpr Type Lowest() requires kIsFloat<T> {
    return static_cast<Type>(kSign == 0 ? 0 : kMinusZero - FloatFormat<T>::kInfinity);
  }
  static constexpr Type Highest() requires kIsFloat<T> { return static_cast<Type>(kSign + FloatFormat<T>::kInfinity); }
  // An element that has the key.
  REDUCED_HD static T Element(Type key) {
    Signed bits = BitsOfKey<T>(static_cast<Signed>(key ^ kSign));
    if constexpr (kIsFloat<T>) {
      if (key == kNan) bits = static_cast<Signed>(FloatFormat<T>::kNan);
    }
    if constexpr (std::is_same_v<T, Bool>) {
      return Bool{static_cast<std::uint8_t>(bits)};
    } else {
      return std::bit_cast<T>(bits);
    }
  }
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_ALGEBRA_SORT_KEY_H_
