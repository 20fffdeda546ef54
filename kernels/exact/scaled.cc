#include "kernels/exact/scaled.h"

#include <algorithm>
#include <utility>

namespace reduced {
namespace {

// The larger exponent's integer in units of the smaller one.
Natural InUnitsOf(int exponent, const Scaled& value) { return value.magnitude.ShiftedLeft(value.exponent - exponent); }

// |a / b| of at least so many bits that rounding and roots are right of it.
struct Quotient {
  Natural number;
  int exponent = 0;
  bool more = false;  // a remainder was left

  Quotient(const Scaled& a, const Scaled& b) {
    constexpr int kBits = 130;
    const int shift = std::max(0, b.magnitude.bits() - a.magnitude.bits() + kBits);
    number = a.magnitude.ShiftedLeft(shift).Over(b.magnitude, &more);
    exponent = a.exponent - b.exponent - shift;
  }
};

}  // namespace

Scaled Scaled::Of(std::span<const std::uint64_t> words, int exponent) {
  Scaled value{.negative = !words.empty() && words.back() >> 63 != 0, .magnitude = Natural::MagnitudeOf(words)};
  value.exponent = exponent + (value.magnitude.zero() ? 0 : value.magnitude.DropLowZeros());
  return value;
}

Scaled Scaled::Of(std::int64_t value) {
  const std::uint64_t word = static_cast<std::uint64_t>(value);
  return Of(std::span(&word, 1), 0);
}

Scaled operator*(const Scaled& a, const Scaled& b) {
  return {a.negative != b.negative, a.magnitude.Times(b.magnitude), a.exponent + b.exponent};
}

Scaled operator+(const Scaled& a, const Scaled& b) {
  if (a.magnitude.zero()) return b;
  if (b.magnitude.zero()) return a;
  const int exponent = std::min(a.exponent, b.exponent);
  const Natural of_a = InUnitsOf(exponent, a), of_b = InUnitsOf(exponent, b);
  if (a.negative == b.negative) return {a.negative, of_a.Plus(of_b), exponent};
  if (of_a.LessThan(of_b)) return {b.negative, of_b.Minus(of_a), exponent};
  return {a.negative, of_a.Minus(of_b), exponent};
}

Scaled operator-(const Scaled& a, const Scaled& b) {
  Scaled negated = b;
  negated.negative = !b.negative;
  return a + negated;
}

double Rounded(const Scaled& value) { return value.sign() * RoundToDouble(value.magnitude, value.exponent); }

double RoundedQuotient(const Scaled& a, const Scaled& b) {
  if (a.magnitude.zero()) return 0;
  const Quotient quotient(a, b);
  return a.sign() * b.sign() * RoundToDouble(quotient.number, quotient.exponent, quotient.more);
}

double RoundedRootOfQuotient(const Scaled& a, const Scaled& b) {
  if (a.magnitude.zero()) return 0;
  const Quotient quotient(a, b);
  return RoundRootToDouble(quotient.number, quotient.exponent, quotient.more);
}

}  // namespace reduced
