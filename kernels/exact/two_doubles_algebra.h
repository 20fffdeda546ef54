// Products, differences and quotients of numbers in twice the precision of a double, each with a bound on its error:
// what ops about pairs are computed by from their sums, where no wide integer is at hand.
//
// Numbers are normalized. What leaves the range in which no part under- or overflows has an infinite error, so that
// RoundTwo says that it is not known.
//
// Source: T. J. Dekker, "A floating-point technique for extending the available precision" (1971). To be compiled
// without contraction of operations.
#ifndef REDUCED_KERNELS_EXACT_TWO_DOUBLES_ALGEBRA_H_
#define REDUCED_KERNELS_EXACT_TWO_DOUBLES_ALGEBRA_H_

#include <cmath>
#include <cstdint>

#include "kernels/algebra/portable.h"
#include "kernels/exact/two_doubles.h"

namespace reduced {

// A sum as AddToTwo has it, normalized, with an error that covers how the bound itself was added up.
REDUCED_HD TwoDoubles KnownTwo(const TwoDoubles& sum) {
  TwoDoubles x = Normalized(sum);
  if (sum.error != 0) x.error = sum.error * (1 + 0x1p-20) + std::fabs(x.value) * 0x1p-100;
  return x;
}

REDUCED_HD bool IsZero(const TwoDoubles& x) { return x.value == 0 && x.rest == 0 && x.error == 0; }

// `error`, or that nothing is known: `value` is so small or so large that a part of it may not be one.
REDUCED_HD double ErrorInRange(double value, double error) {
  const double magnitude = std::fabs(value);
  return magnitude > 1e-250 && magnitude < 1e250 ? error : HUGE_VAL;
}

REDUCED_HD TwoDoubles Times(const TwoDoubles& a, const TwoDoubles& b) {
  if (IsZero(a) || IsZero(b)) return {};
  const double product = a.value * b.value;
  const double rest = std::fma(a.value, b.value, -product) + (a.value * b.rest + a.rest * b.value);
  const double rounded = a.rest == 0 && b.rest == 0 ? 0 : std::fabs(product) * 0x1p-102;
  const double error = std::fabs(a.value) * b.error + std::fabs(b.value) * a.error + a.error * b.error;
  return Normalized({product, rest, ErrorInRange(product, error * (1 + 0x1p-20) + rounded)});
}

REDUCED_HD TwoDoubles Minus(const TwoDoubles& a, const TwoDoubles& b) {
  double value = a.value, rest = 0, lost = 0;
  const auto add = [&](double term) { lost += std::fabs(AddToTwo(term, &value, &rest)); };
  add(-b.value);
  add(a.rest);
  add(-b.rest);
  return KnownTwo({value, rest, a.error + b.error + lost});
}

// Not known, too, where b may be zero.
REDUCED_HD TwoDoubles Over(const TwoDoubles& a, const TwoDoubles& b) {
  if (!(b.value != 0 && b.error <= std::fabs(b.value) * 0x1p-40)) return {0, 0, HUGE_VAL};
  if (IsZero(a)) return {};
  const double inverse = 1 / b.value, quotient = a.value * inverse;
  const double left = std::fma(-quotient, b.value, a.value) + (a.rest - quotient * b.rest);
  const double error = (a.error + std::fabs(quotient) * b.error) * std::fabs(inverse) * (1 + 0x1p-20);
  const double all = error + std::fabs(quotient) * 0x1p-98;
  return Normalized({quotient, left * inverse, ErrorInRange(a.value, ErrorInRange(quotient, all))});
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_EXACT_TWO_DOUBLES_ALGEBRA_H_
