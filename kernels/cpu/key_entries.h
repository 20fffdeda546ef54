// What is known of a group while rows are added to it in any order of the groups: see key_tables.h. To be compiled
// without contraction of operations.
#ifndef REDUCED_KERNELS_CPU_KEY_ENTRIES_H_
#define REDUCED_KERNELS_CPU_KEY_ENTRIES_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/algebra/arithmetic.h"
#include "kernels/algebra/dtype.h"
#include "kernels/algebra/float_format.h"
#include "kernels/algebra/order_key.h"
#include "kernels/algebra/portable.h"
#include "kernels/cpu/quick_answers.h"

namespace reduced {

// A sum of terms of floats, as in quick_sums.h.
template <class T, Term kTerm>
struct FloatSum {
  double sum, rest, lost;

  void Begin(T x) {
    *this = {-0.0, 0, 0};  // to which -0 adds -0, and +0 adds +0
    Add(x);
  }
  void Add(T x) { AddTerm<kTerm>(x, &sum, &rest, &lost); }
  void Merge(const FloatSum& other) { MergeExactly(other.sum, other.rest, other.lost, &sum, &rest, &lost); }
  void Store(std::int64_t i, QuickSums* sums) const {
    sums->sum[i] = sum;
    sums->rest[i] = rest;
    sums->lost[i] = lost;
  }
};

// The same of integers of up to 32 bits, fewer than 2^32 of them.
template <class T, Term kTerm>
struct IntegerSum {
  static constexpr bool kSquares = kTerm == Term::kSquare;

  std::conditional_t<kSquares && sizeof(T) == 4, Sum128, std::uint64_t> sum;  // of signed elements: modulo 2^64

  void Begin(T x) { Add(x); }  // to 0
  void Add(T x) {
    if constexpr (kSquares) {
      const std::uint64_t magnitude = Magnitude(x);
      sum += magnitude * magnitude;
    } else {
      sum += static_cast<std::uint64_t>(ToInteger(x));
    }
  }
  void Merge(const IntegerSum& other) { sum += other.sum; }
  void Store(std::int64_t i, QuickSums* sums) const {
    if constexpr (kIsSigned<T> && !kSquares) {
      StoreIntegerSum(static_cast<std::int64_t>(sum), i, sums);
    } else {
      StoreIntegerSum(static_cast<Int128>(ValueOf(sum)), i, sums);
    }
  }
};

template <class T, Term kTerm>
using SumEntry = std::conditional_t<kIsFloat<T>, FloatSum<T, kTerm>, IntegerSum<T, kTerm>>;

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
  [[no_unique_address]] If<kKind.sums, SumEntry<T, Term::kElement>, 2> sum;
  [[no_unique_address]] If<kKind.squares, SumEntry<T, Term::kSquare>, 3> squares;
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
