// The distance of two elements, of the same dtype or not.
#ifndef REDUCED_KERNELS_FOLDS_DISTANCES_H_
#define REDUCED_KERNELS_FOLDS_DISTANCES_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/portable.h"

namespace reduced {

// Calls visit(x, y) with elements of these dtypes, both floats or both integers.
template <class Visitor>
void VisitPair(DType x, DType y, const Visitor& visit) {
  VisitDType(x, [&]<class X>(std::type_identity<X>) {
    VisitDType(y, [&]<class Y>(std::type_identity<Y>) {
      if constexpr (kIsFloat<X> == kIsFloat<Y>) visit(X{}, Y{});
    });
  });
}

// What is computed with: doubles of floats, Int128 of integers. Both are exact.
template <class T>
auto ExactValue(T x) {
  if constexpr (kIsFloat<T>) {
    return ToDouble(x);
  } else {
    return static_cast<Int128>(ToInteger(x));
  }
}

// |x - y| of doubles or Int128s, rounded to the nearest double.
template <class Value>
double DistanceOfValues(Value x, Value y) {
  if constexpr (std::is_same_v<Value, double>) return std::fabs(x - y);
  return static_cast<double>(x < y ? y - x : x - y);
}
// The same of elements.
template <class X, class Y>
double Distance(X x, Y y) {
  return DistanceOfValues(ExactValue(x), ExactValue(y));
}

// Bits that compare as distances do. All NaNs have the same, which are the largest.
inline std::uint64_t BitsOfDistance(double distance) {
  return std::bit_cast<std::uint64_t>(std::isnan(distance) ? std::numeric_limits<double>::quiet_NaN() : distance);
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_FOLDS_DISTANCES_H_
