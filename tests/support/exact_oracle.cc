#include "tests/support/exact_oracle.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>

namespace reduced::test {
namespace {

// An integer >= 0 in digits of 2^32, least significant first, no leading zeros.
class Big {
 public:
  Big() = default;
  explicit Big(std::uint64_t value)
      : digits_{static_cast<std::uint32_t>(value), static_cast<std::uint32_t>(value >> 32)} {
    Trim();
  }

  friend Big operator+(const Big& a, const Big& b) {
    Big sum;
    sum.digits_.reserve(std::max(a.digits_.size(), b.digits_.size()) + 1);
    std::uint64_t carry = 0;
    for (std::size_t i = 0; i < std::max(a.digits_.size(), b.digits_.size()) || carry != 0; ++i) {
      carry += std::uint64_t{a.digit(i)} + b.digit(i);
      sum.digits_.push_back(static_cast<std::uint32_t>(carry));
      carry >>= 32;
    }
    return sum;
  }
  // a must not be smaller.
  friend Big operator-(const Big& a, const Big& b) {
    Big difference;
    std::int64_t borrow = 0;
    for (std::size_t i = 0; i < a.digits_.size(); ++i) {
      std::int64_t digit = std::int64_t{a.digit(i)} - b.digit(i) - borrow;
      borrow = digit < 0 ? 1 : 0;
      if (digit < 0) digit += std::int64_t{1} << 32;
      difference.digits_.push_back(static_cast<std::uint32_t>(digit));
    }
    difference.Trim();
    return difference;
  }
  friend Big operator*(const Big& a, const Big& b) {
    Big product;
    product.digits_.resize(a.digits_.size() + b.digits_.size());
    for (std::size_t i = 0; i < a.digits_.size(); ++i) {
      if (a.digits_[i] == 0) continue;
      std::uint64_t carry = 0;
      for (std::size_t j = 0; j < b.digits_.size() || carry != 0; ++j) {
        carry += std::uint64_t{a.digits_[i]} * b.digit(j) + product.digits_[i + j];
        product.digits_[i + j] = static_cast<std::uint32_t>(carry);
        carry >>= 32;
      }
    }
    product.Trim();
    return product;
  }
  friend Big operator<<(const Big& a, int by) {
    Big shifted = a * Big(std::uint64_t{1} << (by % 32));
    if (!shifted.digits_.empty()) shifted.digits_.insert(shifted.digits_.begin(), static_cast<std::size_t>(by / 32), 0);
    return shifted;
  }
  // Negative, 0 or positive.
  friend int Compare(const Big& a, const Big& b) {
    if (a.digits_.size() != b.digits_.size()) return a.digits_.size() < b.digits_.size() ? -1 : 1;
    for (std::size_t i = a.digits_.size(); i-- > 0;) {
      if (a.digits_[i] != b.digits_[i]) return a.digits_[i] < b.digits_[i] ? -1 : 1;
    }
    return 0;
  }
  bool zero() const { return digits_.empty(); }
  // Near it, or infinity.
  double Near() const {
    double near = 0;
    for (std::size_t i = digits_.size(); i-- > 0;) near = near * 0x1p32 + digits_[i];
    return near;
  }

 private:
  std::uint32_t digit(std::size_t i) const { return i < digits_.size() ? digits_[i] : 0; }
  void Trim() {
    while (!digits_.empty() && digits_.back() == 0) digits_.pop_back();
  }

  std::vector<std::uint32_t> digits_;
};

// |x| of a finite x, in units of 2^-1074.
Big UnitsOf(double x) {
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(x), &exponent);
  const auto digits = static_cast<std::uint64_t>(std::ldexp(fraction, 53));
  const int shift = exponent - 53 + 1074;
  return shift >= 0 ? Big(digits) << shift : Big(digits >> -shift);
}

// Where numerator / denominator, or its root, is relative to bound x 2^-unit: negative if below, 0 if there, positive
// if above. The numerator is in units of 2^-1074, of a root in units of 2^-2148.
int CompareWith(const Big& numerator, const Big& denominator, bool root, const Big& bound, int unit) {
  const int finer = unit - 1074;
  if (!root) return Compare(numerator << finer, bound * denominator);
  return Compare(numerator << 2 * finer, bound * bound * denominator);
}

// Of a quotient >= 0, or its root, the nearest double.
double Nearest(const Big& numerator, const Big& denominator, bool root) {
  const auto halves =
      [](std::uint64_t bits) {  // in units of 2^-1075, of a double that may be infinity: as if it were 2^1024
        return bits == std::bit_cast<std::uint64_t>(kInfinity) ? Big(1) << (1024 + 1075)
                                                               : UnitsOf(std::bit_cast<double>(bits)) << 1;
      };
  std::uint64_t low = 0;                                         // at most the true value ...
  std::uint64_t high = std::bit_cast<std::uint64_t>(kInfinity);  // ... which is less, or beyond all doubles
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    (CompareWith(numerator, denominator, root, halves(middle), 1075) >= 0 ? low : high) = middle;
  }
  const int side = CompareWith(numerator, denominator, root, halves(low) + halves(high), 1076);  // their midpoint
  const bool up = side > 0 || (side == 0 && (low & 1) != 0);
  return std::bit_cast<double>(up ? high : low);
}

// Where numerator / denominator, integers, or its root, is relative to the midpoint of two neighbouring doubles > 0:
// negative if below, 0 if there, positive if above.
int CompareWithMidpoint(const Big& numerator, const Big& denominator, bool root, double low, double high) {
  int exponent = 0;
  std::frexp(low, &exponent);
  exponent -= 54;  // in units of 2^exponent both are even, of 54 bits at least
  const auto half = [exponent](double x) { return static_cast<std::uint64_t>(std::ldexp(x, -exponent) / 2); };
  Big midpoint(half(low) + half(high));
  if (root) {
    midpoint = midpoint * midpoint;
    exponent *= 2;
  }
  const Big bound = midpoint * denominator;
  return exponent >= 0 ? Compare(numerator, bound << exponent) : Compare(numerator << -exponent, bound);
}

// Of a quotient of integers, or its root, the nearest double: in steps from `guess`, a normal number that is near it.
double NearestFrom(double guess, const Big& numerator, const Big& denominator, bool root) {
  if (numerator.zero()) return 0;
  for (double nearest = guess;;) {
    const double up = std::nextafter(nearest, kInfinity);
    const double down = std::nextafter(nearest, 0);
    const bool even = (std::bit_cast<std::uint64_t>(nearest) & 1) == 0;
    const int above = CompareWithMidpoint(numerator, denominator, root, nearest, up);
    const int below = CompareWithMidpoint(numerator, denominator, root, down, nearest);
    if (above < 0 && below > 0) return nearest;
    if (above == 0 || below == 0) return even ? nearest : above == 0 ? up : down;
    nearest = above > 0 ? up : down;
  }
}

Big BigOf(UInt128 value) {
  return (Big(static_cast<std::uint64_t>(value >> 64)) << 64) + Big(static_cast<std::uint64_t>(value));
}

}  // namespace

double ExactlyBySchoolbook(Op op, const std::vector<double>& elements, NanPolicy nan_policy, std::int64_t ddof) {
  Big positives, negatives, squares;
  std::uint64_t count = 0;
  bool nan = false, up = false, down = false, other_than_minus_zero = false;
  for (const double x : elements) {
    if (std::isnan(x)) {
      nan = nan || nan_policy == NanPolicy::kPropagate;
      count += nan_policy == NanPolicy::kPropagate ? 1 : 0;
      continue;
    }
    ++count;
    if (x != 0 || !std::signbit(x)) other_than_minus_zero = true;
    if (std::isinf(x)) {
      (x > 0 ? up : down) = true;
      continue;
    }
    const Big units = UnitsOf(x);
    Big& sum = x < 0 ? negatives : positives;
    sum = sum + units;
    squares = squares + units * units;
  }
  if (nan) return kNan;
  const bool infinite = up || down;
  const Big one(1);
  switch (op) {
    case Op::kSum:
    case Op::kMean: {
      if (op == Op::kMean && count == 0) return kNan;
      if (infinite) return up && down ? kNan : up ? kInfinity : -kInfinity;
      const bool negative = Compare(positives, negatives) < 0;
      const Big magnitude = negative ? negatives - positives : positives - negatives;
      if (magnitude.zero()) return count > 0 && !other_than_minus_zero ? -0.0 : 0.0;
      const double value = Nearest(magnitude, op == Op::kSum ? one : Big(count), false);
      return negative ? -value : value;
    }
    case Op::kL1:
      return infinite ? kInfinity : Nearest(positives + negatives, one, false);
    case Op::kSumSquares:  // in units of 2^-2148
      return infinite ? kInfinity : Nearest(squares, one << 1074, false);
    case Op::kL2:
      return infinite ? kInfinity : Nearest(squares, one, true);
    default: {
      if (count <= static_cast<std::uint64_t>(ddof) || infinite) return kNan;
      const bool negative = Compare(positives, negatives) < 0;
      const Big sum = negative ? negatives - positives : positives - negatives;
      const Big spread = Big(count) * squares - sum * sum;
      const Big divisor = Big(count) * Big(count - static_cast<std::uint64_t>(ddof));
      return op == Op::kVar ? Nearest(spread, divisor << 1074, false) : Nearest(spread, divisor, true);
    }
  }
}

double IntegersBySchoolbook(Op op, const IntegerSums& sums, std::int64_t ddof) {
  const bool negative = sums.sum < 0;
  const Big sum = BigOf(static_cast<UInt128>(negative ? -sums.sum : sums.sum));
  const Big squares = (Big(sums.squares_high) << 128) + BigOf(sums.squares_low);
  const Big count(sums.count);
  const double n = static_cast<double>(sums.count);
  const double squares_near = static_cast<double>(sums.squares_high) * 0x1p128 + static_cast<double>(sums.squares_low);
  if (op == Op::kL2) return NearestFrom(std::sqrt(squares_near), squares, Big(1), true);
  if (op == Op::kMean) {
    if (sums.count == 0) return kNan;
    const double mean = NearestFrom(std::fabs(static_cast<double>(sums.sum) / n), sum, count, false);
    return negative ? -mean : mean;
  }
  if (sums.count <= static_cast<std::uint64_t>(ddof)) return kNan;
  const double divisor_near = n * (n - static_cast<double>(ddof));
  const Big divisor = count * Big(sums.count - static_cast<std::uint64_t>(ddof));
  const Big spread = count * squares - sum * sum;
  const double near = spread.Near() / divisor_near;
  return op == Op::kVar ? NearestFrom(near, spread, divisor, false)
                        : NearestFrom(std::sqrt(near), spread, divisor, true);
}

}  // namespace reduced::test
