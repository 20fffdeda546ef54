// What is known of a group while rows are added to it in any order of the groups: see key_tables.h. To be compiled
// without contraction of operations.
#ifndef REDUCED_KERNELS_CPU_KEY_ENTRIES_H_
#define REDUCED_KERNELS_CPU_KEY_ENTRIES_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/float_format.h"
#include "kernels/algebra/order_key.h"
#include "kernels/algebra/portable.h"
#include "kernels/cpu/quick_answers.h"

namespace reduced {

template <class T>
struct FloatSum {
  double sum, rest, lost;

  void Begin(T x) {
    const double value = ToDouble(x);
    *this = {value, 0, value - value};  // lost: NaN of what isn't finite
  }
  void Add(T x) { AddExactly(ToDouble(x), &sum, &rest, &lost); }
  void Merge(const FloatSum& other) {
    AddExactly(other.sum, &sum, &rest, &lost);
    AddExactly(other.rest == 0 ? -0.0 : other.rest, &sum, &rest, &lost);  // -0 changes nothing
    lost += other.lost;
  }
  void Store(std::int64_t i, QuickSums* sums) const {
    sums->sum[i] = sum;
    sums->rest[i] = rest;
    sums->lost[i] = lost;
  }
};

// Of up to 32 bits, and fewer than 2^32 of them.
template <class T>
struct IntegerSum {
  std::uint64_t sum;  // modulo 2^64

  void Begin(T x) { sum = static_cast<std::uint64_t>(ToInteger(x)); }
  void Add(T x) { sum += static_cast<std::uint64_t>(ToInteger(x)); }
  void Merge(const IntegerSum& other) { sum += other.sum; }
  void Store(std::int64_t i, QuickSums* sums) const {
    constexpr double kMost = 0x1p53;  // of what a double holds
    const double value = kIsSigned<T> ? static_cast<double>(static_cast<std::int64_t>(sum)) : static_cast<double>(sum);
    sums->sum[i] = value;
    sums->rest[i] = 0;
    sums->lost[i] = -kMost < value && value < kMost ? 0 : 1;
  }
};

// Of floats: up to 32 bits have squares that a double holds.
template <class T>
struct FloatSquares : FloatSum<T> {
  void Begin(T x) {
    this->sum = this->rest = this->lost = 0;
    Add(x);
  }
  void Add(T x) {
    const double value = ToDouble(x);
    if constexpr (sizeof(T) == 8) {
      AddSquareExactly(value, &this->sum, &this->rest, &this->lost);
    } else {
      AddExactly(value * value, &this->sum, &this->rest, &this->lost);
    }
  }
};

// Of integers of up to 32 bits: halves of their squares, which fit.
template <class T>
struct IntegerSquares {
  std::uint64_t low, high;

  void Begin(T x) {
    low = high = 0;
    Add(x);
  }
  void Add(T x) {
    const auto value = static_cast<std::int64_t>(ToInteger(x));
    const auto square = static_cast<std::uint64_t>(value) * static_cast<std::uint64_t>(value);
    low += square & 0xffffffff;
    high += square >> 32;
  }
  void Merge(const IntegerSquares& other) {
    low += other.low;
    high += other.high;
  }
  void Store(std::int64_t i, QuickSums* sums) const {
    constexpr std::uint64_t kMost = std::uint64_t{1} << 53;  // of what a double holds
    const std::uint64_t above = high + (low >> 32);
    const auto below = static_cast<double>(low & 0xffffffff);
    const TwoDoubles all = Normalized({static_cast<double>(above) * 0x1p32, below, 0});
    sums->sum[i] = all.value;
    sums->rest[i] = all.rest;
    sums->lost[i] = above <= kMost ? 0 : std::numeric_limits<double>::infinity();
  }
};

template <class T>
using SquaresEntry = std::conditional_t<kIsFloat<T>, FloatSquares<T>, IntegerSquares<T>>;

template <class T>
using SumEntry = std::conditional_t<kIsFloat<T>, FloatSum<T>, IntegerSum<T>>;

// How rows are added to extrema.
template <class T>
struct ExtremaRules {
  using Word = std::conditional_t<(sizeof(T) > 4), std::uint64_t, std::uint32_t>;

  Word flip = 0;  // where there is only one side: all bits set if that is the lowest
  Word nan = 0;   // in place of NaNs
};

// The largest of some words, and the first row that has it. All bytes 0: of none.
template <class Word>
struct Largest {
  // Two of the kind of the word, so that one comparison without a branch, which could not be foreseen, chooses both.
  using Both = std::conditional_t<(sizeof(Word) > 4), UInt128, std::uint64_t>;
  static constexpr int kBits = 8 * sizeof(Word);

  Both both;  // the word, and below it ~row, which is not 0: there are fewer than 2^32 rows

  void Add(Word x, std::uint32_t row) { both = std::max(both, static_cast<Both>(x) << kBits | ~row); }
  // `other` may have rows before these.
  void Merge(const Largest& other) { both = std::max(both, other.both); }
  Word largest() const { return static_cast<Word>(both >> kBits); }
  std::uint32_t row() const { return ~static_cast<std::uint32_t>(both); }
};

// The lowest and the highest element, or one of them (kSides == 1). They are words that compare as unsigned numbers:
// keys, flipped for the lowest. That of a NaN is the largest, or, if they are omitted, the least; other floats have
// neither.
template <class T, int kSides>
struct ExtremaEntry {
  using Key = typename OrderKey<T>::Type;
  using Word = typename ExtremaRules<T>::Word;
  static constexpr Word kTop = std::is_signed_v<Key> ? Word{1} << (8 * sizeof(Word) - 1) : 0;

  Largest<Word> sides[kSides];

  void Add(T x, std::uint32_t row, const ExtremaRules<T>& rules) {
    const Word word = static_cast<Word>(OrderKey<T>::Of(x)) ^ kTop;
    for (int side = 0; side < kSides; ++side) {
      sides[side].Add(IsNan(x) ? rules.nan : word ^ FlipOf(side, rules), row);
    }
  }
  void Merge(const ExtremaEntry& other) {
    for (int side = 0; side < kSides; ++side) sides[side].Merge(other.sides[side]);
  }
  // A group without elements is said to have a NaN, if T is a float.
  void Store(std::int64_t i, const ExtremaRules<T>& rules, QuickExtrema* extrema) const {
    extrema->has_nan[i] = false;
    for (int side = 0; side < kSides; ++side) {
      const Word word = sides[side].largest(), flip = FlipOf(side, rules);
      const auto key = static_cast<Key>(word ^ flip ^ kTop);
      std::memcpy((flip != 0 ? extrema->lowest : extrema->highest) + i * sizeof(Key), &key, sizeof(Key));
      (flip != 0 ? extrema->lowest_at : extrema->highest_at)[i] = sides[side].row();
      if constexpr (kIsFloat<T>) extrema->has_nan[i] = word == 0 || word == static_cast<Word>(~Word{0});
    }
  }
  bool empty() const { return sides[0].row() == std::numeric_limits<std::uint32_t>::max(); }

 private:
  static Word FlipOf(int side, const ExtremaRules<T>& rules) {
    return kSides == 1 ? rules.flip : side == 0 ? static_cast<Word>(~Word{0}) : Word{0};
  }
};

// What a table keeps of each group.
struct EntryKind {
  bool counts = false;  // elements and, of floats, NaNs: beside sums, always
  bool sums = false;
  bool squares = false;
  int sides = 0;  // of extrema
};

// In place of what is not wanted: types of their own, so that they share an address.
template <int kOf>
struct Nothing {};

// All of its bytes 0: no element.
template <class T, EntryKind kKind>
struct Entry {
  template <bool kWanted, class Field, int kOf>
  using If = std::conditional_t<kWanted, Field, Nothing<kOf>>;

  [[no_unique_address]] If<kKind.counts, std::uint32_t, 0> count;
  [[no_unique_address]] If<kKind.counts && kIsFloat<T>, std::uint32_t, 1> nans;  // omitted ones are not in count
  [[no_unique_address]] If<kKind.sums, SumEntry<T>, 2> sum;
  [[no_unique_address]] If<kKind.squares, SquaresEntry<T>, 3> squares;
  [[no_unique_address]] If<(kKind.sides > 0), ExtremaEntry<T, std::max(kKind.sides, 1)>, 4> extrema;

  void Add(T x, std::uint32_t row, bool omit_nans, const ExtremaRules<T>& rules) {
    if constexpr (kKind.sides > 0) extrema.Add(x, row, rules);
    if constexpr (kKind.counts) {
      if constexpr (kIsFloat<T>) {
        if (IsNan(x)) [[unlikely]] {
          ++nans;
          if (omit_nans) return;
        }
      }
      const bool is_first = count++ == 0;
      if constexpr (kKind.sums) is_first ? sum.Begin(x) : sum.Add(x);
      if constexpr (kKind.squares) is_first ? squares.Begin(x) : squares.Add(x);
    }
  }
  void Merge(const Entry& other) {
    if constexpr (kKind.sides > 0) extrema.Merge(other.extrema);
    if constexpr (kKind.counts) {
      if constexpr (kIsFloat<T>) nans += other.nans;
      if (other.count == 0) return;
      if constexpr (kKind.sums) count == 0 ? static_cast<void>(sum = other.sum) : sum.Merge(other.sum);
      if constexpr (kKind.squares)
        count == 0 ? static_cast<void>(squares = other.squares) : squares.Merge(other.squares);
      count += other.count;
    }
  }
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_KEY_ENTRIES_H_
