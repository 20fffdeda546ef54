// A sum of doubles as two of them, whose sum it is: what both engines answer many short outputs by, without wide
// integers.
//
// `sum` is rounded at each addition, and `rest` is the sum of what rounding took from it, which "two-sum" gives
// exactly. What is then lost from `rest` tells whether sum + rest is the exact sum: nearly always nothing is.
//
// Sources: T. J. Dekker (1971) and D. E. Knuth (TAOCP 2, 4.2.2) for two-sum; T. Ogita, S. M. Rump, S. Oishi, "Accurate
// sum and dot product" (2005) for the cascade; A. Ziv (1991) for the test of rounding in means. To be compiled without
// contraction of operations.
#ifndef REDUCED_KERNELS_EXACT_TWO_DOUBLES_H_
#define REDUCED_KERNELS_EXACT_TWO_DOUBLES_H_

#include <cmath>
#include <cstdint>

#include "kernels/algebra/portable.h"

namespace reduced {

// Returns x. On the device the compiler would move divisions that a few ops need out of the loop over an output's ops,
// so that all outputs pay for them: what is computed from NotHoisted(x) stays where it is.
REDUCED_HD double NotHoisted(double x) {
#ifdef __CUDA_ARCH__
  asm volatile("" : "+d"(x));
#endif
  return x;
}

// Adds x to sum + rest, and returns what could not be added: 0, or any other value, NaN if something isn't finite.
REDUCED_HD double AddToTwo(double x, double* sum, double* rest) {
  const double s = *sum + x;
  const double b = s - *sum;
  const double error = (*sum - (s - b)) + (x - b);
  const double e = *rest + error;
  const double c = e - *rest;
  const double lost = (*rest - (e - c)) + (error - c);
  *sum = s;
  *rest = e;
  return lost;
}

// Adds x to s, and to `error` what rounding took from that.
REDUCED_HD void AddToSum(double x, double* s, double* error) {
  const double sum = *s + x;
  const double b = sum - *s;
  *error += (*s - (sum - b)) + (x - b);
  *s = sum;
}

// sum + rest, rounded once. A sum of nothing but -0 stays that.
REDUCED_HD double RoundedSum(double sum, double rest) { return rest == 0 ? sum : sum + rest; }

// Stores (sum + rest) / count, rounded once. False: that is not known so, and it may be off by a few units in the last
// place. 1 <= count.
REDUCED_HD bool RoundedMean(double sum, double rest, std::int64_t count, double* mean) {
  const auto n = static_cast<double>(count);
  sum = NotHoisted(sum);
  *mean = (sum + rest) / n;
  if (count >= std::int64_t{1} << 53) return false;
  if (rest == 0) {
    if (sum == 0) *mean = sum / n;  // -0 stays that
    return true;
  }
  const double h = sum + rest;
  // Division by a power of two rounds only what becomes subnormal.
  if ((count & (count - 1)) == 0 && std::fabs(h) >= 0x1p-900) return true;
  if (!(std::fabs(h) > 1e-250 && std::fabs(h) < 1e300)) return false;  // nothing below underflows or overflows
  // The sum is h + l. With q = fl(h / n) the mean is q + (h - q n + l) / n, of which the second part is a rounded c: if
  // q + c rounds to the same double whatever c's error, that is the mean.
  const double b = h - sum;
  const double l = (sum - (h - b)) + (rest - b);
  const double q = *mean;
  const double c = (std::fma(-q, n, h) + l) / n;
  const double low = q + c * (1 - 0x1p-48), high = q + c * (1 + 0x1p-48);
  *mean = low;
  return low == high;
}

// A number in twice the precision of a double: value + rest, with an error of at most `error`.
struct TwoDoubles {
  double value = 0;
  double rest = 0;
  double error = 0;
};

// Rounds to the nearest double; false if the error leaves a choice.
REDUCED_HD bool RoundTwo(const TwoDoubles& x, double* rounded) {
  // rest + error and rest - error are rounded, too.
  const double error = x.error == 0 ? 0 : x.error + std::fabs(x.rest) * 0x1p-51;
  const double low = x.value + (x.rest - error), high = x.value + (x.rest + error);
  *rounded = low;
  return low == high;
}

// With |rest| at most half a unit in the last place of `value`.
REDUCED_HD TwoDoubles Normalized(const TwoDoubles& x) {
  const double value = x.value + x.rest;
  const double b = value - x.value;
  return {value, (x.value - (value - b)) + (x.rest - b), x.error};
}

// A whole number of up to 106 bits, normalized.
REDUCED_HD TwoDoubles TwoDoublesOf(UInt128 x) {
  const std::uint64_t low = static_cast<std::uint64_t>(x) & ((std::uint64_t{1} << 53) - 1);
  return Normalized({static_cast<double>(static_cast<std::uint64_t>(x >> 53)) * 0x1p53, static_cast<double>(low), 0});
}

// A sum that may have lost up to `error`, rounded once as if it had not; false: that is not known.
REDUCED_HD bool KnownSum(const TwoDoubles& x, double* sum) {
  *sum = RoundedSum(x.value, x.rest);
  if (x.error == 0) return true;
  TwoDoubles y = Normalized(x);
  y.error = x.error * (1 + 0x1p-20) + std::fabs(y.value) * 0x1p-100;  // how the error was added up, and what follows
  return RoundTwo(y, sum);
}

// x / divisor, of a normalized x, 1 <= divisor < 2^52. What is exact stays so if the divisor is a power of two.
REDUCED_HD TwoDoubles DividedBy(const TwoDoubles& x, std::int64_t divisor) {
  const double y = NotHoisted(static_cast<double>(divisor));
  const double inverse = 1 / y, quotient = x.value * inverse;    // off by up to two units in the last place
  const double left = std::fma(-quotient, y, x.value) + x.rest;  // no more than 53 bits, so fma is exact
  const double rounded = (divisor & (divisor - 1)) == 0 ? 0 : 0x1p-98;
  return Normalized({quotient, left * inverse, x.error * inverse * (1 + 0x1p-50) + std::fabs(quotient) * rounded});
}

// x / (count * (count - ddof)), of a normalized x, 1 <= count < 2^31, 0 <= ddof < count.
REDUCED_HD TwoDoubles DividedByCounts(const TwoDoubles& deviations, std::int64_t count, std::int64_t ddof) {
  // A double holds the product of few.
  if (count < std::int64_t{1} << 26) return DividedBy(deviations, count * (count - ddof));
  return DividedBy(DividedBy(deviations, count), count - ddof);
}

// The mean of so many that have that sum, likewise.
REDUCED_HD bool KnownMean(const TwoDoubles& x, std::int64_t count, double* mean) {
  if (x.error == 0) return RoundedMean(x.value, x.rest, count, mean);
  TwoDoubles y = Normalized(x);
  y.error = x.error * (1 + 0x1p-20) + std::fabs(y.value) * 0x1p-100;
  *mean = y.value / static_cast<double>(count);
  if (count >= std::int64_t{1} << 52 || !(std::fabs(y.value) > 1e-250 && std::fabs(y.value) < 1e300)) return false;
  return RoundTwo(DividedBy(y, count), mean);
}

// The root of a normalized x >= 0.
REDUCED_HD TwoDoubles RootOf(const TwoDoubles& x) {
  const double root = std::sqrt(x.value);
  if (root == 0) return {0, 0, std::sqrt(x.error)};
  const double left = std::fma(-root, root, x.value) + x.rest, inverse = 1 / root;
  return Normalized({root, left * (inverse / 2), x.error * inverse * (1 + 0x1p-50) + root * 0x1p-98});
}

// The variance of `count` elements, divided by count - ddof > 0, from their sum and that of their squares. False: it is
// beyond what is computed so.
REDUCED_HD bool Variance(const TwoDoubles& sum, const TwoDoubles& squares, std::int64_t count, std::int64_t ddof,
                         TwoDoubles* variance) {
  *variance = TwoDoubles{};
  const TwoDoubles known = Normalized(sum);
  const double s = known.value, rest = known.rest, q = squares.value;
  if (q == 0 && squares.rest == 0 && squares.error == 0) return true;
  // Then no product underflows or overflows.
  const bool in_range = q > 1e-200 && q < 1e200 && (s == 0 || std::fabs(s) > 1e-120);
  if (!in_range || count >= std::int64_t{1} << 31) return false;
  const auto n = static_cast<double>(count);
  // n Q - S^2, whose terms are the products and their rounding errors.
  const double product = n * q, square = s * s;
  double total = product, total_rest = 0, lost = 0;
  const auto add = [&](double term) { lost += std::fabs(AddToTwo(term, &total, &total_rest)); };
  add(-square);
  add(std::fma(n, q, -product));
  add(-std::fma(s, s, -square));
  double error = 0;
  if (rest != 0 || squares.rest != 0) {
    const double other = n * squares.rest, mixed = -2 * s * rest;
    add(other);
    add(mixed);
    // So small that their sum may be rounded.
    const double other_left = std::fma(n, squares.rest, -other), mixed_left = std::fma(-2 * s, rest, -mixed);
    add(other_left + mixed_left - rest * rest);
    error = (std::fabs(other_left) + std::fabs(mixed_left) + rest * rest) * 0x1p-50 + (rest == 0 ? 0 : 0x1p-1000);
  }
  error += (n * squares.error + 3 * std::fabs(s) * sum.error + lost) * (1 + 0x1p-20);
  if (total + total_rest == 0 && error == 0) return true;
  *variance = DividedByCounts(Normalized({total, total_rest, error}), count, ddof);
  return variance->value > 0;
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_EXACT_TWO_DOUBLES_H_
