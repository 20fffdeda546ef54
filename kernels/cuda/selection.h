// Selection by sort keys on a CUDA device: the launches that quantiles and the k best elements of a whole array are
// made of. A pass counts the elements of a few ranges of keys by digits within each; it may also gather these keys,
// so that later passes read a few candidates in place of the array.
//
// The algorithms are radix selection, and that of R. W. Floyd and R. L. Rivest, whose ranges come from a sample. The
// host narrows the ranges between passes: see whole_array_quantiles.cc.
#ifndef REDUCED_KERNELS_CUDA_SELECTION_H_
#define REDUCED_KERNELS_CUDA_SELECTION_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/algebra/float_format.h"
#include "kernels/algebra/portable.h"
#include "kernels/algebra/sort_key.h"

namespace reduced {

// Makes sort keys (algebra/sort_key.h) from the bits of elements of any dtype of the key's size. All numbers have its
// size.
struct KeyFormat {
  int bytes = 4;               // of a key
  bool is_bool = false;        // any bits but 0 are those of 1
  bool is_float = false;       // all NaNs have the largest key
  bool zeros_join = false;     // -0 has the key of +0
  bool omit_nan = false;       // NaNs have no key
  bool descends = false;       // keys are inverted: the largest element has the least one
  bool nan_first = false;      // keys of floats are one more, so that NaNs have the least one
  std::uint64_t negative = 0;  // the bits, other than the sign, that are inverted in negative elements
  std::uint64_t sign = 0;      // the bit that is inverted in all
  std::uint64_t least = 0;     // the keys of the infinities, or of the least and the greatest integer
  std::uint64_t greatest = 0;
};

// Nothing but the order of the bits: keys of NaNs lie outside of the infinities'.
REDUCED_HD constexpr bool IsPlain(const KeyFormat& format) {
  return !format.is_float && !format.descends && !format.nan_first;
}
REDUCED_HD constexpr KeyFormat Plain(KeyFormat format) {
  format.is_float = format.zeros_join = format.omit_nan = format.descends = format.nan_first = false;
  return format;
}

template <class T>
KeyFormat KeyFormatOf() {
  using Key = SortKey<T>;
  KeyFormat format{.bytes = sizeof(T),
                   .is_bool = std::is_same_v<T, Bool>,
                   .is_float = kIsFloat<T>,
                   .sign = Key::kSign,
                   .greatest = Key::kMost};
  if constexpr (kIsFloat<T>) {
    if (Key::kSign != 0) format.negative = Key::kMost;
    format.least = Key::Lowest();
    format.greatest = Key::Highest();
  }
  return format;
}

// The key of an element with the bits `raw`; *counts: whether it has one.
template <class Word>
REDUCED_HD Word KeyOf(Word raw, const KeyFormat& format, bool* counts) {
  constexpr int kTop = 8 * sizeof(Word) - 1;
  if (sizeof(Word) == 1 && format.is_bool) raw = raw != 0;
  const bool is_negative = (raw >> kTop) != 0;
  Word key = static_cast<Word>(raw ^ static_cast<Word>(format.sign | (is_negative ? format.negative : 0)));
  if (format.is_float) {
    const auto least = static_cast<Word>(format.least), greatest = static_cast<Word>(format.greatest);
    const bool is_nan = static_cast<Word>(key - least) > static_cast<Word>(greatest - least);
    if (is_nan) key = static_cast<Word>(~Word{0});
    if (is_nan && format.omit_nan) *counts = false;
    if (format.zeros_join && key == static_cast<Word>(format.sign - 1)) key = static_cast<Word>(format.sign);
    if (format.nan_first) key = static_cast<Word>(key + 1);
  }
  return format.descends ? static_cast<Word>(~key) : key;
}

// The keys of [lo, lo + span], counted by (key - lo) >> shift.
struct KeyRange64 {
  std::uint64_t lo = 0;
  std::uint64_t span = 0;
  int shift = 0;
};

// In device memory, zeros before the launch; the counts follow, 2^digit of each range.
struct CountedKeys {
  static constexpr int kMostRanges = 8;
  unsigned long long others = 0;    // elements that are no numbers: keys below format.least or above format.greatest
  unsigned long long gathered = 0;  // keys
  // Of each range, if the format is plain: elements that have its least key or a greater one, or are no numbers; 0 if
  // that is format.least.
  unsigned long long at_least[kMostRanges] = {};
  // The inverse of the least key, and the largest. 0 and 0: it has no key, or the digit has no bits.
  unsigned long long inverse_least[kMostRanges] = {};
  unsigned long long largest[kMostRanges] = {};
};

struct CountKeysLaunch {
  KeyFormat format{};          // of more than 8 bits
  const void* data = nullptr;  // elements, aligned to their size
  std::int64_t count = 0;      // of them, > 0
  std::int64_t stretch = 1;    // of as many neighbouring pieces of 128 bytes only the first is counted: a sample
  KeyRange64 ranges[CountedKeys::kMostRanges] = {};  // they have no key in common
  int count_of_ranges = 1;                           // more only if the format is plain
  int digit = 11;
  CountedKeys* counted = nullptr;
  void* gather = nullptr;              // room for keys of the ranges that have several; null: they are not gathered
  std::int64_t room = 0;               // keys; those beyond it are lost
  std::int64_t most_shared_bytes = 0;  // that a block can have
  int multiprocessors = 0;
  cudaStream_t stream = nullptr;

  std::int64_t counts() const { return static_cast<std::int64_t>(count_of_ranges) << digit; }
  std::int64_t bytes() const { return static_cast<std::int64_t>(sizeof(CountedKeys)) + 8 * counts(); }
};
// Of a block's shared memory: where keys are gathered, and at most what kernels have beside what is counted there.
inline constexpr std::int64_t kGatherBytes = std::int64_t{64} << 10, kOwnSharedBytes = 1 << 10;
cudaError_t LaunchCountKeys(const CountKeysLaunch& launch);

// Counts numbers in bins that are narrow where many elements are: cells of equal width, each of which has bins of equal
// width. Numbers below all cells have bin kBelow(bins), those above bin kAbove(bins). A launch with `wanted` gathers
// the keys of these bins instead.
struct CountCellsLaunch {
  static constexpr int kCellBits = 12, kCells = 1 << kCellBits, kMostBins = 1 << 14;
  static constexpr std::uint32_t kHasWanted = std::uint32_t{1} << 31;

  KeyFormat format{};          // plain, of 32 or 64 bits
  const void* data = nullptr;  // elements, aligned to their size
  std::int64_t count = 0;      // of them, > 0
  std::uint64_t lo = 0;        // the cells have the keys [lo, lo + span]; cell i those with (key - lo) >> shift = i
  std::uint64_t span = 0;
  int shift = 0;
  // Device memory. Of each cell, of the keys below and of those above: its first bin << 6 | the shift from a key's
  // place in it to the bin, and kHasWanted, if one of them is wanted.
  const std::uint32_t* cells = nullptr;
  int bins = 0;                            // of all cells, at most kMostBins; then those below, and those above
  unsigned long long* counts = nullptr;    // device memory, zeros: bins + 2
  const std::uint32_t* wanted = nullptr;   // device memory, a bit for each bin; null: they are counted
  unsigned long long* gathered = nullptr;  // device memory, zero: how many keys
  void* gather = nullptr;                  // room for so many; those beyond it are lost
  std::int64_t room = 0;
  std::int64_t most_shared_bytes = 0;  // that a block can have, at least shared_bytes()
  int multiprocessors = 0;
  cudaStream_t stream = nullptr;

  static constexpr std::int64_t shared_bytes() { return 4 * (kCells + 4) + 4 * (kMostBins + 3); }
};
cudaError_t LaunchCountCells(const CountCellsLaunch& launch);

// An element and its index.
struct FoundKey {
  std::uint64_t key = 0;
  std::int64_t index = 0;
};

// Gathers the elements whose keys are at least `least` and at most `most`, in no order.
struct GatherKeysLaunch {
  KeyFormat format{};
  const void* data = nullptr;
  std::int64_t first = 0;  // index of the first element to look at
  std::int64_t count = 0;  // of them, > 0
  std::uint64_t least = 0;
  std::uint64_t most = 0;
  // Plain keys that no such element has, so that most elements are sorted out at once.
  bool has_unwanted = false;
  std::uint64_t first_unwanted = 0;
  std::uint64_t last_unwanted = 0;
  unsigned long long* found = nullptr;  // device memory, zero: how many there are, or more than `room`
  FoundKey* keys = nullptr;             // room for `room`; those beyond it are lost
  std::int64_t room = 0;
  int multiprocessors = 0;
  cudaStream_t stream = nullptr;
};
cudaError_t LaunchGatherKeys(const GatherKeysLaunch& launch);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_SELECTION_H_
