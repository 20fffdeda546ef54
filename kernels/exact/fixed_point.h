// Numbers in fixed point, wide enough that sums of floats are exact: the "small superaccumulator" of R. Neal, "Fast
// exact summation using small and large superaccumulators" (2015), with whole words in place of its overlapping ones.
#ifndef REDUCED_KERNELS_EXACT_FIXED_POINT_H_
#define REDUCED_KERNELS_EXACT_FIXED_POINT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/algebra/portable.h"

namespace reduced {

// Adds value x 2^position to an integer in two's complement, least significant word first, wrapping at its end. The
// position is before that.
inline void AddAt(std::int64_t value, unsigned position, std::span<std::uint64_t> words) {
  std::size_t i = position / 64;
  const Int128 shifted = static_cast<Int128>(value) << (position % 64);
  const std::uint64_t fill = value < 0 ? ~std::uint64_t{0} : 0;
  UInt128 sum = static_cast<UInt128>(words[i]) + static_cast<std::uint64_t>(shifted);
  words[i] = static_cast<std::uint64_t>(sum);
  if (++i == words.size()) return;
  sum = (sum >> 64) + words[i] + static_cast<std::uint64_t>(shifted >> 64);
  words[i] = static_cast<std::uint64_t>(sum);
  bool carry = (sum >> 64) != 0;
  // What a carry into a word of all ones, or a borrow from one of zeros, goes on to.
  for (++i; i < words.size() && carry != (fill != 0); ++i) {
    words[i] += carry ? 1 : fill;
    carry = carry ? words[i] == 0 : words[i] != fill;
  }
}

// Adds an integer of as many words.
inline void AddWords(std::span<const std::uint64_t> other, std::span<std::uint64_t> words) {
  UInt128 carry = 0;
  for (std::size_t i = 0; i < words.size(); ++i) {
    carry += static_cast<UInt128>(words[i]) + other[i];
    words[i] = static_cast<std::uint64_t>(carry);
    carry >>= 64;
  }
}

// An integer of kWords x 64 bits, two's complement, least significant word first, times 2^kLowExponent. Additions are
// exact and wrap at its end, so that their order doesn't matter. The default is 0.
template <int kLowExponent, int kWordCount>
struct FixedPoint {
  static constexpr int kLow = kLowExponent;
  static constexpr int kWords = kWordCount;
  std::array<std::uint64_t, kWords> word{};

  // Adds value x 2^exponent. No bit of it may be below kLow, nor `exponent` at or beyond the last word.
  void Add(std::int64_t value, int exponent) { AddAt(value, static_cast<unsigned>(exponent - kLow), word); }

  void Add(const FixedPoint& other) { AddWords(other.word, word); }

  bool negative() const { return word.back() >> 63 != 0; }

  friend bool operator==(const FixedPoint&, const FixedPoint&) = default;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_EXACT_FIXED_POINT_H_
