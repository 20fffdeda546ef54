// The arithmetic of the accumulators, the same on host and device: differences, products, wide sums, and the merging of
// the states of partial.h.
#ifndef REDUCED_KERNELS_ALGEBRA_ARITHMETIC_H_
#define REDUCED_KERNELS_ALGEBRA_ARITHMETIC_H_

#include <bit>
#include <cstdint>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/partial.h"
#include "kernels/algebra/portable.h"

namespace reduced {

template <class T>
requires(!kIsFloat<T>) REDUCED_HD bool IsNegative(T x) {
  if constexpr (kIsSigned<T>) {
    return x < 0;
  } else {
    return false;
  }
}

// |x| of an integer, as unsigned.
template <class T>
REDUCED_HD std::uint64_t Magnitude(T x) {
  const auto bits = static_cast<std::uint64_t>(ToInteger(x));
  return IsNegative(x) ? std::uint64_t{0} - bits : bits;
}

REDUCED_HD std::uint64_t DoubleBits(double x) {
#ifdef __CUDA_ARCH__
  return static_cast<std::uint64_t>(__double_as_longlong(x));
#else
  return std::bit_cast<std::uint64_t>(x);
#endif
}
REDUCED_HD double DoubleFromBits(std::uint64_t bits) {
#ifdef __CUDA_ARCH__
  return __longlong_as_double(static_cast<long long>(bits));
#else
  return std::bit_cast<double>(bits);
#endif
}

// Moves the binary exponent of p.mantissa into p.exponent.
REDUCED_HD void Normalize(FloatProduct& p) {
  std::uint64_t bits = DoubleBits(p.mantissa);
  auto field = static_cast<std::int64_t>((bits >> 52) & 0x7ff);
  if (field == 0x7ff) return;  // infinite or NaN
  if (field == 0) {
    if ((bits << 1) == 0) return;  // zero
    bits = DoubleBits(p.mantissa * 0x1p54);
    field = static_cast<std::int64_t>((bits >> 52) & 0x7ff);
    p.exponent -= 54;
  }
  p.exponent += field - 1023;
  p.mantissa = DoubleFromBits((bits & ~(std::uint64_t{0x7ff} << 52)) | (std::uint64_t{1023} << 52));
}

REDUCED_HD void Multiply(FloatProduct& p, const FloatProduct& by) {
  p.mantissa *= by.mantissa;
  p.exponent += by.exponent;
  Normalize(p);
}

REDUCED_HD void Multiply(IntProduct& p, const IntProduct& by) {
  p.wrapped *= by.wrapped;
  const UInt128 magnitude = static_cast<UInt128>(p.magnitude) * by.magnitude;
  p.magnitude = static_cast<std::uint64_t>(magnitude);
  p.negative = p.negative != by.negative;
  p.zero = p.zero || by.zero;
  p.overflowed = p.overflowed || by.overflowed || (magnitude >> 64) != 0;
}

REDUCED_HD void Increase(UInt192& sum, const UInt192& by) {
  UInt128 carry = 0;
  for (int i = 0; i < 3; ++i) {
    carry += static_cast<UInt128>(sum.word[i]) + by.word[i];
    sum.word[i] = static_cast<std::uint64_t>(carry);
    carry >>= 64;
  }
}

// Merges the moments of two stretches: the update of Chan, Golub and LeVeque. `pivot_difference`: later's pivot less
// into's.
template <class State>
REDUCED_HD void MergeMoments(State& into, const State& later, double pivot_difference) {
  if (later.count == 0) return;
  if (into.count == 0) {
    into = later;
    return;
  }
  const auto n_into = static_cast<double>(into.count);
  const auto n_later = static_cast<double>(later.count);
  const double share = n_later / (n_into + n_later);
  const double delta = pivot_difference + (later.offset - into.offset);
  into.count += later.count;
  into.offset += delta * share;
  into.m2 += later.m2 + delta * delta * (n_into * share);
}

REDUCED_HD void MergeMoments(MomentsState& into, const MomentsState& later) {
  MergeMoments(into, later, later.pivot - into.pivot);
}

// Ties go to the lower index, so the order of merging doesn't matter.
REDUCED_HD void MergeExtrema(ExtremaState& into, const ExtremaState& other) {
  const bool lower =
      other.min_key < into.min_key || (other.min_key == into.min_key && other.min_index < into.min_index);
  const bool higher =
      other.max_key > into.max_key || (other.max_key == into.max_key && other.max_index < into.max_index);
  if (lower) {
    into.min_key = other.min_key;
    into.min_index = other.min_index;
  }
  if (higher) {
    into.max_key = other.max_key;
    into.max_index = other.max_index;
  }
  if (other.nan_index < into.nan_index) into.nan_index = other.nan_index;
}

// 128 bits as two words: a thread's state is passed around word by word, which compilers do better with than with
// Int128.
struct Sum128 {
  std::uint64_t low = 0;
  std::uint64_t high = 0;

  REDUCED_HD void operator+=(UInt128 by) {
    const UInt128 sum = value() + by;
    low = static_cast<std::uint64_t>(sum);
    high = static_cast<std::uint64_t>(sum >> 64);
  }
  REDUCED_HD void operator+=(const Sum128& by) { *this += by.value(); }
  REDUCED_HD UInt128 value() const { return (static_cast<UInt128>(high) << 64) | low; }
};

// The value of a partial sum of integers as 128 bits, sign-extended.
REDUCED_HD UInt128 ValueOf(const Sum128& sum) { return sum.value(); }
REDUCED_HD UInt128 ValueOf(std::int64_t sum) { return static_cast<UInt128>(static_cast<Int128>(sum)); }
REDUCED_HD UInt128 ValueOf(std::uint64_t sum) { return sum; }

}  // namespace reduced

#endif  // REDUCED_KERNELS_ALGEBRA_ARITHMETIC_H_
