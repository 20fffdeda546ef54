#include "kernels/exact/natural.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>

#include "kernels/algebra/portable.h"

namespace reduced {
namespace {

// The largest r with r * r <= value.
std::uint64_t Root(UInt128 value) {
  const auto most = static_cast<long double>(std::numeric_limits<std::uint64_t>::max());
  auto root = static_cast<std::uint64_t>(std::min(std::sqrt(static_cast<long double>(value)), most));  // or nearly
  while (static_cast<UInt128>(root) * root > value) --root;
  while (value - static_cast<UInt128>(root) * root > 2 * static_cast<UInt128>(root)) ++root;
  return root;
}

}  // namespace

Natural::Natural(std::uint64_t value) : words_{value} { Trim(); }

Natural Natural::MagnitudeOf(std::span<const std::uint64_t> words) {
  Natural number;
  number.words_.assign(words.begin(), words.end());
  if (!words.empty() && words.back() >> 63 != 0) {
    bool carry = true;
    for (std::uint64_t& word : number.words_) {
      word = ~word + (carry ? 1 : 0);
      carry = carry && word == 0;
    }
  }
  number.Trim();
  return number;
}

void Natural::Trim() {
  while (!words_.empty() && words_.back() == 0) words_.pop_back();
}

int Natural::bits() const {
  return words_.empty() ? 0 : static_cast<int>(words_.size()) * 64 - std::countl_zero(words_.back());
}

bool Natural::LessThan(const Natural& other) const {
  if (words_.size() != other.words_.size()) return words_.size() < other.words_.size();
  return std::lexicographical_compare(words_.rbegin(), words_.rend(), other.words_.rbegin(), other.words_.rend());
}

bool Natural::bit(int index) const { return Bits(index, 1) != 0; }

std::uint64_t Natural::Bits(int index, int count) const {
  const auto word = [this](int i) {
    return i < 0 || i >= static_cast<int>(words_.size()) ? 0 : words_[static_cast<std::size_t>(i)];
  };
  const int first = index >> 6;  // towards minus infinity
  const int shift = index & 63;
  std::uint64_t bits = word(first) >> shift;
  if (shift != 0) bits |= word(first + 1) << (64 - shift);
  return count == 64 ? bits : bits & ((std::uint64_t{1} << count) - 1);
}

bool Natural::AnyBitBelow(int index) const {
  if (index <= 0) return false;
  const int words = std::min(index / 64, static_cast<int>(words_.size()));
  return std::any_of(words_.begin(), words_.begin() + words, [](std::uint64_t word) { return word != 0; }) ||
         Bits(64 * words, index % 64) != 0;
}

Natural Natural::Plus(const Natural& other) const {
  const Natural& longer = words_.size() < other.words_.size() ? other : *this;
  const Natural& shorter = words_.size() < other.words_.size() ? *this : other;
  Natural sum = longer;
  UInt128 carry = 0;
  for (std::size_t i = 0; i < sum.words_.size() && (carry != 0 || i < shorter.words_.size()); ++i) {
    carry += static_cast<UInt128>(sum.words_[i]) + (i < shorter.words_.size() ? shorter.words_[i] : 0);
    sum.words_[i] = static_cast<std::uint64_t>(carry);
    carry >>= 64;
  }
  if (carry != 0) sum.words_.push_back(1);
  return sum;
}

Natural Natural::Times(const Natural& other) const {
  Natural product;
  product.words_.resize(words_.size() + other.words_.size());
  for (std::size_t i = 0; i < words_.size(); ++i) {
    if (words_[i] == 0) continue;
    UInt128 carry = 0;
    for (std::size_t j = 0; j < other.words_.size(); ++j) {
      carry += static_cast<UInt128>(words_[i]) * other.words_[j] + product.words_[i + j];
      product.words_[i + j] = static_cast<std::uint64_t>(carry);
      carry >>= 64;
    }
    product.words_[i + other.words_.size()] = static_cast<std::uint64_t>(carry);
  }
  product.Trim();
  return product;
}

Natural Natural::Minus(const Natural& other) const {
  Natural difference = *this;
  bool borrow = false;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    const UInt128 minus = (i < other.words_.size() ? static_cast<UInt128>(other.words_[i]) : 0) + (borrow ? 1 : 0);
    borrow = words_[i] < minus;
    difference.words_[i] = words_[i] - static_cast<std::uint64_t>(minus);
  }
  difference.Trim();
  return difference;
}

Natural Natural::ShiftedLeft(int by) const {
  Natural shifted;
  shifted.words_.reserve(words_.size() + static_cast<std::size_t>(by) / 64 + 1);
  for (int i = -by; i < bits(); i += 64) shifted.words_.push_back(Bits(i, 64));
  shifted.Trim();
  return shifted;
}

int Natural::DropLowZeros() {
  const auto first = std::find_if(words_.begin(), words_.end(), [](std::uint64_t word) { return word != 0; });
  const auto words = static_cast<int>(first - words_.begin());
  words_.erase(words_.begin(), first);
  return 64 * words;
}

std::uint64_t Natural::Divide(std::uint64_t divisor) {
  if (divisor == 1) return 0;
  std::uint64_t rest = 0;
  for (auto word = words_.rbegin(); word != words_.rend(); ++word) {
    const UInt128 dividend = (static_cast<UInt128>(rest) << 64) | *word;
    const auto quotient = static_cast<std::uint64_t>(dividend / divisor);
    rest = *word - quotient * divisor;  // modulo 2^64, and less than that
    *word = quotient;
  }
  Trim();
  return rest;
}

// Division by digits of 64 bits (D. E. Knuth, TAOCP 2, 4.3.1, algorithm D).
Natural Natural::Over(const Natural& divisor, bool* more) const {
  Natural quotient;
  const std::size_t n = divisor.words_.size();
  if (n == 1) {
    quotient = *this;
    *more = quotient.Divide(divisor.words_.front()) != 0;
    return quotient;
  }
  // With the first bit of the divisor set, a digit that is guessed from first words is at most 2 too large.
  const int shift = std::countl_zero(divisor.words_.back());
  const std::vector<std::uint64_t> by = divisor.ShiftedLeft(shift).words_;
  Natural rest = ShiftedLeft(shift);
  std::vector<std::uint64_t>& left = rest.words_;
  left.resize(std::max(left.size(), n) + 1);
  quotient.words_.resize(left.size() - n);
  for (std::size_t at = left.size() - n; at-- > 0;) {
    const UInt128 first = (static_cast<UInt128>(left[at + n]) << 64) | left[at + n - 1];
    std::uint64_t digit = left[at + n] >= by.back() ? ~std::uint64_t{0} : static_cast<std::uint64_t>(first / by.back());
    UInt128 taken = 0;
    for (std::size_t i = 0; i < n; ++i) {
      taken += static_cast<UInt128>(digit) * by[i];
      const auto low = static_cast<std::uint64_t>(taken);
      taken = (taken >> 64) + (left[at + i] < low ? 1 : 0);
      left[at + i] -= low;
    }
    bool negative = left[at + n] < taken;
    left[at + n] -= static_cast<std::uint64_t>(taken);
    while (negative) {
      --digit;
      UInt128 carry = 0;
      for (std::size_t i = 0; i < n; ++i) {
        carry += static_cast<UInt128>(left[at + i]) + by[i];
        left[at + i] = static_cast<std::uint64_t>(carry);
        carry >>= 64;
      }
      left[at + n] += static_cast<std::uint64_t>(carry);
      negative = carry == 0 || left[at + n] != 0;
    }
    quotient.words_[at] = digit;
  }
  rest.Trim();
  *more = !rest.zero();
  quotient.Trim();
  return quotient;
}

double RoundToDouble(const Natural& number, int exponent, bool more) {
  if (number.zero()) return 0;
  constexpr int kLargest = 1023;
  constexpr int kSmallest = -1074;
  const int first = number.bits() - 1 + exponent;  // of its first bit
  if (first > kLargest) return std::numeric_limits<double>::infinity();
  // The last bit that is kept stands for 2^last, and is bit `index` of the number.
  const int last = std::max(first - 52, kSmallest);
  const int index = last - exponent;
  // 53 bits at most, as many fewer as the number is below 2^-1022; none if it is below 2^-1074.
  std::uint64_t kept = number.Bits(index, 53);
  const bool half = number.bit(index - 1);
  const bool beyond = more || number.AnyBitBelow(index - 1);
  if (half && (beyond || (kept & 1) != 0)) ++kept;
  // As the bits of a double: exponent and fraction; what overflows the fraction is one more in the exponent.
  const std::uint64_t field = last > kSmallest ? static_cast<std::uint64_t>(last - kSmallest) : 0;
  return std::bit_cast<double>((field << 52) + kept);
}

double RoundRootToDouble(const Natural& number, int exponent, bool more) {
  if (number.zero()) return 0;
  // The number's first 127 or 128 bits, from one on whose exponent is even; the root of them has 64, and a remainder
  // tells that the root of all of it is a little more.
  int index = number.bits() - 128;
  if (((index + exponent) & 1) != 0) ++index;
  const UInt128 top = (static_cast<UInt128>(number.Bits(index + 64, 64)) << 64) | number.Bits(index, 64);
  const std::uint64_t root = Root(top);
  const bool beyond = more || static_cast<UInt128>(root) * root != top || number.AnyBitBelow(index);
  return RoundToDouble(Natural(root), (index + exponent) / 2, beyond);
}

}  // namespace reduced
