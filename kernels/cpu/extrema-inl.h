// kExtrema of every dtype, alone and with kCounts, once for each vector target.
#if defined(REDUCED_KERNELS_CPU_EXTREMA_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REDUCED_KERNELS_CPU_EXTREMA_INL_H_
#undef REDUCED_KERNELS_CPU_EXTREMA_INL_H_
#else
#define REDUCED_KERNELS_CPU_EXTREMA_INL_H_
#endif

#include <algorithm>
#include <optional>

#include "kernels/algebra/float_format.h"
#include "kernels/cpu/extent.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reduced {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

template <class T>
void FoldExtrema(const Tile& tile, Partial* into) {
  Fold<ExtremaOf<T>, T>(tile, into);
}

template <class T>
void FoldCountsAndExtrema(const Tile& tile, Partial* into) {
  Fold<CountsOf<T>, T>(tile, into);
  Fold<ExtremaOf<T>, T>(tile, into);
}

#else

// The key of +infinity is its bits: as signed integers, positive NaNs lie above it; as unsigned ones with the sign bit,
// negative NaNs do.

// The range of some elements. Integers: as they are. Floats, by their bits: positive ones compare as signed integers
// do; of negative ones the lowest is the largest as an unsigned integer (`farthest`), the highest the lowest as a
// signed one. So three comparisons do for both ends, and for telling whether there was a NaN (which kSkipNans leaves
// out). With kCount zeros are counted and, if they are left out, NaNs. With kExtent the least magnitude but 0 is found.
template <class T, bool kSkipNans, bool kCount, bool kExtent = false>
struct RangeAcc {
  using Element = T;
  using Lane = KeyLane<T>;
  using D = KeyTag<T>;
  using DU = hn::RebindToUnsigned<D>;
  static constexpr std::int64_t kElements = hn::MaxLanes(D());
  static constexpr Lane kTop = std::numeric_limits<Lane>::max();
  static constexpr Lane kBottom = std::numeric_limits<Lane>::min();
  hn::Vec<D> low;
  hn::Vec<D> high;
  hn::Vec<DU> farthest;
  hn::Vec<DU> least;  // twice the bits without the sign, less 1: a zero is the largest
  std::int64_t zeros = 0;
  std::int64_t nans = 0;

  HWY_INLINE RangeAcc()
      : low(hn::Set(D(), kTop)),
        high(hn::Set(D(), kBottom)),
        farthest(hn::Zero(DU())),
        least(hn::Not(hn::Zero(DU()))) {}
  HWY_INLINE void Add(const std::byte* p) {
    const D d;
    const DU du;
    const auto v = LoadKeyLanes<T>(p);
    if constexpr (kCount) zeros += CountZeros<T>(v);
    if constexpr (kSkipNans) {
      const auto magnitude = hn::And(v, hn::Set(d, kTop));
      const auto nan = hn::Gt(magnitude, hn::Set(d, kInfinityKey<T>));
      if constexpr (kCount) nans += static_cast<std::int64_t>(hn::CountTrue(d, nan));
      low = hn::Min(low, hn::IfThenElse(nan, hn::Set(d, kTop), v));
      high = hn::Max(high, hn::IfThenElse(nan, hn::Set(d, kBottom), v));
      farthest = hn::Max(farthest, hn::BitCast(du, hn::IfThenZeroElse(nan, v)));
    } else {
      low = hn::Min(low, v);
      high = hn::Max(high, v);
      if constexpr (kIsFloat<T>) farthest = hn::Max(farthest, hn::BitCast(du, v));
    }
    if constexpr (kExtent) {
      const auto bits = hn::BitCast(du, v);
      least = hn::Min(least, hn::Sub(hn::Add(bits, bits), hn::Set(du, 1)));
    }
  }
  HWY_INLINE void Merge(const RangeAcc& other) {
    low = hn::Min(low, other.low);
    high = hn::Max(high, other.high);
    farthest = hn::Max(farthest, other.farthest);
    if constexpr (kExtent) least = hn::Min(least, other.least);
    zeros += other.zeros;
    nans += other.nans;
  }
};

// The ends of a tile's range, as the bits of the elements.
template <class T>
struct Range {
  KeyLane<T> lowest = 0;
  KeyLane<T> highest = 0;
  bool has_nan = false;
  bool empty = false;  // nothing but NaNs
  std::int64_t zeros = 0;
  std::int64_t nans = 0;
  std::optional<Extent> extent = {};
};

// The range of a tile, of at least a vector, whose first `done` elements `acc` has.
template <class T, bool kSkipNans, bool kCount, bool kExtent>
HWY_INLINE Range<T> RangeOf(const Tile& tile, std::int64_t done, RangeAcc<T, kSkipNans, kCount, kExtent> acc) {
  using Acc = decltype(acc);
  const KeyTag<T> d;
  for (; done + Acc::kElements <= tile.count; done += Acc::kElements) {
    acc.Add(tile.data + done * static_cast<std::int64_t>(sizeof(T)));
  }
  Range<T> range;
  range.zeros = acc.zeros;
  range.nans = acc.nans;
  if (done < tile.count) {
    // The last vector overlaps the one before: an extremum may be seen twice, what is counted may not.
    acc.Add(tile.data + (tile.count - Acc::kElements) * static_cast<std::int64_t>(sizeof(T)));
    for (std::int64_t i = done; i < tile.count; ++i) {
      const T x = ElementAt<T>(tile.data, i);
      range.zeros += IsNonzero(x) ? 0 : 1;
      range.nans += IsNan(x) ? 1 : 0;
    }
  }
  range.lowest = ReduceLanes(d, acc.low, Lesser());
  range.highest = ReduceLanes(d, acc.high, Greater());
  if constexpr (kIsFloat<T>) {
    const typename Acc::DU du;
    const auto farthest = static_cast<KeyLane<T> >(ReduceLanes(du, acc.farthest, Greater()));
    const KeyLane<T> low = range.lowest;
    const KeyLane<T> high = range.highest;
    range.empty = low == Acc::kTop;  // a NaN's bits
    if (low < 0) range.lowest = farthest;
    if (high < 0) range.highest = low;
    range.has_nan = high > kInfinityKey<T> || (farthest < 0 && (farthest & Acc::kTop) > kInfinityKey<T>);
    if constexpr (kExtent) {
      using Word = typename FloatFormat<T>::Word;
      const auto twice = [](KeyLane<T> bits) { return static_cast<Word>(static_cast<Word>(bits) << 1); };
      const Word largest = std::max(twice(farthest), high < 0 ? Word{0} : twice(high));
      range.extent = ExtentOf<T>(largest, ReduceLanes(du, acc.least, Lesser()));
    }
  }
  return range;
}

template <class T, bool kSkipNans, bool kCount, bool kExtent = false>
HWY_INLINE Range<T> RangeOf(const Tile& tile) {
  RangeAcc<T, kSkipNans, kCount, kExtent> acc;
  const std::int64_t done = FoldVectors(tile, acc);
  return RangeOf(tile, done, acc);
}

// Of a key lane `lane` of T: its order key.
template <class T>
HWY_INLINE KeyLane<T> KeyOfLane(KeyLane<T> lane) {
  if constexpr (kIsFloat<T>) {  // as OrderKey<T>::Of
    constexpr int kSignShift = 8 * sizeof(T) - 1;
    return static_cast<KeyLane<T> >(lane ^ ((lane >> kSignShift) & std::numeric_limits<KeyLane<T> >::max()));
  } else {
    return lane;
  }
}

// The index of the first element of a tile, of at least a vector, that is `lane`, or (kNan) above it, a NaN.
template <class T, bool kNan>
std::int64_t FindFirst(const Tile& tile, KeyLane<T> lane) {
  const KeyTag<T> d;
  constexpr std::int64_t kElements = hn::MaxLanes(KeyTag<T>());
  for (std::int64_t next = 0; next < tile.count; next += kElements) {
    const std::int64_t start = next + kElements <= tile.count ? next : tile.count - kElements;
    auto v = LoadKeyLanes<T>(tile.data + start * static_cast<std::int64_t>(sizeof(T)));
    if constexpr (kNan) v = hn::And(v, hn::Set(d, std::numeric_limits<KeyLane<T> >::max()));
    const auto found = kNan ? hn::Gt(v, hn::Set(d, lane)) : hn::Eq(v, hn::Set(d, lane));
    if (!hn::AllFalse(d, found)) return tile.first_index + start + hn::FindFirstTrue(d, found);
  }
  return tile.first_index + tile.count - 1;  // only if someone wrote to the array meanwhile
}

// Takes the range of a tile into kExtrema, and kCounts too for little more: that a tile has no NaN shows in its range.
template <class T, bool kWithCounts>
HWY_INLINE void TakeRange(const Tile& tile, Range<T> range, Partial* into) {
  ExtremaState& extrema = into->extrema;
  if constexpr (kIsFloat<T>) {
    if (tile.extent != nullptr) *tile.extent = range.extent;
    if (range.has_nan) {
      if (extrema.nan_index == kNoIndex) extrema.nan_index = FindFirst<T, true>(tile, kInfinityKey<T>);
      range = RangeOf<T, true, kWithCounts>(tile);
    }
  }
  if constexpr (kWithCounts) {
    into->nonzero += tile.count - range.zeros;
    into->nan += range.nans;
  }
  if (range.empty) return;
  // Earlier elements win ties, so where the extremum stands is looked for in a tile that improves on them only.
  const std::int64_t min_key = WidenKey(KeyOfLane<T>(range.lowest));
  if (min_key < extrema.min_key || extrema.min_index == kNoIndex) {
    extrema.min_key = min_key;
    extrema.min_index = FindFirst<T, false>(tile, range.lowest);
  }
  const std::int64_t max_key = WidenKey(KeyOfLane<T>(range.highest));
  if (max_key > extrema.max_key || extrema.max_index == kNoIndex) {
    extrema.max_key = max_key;
    extrema.max_index = FindFirst<T, false>(tile, range.highest);
  }
}

template <class T, bool kWithCounts>
HWY_INLINE void FoldRange(const Tile& tile, Partial* into) {
  if (tile.count >= RangeAcc<T, false, kWithCounts>::kElements) {
    if constexpr (kIsFloat<T>) {
      if (tile.extent != nullptr) {
        return TakeRange<T, kWithCounts>(tile, RangeOf<T, false, kWithCounts, true>(tile), into);
      }
    }
    return TakeRange<T, kWithCounts>(tile, RangeOf<T, false, kWithCounts>(tile), into);
  }
  if constexpr (kWithCounts) Fold<CountsOf<T>, T>(tile, into);
  Fold<ExtremaOf<T>, T>(tile, into);
}

template <class T>
void FoldExtrema(const Tile& tile, Partial* into) {
  FoldRange<T, false>(tile, into);
}

template <class T>
void FoldCountsAndExtrema(const Tile& tile, Partial* into) {
  FoldRange<T, true>(tile, into);
}

#endif  // HWY_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace reduced
HWY_AFTER_NAMESPACE();

#endif  // include guard
