// Integers of either sign, times a power of two: what is computed from exact sums before it is rounded once.
#ifndef REDUCED_KERNELS_EXACT_SCALED_H_
#define REDUCED_KERNELS_EXACT_SCALED_H_

#include <cstdint>
#include <span>

#include "kernels/exact/natural.h"

namespace reduced {

// A value. Zero has any sign and exponent.
struct Scaled {
  bool negative = false;
  Natural magnitude{};
  int exponent = 0;

  // An integer in two's complement, least significant word first, times 2^exponent.
  static Scaled Of(std::span<const std::uint64_t> words, int exponent);
  static Scaled Of(std::int64_t value);

  // -1, 0 or 1.
  int sign() const { return magnitude.zero() ? 0 : negative ? -1 : 1; }
};

Scaled operator*(const Scaled& a, const Scaled& b);
Scaled operator+(const Scaled& a, const Scaled& b);
Scaled operator-(const Scaled& a, const Scaled& b);

// The nearest double, ties to even; beyond the largest one an infinity. Zero gives +0.
double Rounded(const Scaled& value);
// The same of a / b, where b is not 0.
double RoundedQuotient(const Scaled& a, const Scaled& b);
// The same of the root of |a / b|.
double RoundedRootOfQuotient(const Scaled& a, const Scaled& b);

}  // namespace reduced

#endif  // REDUCED_KERNELS_EXACT_SCALED_H_
