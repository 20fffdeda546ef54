// See fingerprint_tiles.h.
//
// A vector of words is taken apart into vectors of 64-bit lanes with one word each: its parts. Powers of the bases are
// constants, cut into limbs that are so short that products of words and limbs of a whole tile add up in 64 bits. So a
// word takes a multiplication and an addition for each limb of each base, and the modulus is taken once in a tile and
// lane. (Long polynomials in columns, with one reduction for many terms: Bernstein, "Polynomial evaluation and message
// authentication", 2007.)
#include "kernels/folds/fingerprint_tiles.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels/algebra/vector_targets.h"
// Compiled again for each vector target
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/folds/fingerprint_tiles.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace reduced {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_SCALAR

template <class Word>
Residues SumOfWords(const std::byte* words, std::int64_t count) {
  Residues sum{};
  for (std::int64_t i = count - 1; i >= 0; --i) {
    Word word;
    std::memcpy(&word, words + i * std::int64_t{sizeof(word)}, sizeof(word));
    sum = MultipliedAndAdded(sum, kPolynomialBases, {word, word});
  }
  return sum;
}

#else

namespace hn = hwy::HWY_NAMESPACE;
using D64 = hn::ScalableTag<std::uint64_t>;
using D32 = hn::Repartition<std::uint32_t, D64>;
using D8 = hn::Repartition<std::uint8_t, D64>;
constexpr std::size_t kLanes = hn::MaxLanes(D64());
constexpr std::size_t kBases = kPolynomialBases.size();

constexpr Residues Power(std::size_t exponent) {
  Residues power{};
  power.fill(1);
  for (; exponent > 0; --exponent) power = MultipliedAndAdded(power, kPolynomialBases, {});
  return power;
}

template <class Word>
struct Tile {
  static constexpr std::size_t kParts = 8 / sizeof(Word);
  static constexpr std::size_t kWords = kLanes * kParts;   // of a vector
  static constexpr std::size_t kRows = 32 * sizeof(Word);  // vectors of a tile: 8 to 12 KiB of powers
  // 4-byte words: limbs of 21 bits, so that 2^8 products of 53 bits add up; others: of 32 bits.
  static constexpr std::size_t kLimbs = sizeof(Word) == 4 ? 3 : 2;
  static constexpr int kLimbBits = sizeof(Word) == 4 ? 21 : 32;
  // The processor fetches too little ahead by itself while it multiplies. A page of 4 KiB took 1.6 times less than
  // none.
  static constexpr std::size_t kAhead = 4096;
  static_assert(8 * sizeof(Word) + kLimbBits + 8 < 64 && kRows * kParts <= 256);
  static constexpr Residues kOfLane = Power(kParts);
  static constexpr Residues kOfTile = Power(kRows * kWords);

  // Limbs of the powers of the first lane's words.
  struct Powers {
    std::uint64_t limb[kRows][kParts][kBases][kLimbs];
  };
  static constexpr Powers kPowers = [] {
    Powers powers{};
    Residues first{};  // of the row
    first.fill(1);
    for (auto& row : powers.limb) {
      Residues power = first;
      for (auto& part : row) {
        for (std::size_t b = 0; b < kBases; ++b) {
          std::uint64_t rest = power[b];
          for (std::uint64_t& limb : part[b]) {
            limb = rest & ((std::uint64_t{1} << kLimbBits) - 1);
            rest >>= kLimbBits;
          }
        }
        power = MultipliedAndAdded(power, kPolynomialBases, {});
      }
      first = MultipliedAndAdded(first, Power(kWords), {});
    }
    return powers;
  }();

  // The polynomial of at most a tile.
  static Residues Sum(const std::byte* words, std::size_t count) {
    const D64 d;
    const D32 d32;
    using V = decltype(hn::Zero(d));
    V sums[kBases][kLimbs];
    for (auto& of_base : sums) {
      for (V& sum : of_base) sum = hn::Zero(d);
    }
    const V mask = hn::Set(d, (std::uint64_t{1} << (8 * sizeof(Word))) - 1);
    const auto add_part = [&](auto part, V vector, const Powers& powers, std::size_t row) HWY_ATTR {
      constexpr std::size_t kPart = decltype(part)::value;
      V word = vector;
      if constexpr (kPart > 0) word = hn::ShiftRight<8 * static_cast<int>(sizeof(Word) * kPart)>(word);
      if constexpr (sizeof(Word) < 4 && kPart + 1 < kParts) word = hn::And(word, mask);
      for (std::size_t b = 0; b < kBases; ++b) {
        for (std::size_t l = 0; l < kLimbs; ++l) {  // of each lane the lower halves are multiplied
          const V limb = hn::Set(d, powers.limb[row][kPart][b][l]);
          sums[b][l] = hn::Add(sums[b][l], hn::MulEven(hn::BitCast(d32, word), hn::BitCast(d32, limb)));
        }
      }
    };
    const auto add = [&](const std::byte* from, std::size_t row) HWY_ATTR {
      const V vector = hn::BitCast(d, hn::LoadU(D8(), reinterpret_cast<const std::uint8_t*>(from)));
      [&]<std::size_t... kPart>(std::index_sequence<kPart...>) HWY_ATTR {
        (add_part(std::integral_constant<std::size_t, kPart>(), vector, kPowers, row), ...);
      }
      (std::make_index_sequence<kParts>());
    };
    constexpr std::size_t kVectorBytes = kWords * sizeof(Word);
    std::size_t row = 0;
    for (; count >= kWords; count -= kWords, words += kVectorBytes) {
      __builtin_prefetch(words + kAhead);
      add(words, row++);
    }
    if (count > 0) {
      std::byte rest[kVectorBytes] = {};
      std::memcpy(rest, words, count * sizeof(Word));
      add(rest, row);
    }
    std::uint64_t lanes[kBases][kLimbs][kLanes];
    for (std::size_t b = 0; b < kBases; ++b) {
      for (std::size_t l = 0; l < kLimbs; ++l) hn::StoreU(sums[b][l], d, lanes[b][l]);
    }
    Residues sum{};
    for (std::size_t lane = kLanes; lane-- > 0;) {
      Residues joined{};
      for (std::size_t b = 0; b < kBases; ++b) {
        UInt128 of_lane = 0;
        for (std::size_t l = kLimbs; l-- > 0;) of_lane = (of_lane << kLimbBits) + lanes[b][l][lane];
        joined[b] =
            Residue((static_cast<std::uint64_t>(of_lane) & kPrime) + static_cast<std::uint64_t>(of_lane >> kPrimeBits));
      }
      sum = MultipliedAndAdded(sum, kOfLane, joined);
    }
    return sum;
  }
};

template <class Word>
Residues SumOfWords(const std::byte* words, std::int64_t count) {
  using T = Tile<Word>;
  constexpr auto kTileWords = static_cast<std::int64_t>(T::kRows * T::kWords);
  Residues sum{}, power{};
  power.fill(1);
  for (std::int64_t i = 0; i < count; i += kTileWords) {
    const auto some = static_cast<std::size_t>(std::min(kTileWords, count - i));
    sum = MultipliedAndAdded(T::Sum(words + i * std::int64_t{sizeof(Word)}, some), power, sum);
    power = MultipliedAndAdded(power, T::kOfTile, {});
  }
  return sum;
}

#endif  // HWY_TARGET == HWY_SCALAR

Residues SumOfBytes(const std::byte* words, std::int64_t count) { return SumOfWords<std::uint8_t>(words, count); }
Residues SumOfHalves(const std::byte* words, std::int64_t count) { return SumOfWords<std::uint16_t>(words, count); }
Residues SumOfFours(const std::byte* words, std::int64_t count) { return SumOfWords<std::uint32_t>(words, count); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace reduced
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reduced {
namespace {

HWY_EXPORT(SumOfBytes);
HWY_EXPORT(SumOfHalves);
HWY_EXPORT(SumOfFours);

}  // namespace

Residues PolynomialOfWords(const std::byte* words, int bytes, std::int64_t count) {
  if (bytes == 1) return HWY_DYNAMIC_DISPATCH(SumOfBytes)(words, count);
  if (bytes == 2) return HWY_DYNAMIC_DISPATCH(SumOfHalves)(words, count);
  return HWY_DYNAMIC_DISPATCH(SumOfFours)(words, count);
}

}  // namespace reduced
#endif
