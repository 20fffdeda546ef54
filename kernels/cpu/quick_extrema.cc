#include "kernels/cpu/quick_extrema.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/cpu/row_order.h"
#include "kernels/cpu/targets.h"
// Compiled again for each vector target
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quick_extrema.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h
#include "kernels/cpu/transpose-inl.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reduced {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

QuickExtremaOf ChooseExtrema(DType /*dtype*/, NanPolicy /*nans*/) { return {}; }

#else

template <class T>
HWY_INLINE hn::Vec<KeyTag<T> > KeysOf(hn::Vec<KeyTag<T> > v) {
  if constexpr (kIsFloat<T>) {
    const KeyTag<T> d;
    return hn::Xor(v, hn::And(hn::BroadcastSignBit(v), hn::Set(d, std::numeric_limits<KeyLane<T> >::max())));
  } else {
    return v;
  }
}

template <class T>
HWY_INLINE KeyLane<T> KeyAt(const std::byte* p) {
  return OrderKey<T>::Of(ElementAt<T>(p, 0));
}

// -infinity's is the bitwise complement of infinity's.
template <class T>
constexpr KeyLane<T> kLeastKey = static_cast<KeyLane<T> >(~kInfinityKey<T>);

// What the lowest key is found among: where NaNs are omitted (kOmit), none lies below -infinity; those that lie above
// infinity don't matter. `D`: of lanes of KeyLane<T>.
template <class T, bool kOmit, class D>
HWY_INLINE hn::Vec<D> LowKeys(D d, hn::Vec<D> keys) {
  if constexpr (kOmit) {
    const auto above_all = hn::Set(d, std::numeric_limits<KeyLane<T> >::max());
    return hn::IfThenElse(hn::Lt(keys, hn::Set(d, kLeastKey<T>)), above_all, keys);
  } else {
    return keys;
  }
}
// And the highest.
template <class T, bool kOmit, class D>
HWY_INLINE hn::Vec<D> HighKeys(D d, hn::Vec<D> keys) {
  if constexpr (kOmit) {
    const auto below_all = hn::Set(d, std::numeric_limits<KeyLane<T> >::lowest());
    return hn::IfThenElse(hn::Gt(keys, hn::Set(d, kInfinityKey<T>)), below_all, keys);
  } else {
    return keys;
  }
}
// The same of one key.
template <class T, bool kOmit>
HWY_INLINE KeyLane<T> LowKeyOf(KeyLane<T> key) {
  if constexpr (kOmit) return key < kLeastKey<T> ? std::numeric_limits<KeyLane<T> >::max() : key;
  return key;
}
template <class T, bool kOmit>
HWY_INLINE KeyLane<T> HighKeyOf(KeyLane<T> key) {
  if constexpr (kOmit) return key > kInfinityKey<T> ? std::numeric_limits<KeyLane<T> >::lowest() : key;
  return key;
}

template <class T>
KeyLane<T>* Lowest(QuickExtrema* of) {
  return reinterpret_cast<KeyLane<T>*>(of->lowest);
}
template <class T>
KeyLane<T>* Highest(QuickExtrema* of) {
  return reinterpret_cast<KeyLane<T>*>(of->highest);
}

// Once their keys are there.
template <class T, bool kOmit>
void LookForNans(std::int64_t count, QuickExtrema* of) {
  of->any_nan = false;
  if constexpr (kIsFloat<T>) {
    const auto* const low = Lowest<T>(of);
    const auto* const high = Highest<T>(of);
    for (std::int64_t g = 0; g < count; ++g) {
      of->has_nan[g] = kOmit ? low[g] > kInfinityKey<T> : high[g] > kInfinityKey<T> || low[g] < kLeastKey<T>;
      of->any_nan |= of->has_nan[g];
    }
  }
}

// Writes first + rows of the lanes where the mask is true.
template <class D>
HWY_INLINE void Note(D d, hn::Mask<D> better, std::int64_t first, hn::Vec<D> rows, std::int64_t* at) {
  std::uint8_t bits[8] = {};
  hn::StoreMaskBits(d, better, bits);
  std::uint64_t lanes;
  std::memcpy(&lanes, bits, sizeof(lanes));
  hn::TFromD<D> row[hn::MaxLanes(D())];
  hn::StoreU(rows, d, row);
  for (; lanes != 0; lanes &= lanes - 1) {
    const int lane = __builtin_ctzll(lanes);
    at[lane] = first + row[lane];
  }
}

template <class T, bool kOmit>
void ExtremaOfColumns(const Layout& layout, const std::byte* start, std::int64_t count, Positions positions,
                      QuickExtrema* into) {
  constexpr std::int64_t kBytes = sizeof(T);
  constexpr std::int64_t kLanes = hn::MaxLanes(KeyTag<T>());
  const KeyTag<T> d;
  auto* const low = Lowest<T>(into);
  auto* const high = Highest<T>(into);
  // Where they are is looked up among some rows that have improved on them.
  const bool finds = positions.lowest || positions.highest;
  const RowOrder order = RowOrder::Of(layout, count, kBytes, /*least=*/finds ? 4 : 2);
  const std::int64_t stride = order.stride;

  // The first of n rows that have the keys, lane by lane; those of NaNs that are omitted are not looked for.
  const auto rows_of = [&](hn::Vec<KeyTag<T> > wanted, const std::byte* rows, std::int64_t n) {
    auto found = hn::Zero(d);
    for (std::int64_t r = n - 1; r > 0; --r) {
      const auto keys = KeysOf<T>(LoadKeyLanes<T>(rows + r * stride));
      found = hn::IfThenElse(hn::Eq(keys, wanted), hn::Set(d, static_cast<KeyLane<T> >(r)), found);
    }
    return hn::IfThenElseZero(hn::Ne(KeysOf<T>(LoadKeyLanes<T>(rows)), wanted), found);
  };
  // Of n rows in the columns from g on, which have all lanes.
  const auto compare = [&](const std::byte* rows, std::int64_t n, std::int64_t g, std::int64_t position) {
    const auto keys_of_first = KeysOf<T>(LoadKeyLanes<T>(rows));
    auto lowest = LowKeys<T, kOmit>(d, keys_of_first);
    auto highest = HighKeys<T, kOmit>(d, keys_of_first);
    for (std::int64_t r = 1; r < n; ++r) {
      const auto keys = KeysOf<T>(LoadKeyLanes<T>(rows + r * stride));
      lowest = hn::Min(lowest, LowKeys<T, kOmit>(d, keys));
      highest = hn::Max(highest, HighKeys<T, kOmit>(d, keys));
    }
    const auto low_before = hn::LoadU(d, low + g);
    const auto high_before = hn::LoadU(d, high + g);
    const auto note = [&](auto better, auto wanted, std::int64_t* at) {
      if (!hn::AllFalse(d, better)) Note(d, better, position, rows_of(wanted, rows, n), at + g);
    };
    const bool first = position == 0;
    const auto all = hn::FirstN(d, kLanes);
    if (positions.lowest) note(first ? all : hn::Lt(lowest, low_before), lowest, into->lowest_at);
    if (positions.highest) note(first ? all : hn::Gt(highest, high_before), highest, into->highest_at);
    hn::StoreU(first ? lowest : hn::Min(lowest, low_before), d, low + g);
    hn::StoreU(first ? highest : hn::Max(highest, high_before), d, high + g);
  };
  const auto compare_one = [&](const std::byte* rows, std::int64_t n, std::int64_t g, std::int64_t position) {
    if (position == 0) {
      low[g] = LowKeyOf<T, kOmit>(KeyAt<T>(rows));
      high[g] = HighKeyOf<T, kOmit>(KeyAt<T>(rows));
      into->lowest_at[g] = into->highest_at[g] = 0;
    }
    for (std::int64_t r = 0; r < n; ++r) {
      const KeyLane<T> key = KeyAt<T>(rows + r * stride);
      if (LowKeyOf<T, kOmit>(key) < low[g]) {
        low[g] = key;
        into->lowest_at[g] = position + r;
      }
      if (HighKeyOf<T, kOmit>(key) > high[g]) {
        high[g] = key;
        into->highest_at[g] = position + r;
      }
    }
  };
  for (std::int64_t run = 0; run < layout.elements; run += order.size) {
    const std::byte* const first = start + layout.At(run) * kBytes;
    for (std::int64_t i = 0; i < order.size; i += order.at_once) {
      const std::byte* const rows = first + i * stride;
      const std::int64_t n = std::min(order.at_once, order.size - i);
      order.Fetch(rows, n);
      std::int64_t g = 0;
      for (; g + kLanes <= count; g += kLanes) compare(rows + g * kBytes, n, g, run + i);
      for (; g < count; ++g) compare_one(rows + g * kBytes, n, g, run + i);
    }
  }
  LookForNans<T, kOmit>(count, into);
}

template <class T>
void ClearExtrema(std::int64_t count, QuickExtrema* into) {
  std::fill_n(Lowest<T>(into), count, std::numeric_limits<KeyLane<T> >::max());
  std::fill_n(Highest<T>(into), count, std::numeric_limits<KeyLane<T> >::lowest());
  std::fill_n(into->lowest_at, count, std::numeric_limits<std::int64_t>::max());  // any other one is before it
  std::fill_n(into->highest_at, count, std::numeric_limits<std::int64_t>::max());
  std::fill_n(into->has_nan, count, false);
  into->any_nan = false;
}

template <class T, bool kOmit>
void MergeExtrema(const QuickExtrema& from, std::int64_t at, std::int64_t count, std::int64_t offset, std::int64_t step,
                  Positions positions, QuickExtrema* into) {
  const auto* const from_low = reinterpret_cast<const KeyLane<T>*>(from.lowest) + at;
  const auto* const from_high = reinterpret_cast<const KeyLane<T>*>(from.highest) + at;
  auto* const low = Lowest<T>(into);
  auto* const high = Highest<T>(into);
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  const auto position = [&](std::int64_t p, bool asked) { return !asked ? 0 : p == kNone ? kNone : offset + p * step; };
  for (std::int64_t g = 0; g < count; ++g) {
    const std::int64_t low_at = position(from.lowest_at[at + g], positions.lowest);
    const std::int64_t high_at = position(from.highest_at[at + g], positions.highest);
    if (from_low[g] < low[g] || (from_low[g] == low[g] && low_at < into->lowest_at[g])) {
      low[g] = from_low[g];
      into->lowest_at[g] = low_at;
    }
    if (from_high[g] > high[g] || (from_high[g] == high[g] && high_at < into->highest_at[g])) {
      high[g] = from_high[g];
      into->highest_at[g] = high_at;
    }
  }
  LookForNans<T, kOmit>(count, into);
}

// The extrema of a row that fills vectors.
template <class T, bool kOmit>
void Row(const std::byte* row, std::int64_t elements, KeyLane<T>* low, KeyLane<T>* high) {
  constexpr std::int64_t kBytes = sizeof(T);
  constexpr std::int64_t kLanes = hn::MaxLanes(KeyTag<T>());
  constexpr int kTurns = 4;  // so that no comparison waits for the one before
  const KeyTag<T> d;
  const auto last = KeysOf<T>(LoadKeyLanes<T>(row + (elements - kLanes) * kBytes));
  const auto low_last = LowKeys<T, kOmit>(d, last), high_last = HighKeys<T, kOmit>(d, last);
  hn::Vec<KeyTag<T> > lowest[kTurns] = {low_last, low_last, low_last, low_last};
  hn::Vec<KeyTag<T> > highest[kTurns] = {high_last, high_last, high_last, high_last};
  std::int64_t i = 0;
  for (; i + kTurns * kLanes <= elements; i += kTurns * kLanes) {
    for (int turn = 0; turn < kTurns; ++turn) {
      const auto keys = KeysOf<T>(LoadKeyLanes<T>(row + (i + turn * kLanes) * kBytes));
      lowest[turn] = hn::Min(lowest[turn], LowKeys<T, kOmit>(d, keys));
      highest[turn] = hn::Max(highest[turn], HighKeys<T, kOmit>(d, keys));
    }
  }
  for (; i + kLanes <= elements; i += kLanes) {
    const auto keys = KeysOf<T>(LoadKeyLanes<T>(row + i * kBytes));
    lowest[0] = hn::Min(lowest[0], LowKeys<T, kOmit>(d, keys));
    highest[0] = hn::Max(highest[0], HighKeys<T, kOmit>(d, keys));
  }
  for (int turn = 1; turn < kTurns; ++turn) {
    lowest[0] = hn::Min(lowest[0], lowest[turn]);
    highest[0] = hn::Max(highest[0], highest[turn]);
  }
  *low = ReduceLanes(d, lowest[0], Lesser());
  *high = ReduceLanes(d, highest[0], Greater());
}

// Where the key is first, in a row that fills vectors.
template <class T>
std::int64_t Find(KeyLane<T> key, const std::byte* row, std::int64_t elements) {
  constexpr std::int64_t kBytes = sizeof(T);
  constexpr std::int64_t kLanes = hn::MaxLanes(KeyTag<T>());
  const KeyTag<T> d;
  const auto wanted = hn::Set(d, key);
  for (std::int64_t i = 0;; i = std::min(i + kLanes, elements - kLanes)) {
    const auto found = hn::FindFirstTrue(d, hn::Eq(KeysOf<T>(LoadKeyLanes<T>(row + i * kBytes)), wanted));
    if (found >= 0) return i + found;
    // Not found: nothing but NaNs, which are omitted, or someone wrote to the array meanwhile.
    if (i == elements - kLanes) return elements - 1;
  }
}

// Rows of fewer elements are transposed: kAcross of them, or those that there are.
template <class T>
constexpr std::int64_t kShortRow = std::min<std::int64_t>(hn::MaxLanes(KeyTag<T>()), 64);

template <class T, bool kOmit>
HWY_INLINE void ShortRows(const std::byte* start, std::int64_t elements, bool more, QuickExtrema* into,
                          std::int64_t g) {
  using D = hn::CappedTag<KeyLane<T>, kAcross>;
  constexpr D kTag;
  constexpr std::int64_t kLanes = hn::MaxLanes(D());
  WordOf<T> across[kShortRow<T> * kAcross];
  TransposeRows(start, elements, more, across);
  for (std::int64_t r = 0; r < kAcross; r += kLanes) {
    const auto keys_at = [&](std::int64_t i) {
      const auto v = hn::LoadU(kTag, reinterpret_cast<const KeyLane<T>*>(across + i * kAcross + r));
      if constexpr (std::is_same_v<T, Bool>) {
        return hn::Min(v, hn::Set(kTag, KeyLane<T>{1}));
      } else if constexpr (kIsFloat<T>) {
        return hn::Xor(v, hn::And(hn::BroadcastSignBit(v), hn::Set(kTag, std::numeric_limits<KeyLane<T> >::max())));
      } else {
        return v;
      }
    };
    const auto keys_of_first = keys_at(0);
    auto lowest = LowKeys<T, kOmit>(kTag, keys_of_first);
    auto highest = HighKeys<T, kOmit>(kTag, keys_of_first);
    auto lowest_at = hn::Zero(kTag);
    auto highest_at = hn::Zero(kTag);
    for (std::int64_t i = 1; i < elements; ++i) {
      const auto keys = keys_at(i);
      const auto low = LowKeys<T, kOmit>(kTag, keys), high = HighKeys<T, kOmit>(kTag, keys);
      const auto position = hn::Set(kTag, static_cast<KeyLane<T> >(i));
      lowest_at = hn::IfThenElse(hn::Lt(low, lowest), position, lowest_at);
      highest_at = hn::IfThenElse(hn::Gt(high, highest), position, highest_at);
      lowest = hn::Min(lowest, low);
      highest = hn::Max(highest, high);
    }
    hn::StoreU(lowest, kTag, Lowest<T>(into) + g + r);
    hn::StoreU(highest, kTag, Highest<T>(into) + g + r);
    const auto store = [&](auto at, std::int64_t* out) {
      KeyLane<T> each[kLanes];
      hn::StoreU(at, kTag, each);
      for (std::int64_t lane = 0; lane < kLanes; ++lane) out[g + r + lane] = each[lane];
    };
    store(lowest_at, into->lowest_at);
    store(highest_at, into->highest_at);
  }
}

// Of a few elements, one by one.
template <class T, bool kOmit>
HWY_INLINE void FewExtrema(const std::byte* from, std::int64_t elements, std::int64_t g, QuickExtrema* into) {
  constexpr std::int64_t kBytes = sizeof(T);
  KeyLane<T> low = LowKeyOf<T, kOmit>(KeyAt<T>(from));
  KeyLane<T> high = HighKeyOf<T, kOmit>(KeyAt<T>(from));
  std::int64_t low_at = 0, high_at = 0;
  for (std::int64_t i = 1; i < elements; ++i) {
    const KeyLane<T> key = KeyAt<T>(from + i * kBytes);
    const KeyLane<T> low_key = LowKeyOf<T, kOmit>(key), high_key = HighKeyOf<T, kOmit>(key);
    low_at = low_key < low ? i : low_at;
    high_at = high_key > high ? i : high_at;
    low = std::min(low, low_key);
    high = std::max(high, high_key);
  }
  Lowest<T>(into)[g] = low;
  Highest<T>(into)[g] = high;
  into->lowest_at[g] = low_at;
  into->highest_at[g] = high_at;
}

template <class T, bool kOmit>
void ExtremaOfRows(const std::byte* start, std::int64_t elements, std::int64_t count, Positions positions,
                   QuickExtrema* into) {
  const std::int64_t bytes = elements * static_cast<std::int64_t>(sizeof(T));
  std::int64_t g = 0;
  for (; elements < kShortRow<T> && g + kAcross <= count; g += kAcross) {
    ShortRows<T, kOmit>(start + g * bytes, elements, /*more=*/g + 2 * kAcross <= count, into, g);
  }
  for (; g < count; ++g) {
    const std::byte* const row = start + g * bytes;
    if (elements < hn::MaxLanes(KeyTag<T>())) {
      FewExtrema<T, kOmit>(row, elements, g, into);
      continue;
    }
    KeyLane<T>* const low = Lowest<T>(into) + g;
    KeyLane<T>* const high = Highest<T>(into) + g;
    Row<T, kOmit>(row, elements, low, high);
    if (positions.lowest) into->lowest_at[g] = Find<T>(*low, row, elements);
    if (positions.highest) into->highest_at[g] = Find<T>(*high, row, elements);
  }
  LookForNans<T, kOmit>(count, into);
}

// The extrema of at least one and at most a vector of elements, by one load of a whole vector, all of which may be
// read.
template <class T, bool kOmit>
HWY_INLINE void ExtremaInVector(const std::byte* from, std::int64_t elements, Positions positions, std::int64_t g,
                                QuickExtrema* into) {
  using Key = KeyLane<T>;
  const KeyTag<T> d;
  const auto keys = KeysOf<T>(LoadKeyLanes<T>(from));
  const auto there = hn::FirstN(d, static_cast<std::size_t>(elements));
  const auto lows = hn::IfThenElse(there, LowKeys<T, kOmit>(d, keys), hn::Set(d, std::numeric_limits<Key>::max()));
  const auto highs = hn::IfThenElse(there, HighKeys<T, kOmit>(d, keys), hn::Set(d, std::numeric_limits<Key>::lowest()));
  const Key low = hn::GetLane(hn::MinOfLanes(d, lows));
  const Key high = hn::GetLane(hn::MaxOfLanes(d, highs));
  const auto first_of = [&](Key key) HWY_ATTR {
    const auto found = hn::FindFirstTrue(d, hn::And(there, hn::Eq(keys, hn::Set(d, key))));
    return found >= 0 ? found : elements - 1;  // as Find
  };
  Lowest<T>(into)[g] = low;
  Highest<T>(into)[g] = high;
  if (positions.lowest) into->lowest_at[g] = first_of(low);
  if (positions.highest) into->highest_at[g] = first_of(high);
}

template <class T, bool kOmit>
void ExtremaOfSegments(const std::byte* start, const std::int64_t* bounds, std::int64_t count, Positions positions,
                       QuickExtrema* into) {
  constexpr std::int64_t kLanes = hn::MaxLanes(KeyTag<T>());
  constexpr bool kReducesLanes = sizeof(T) > 1;  // there are instructions for the extremum of a vector's lanes
  constexpr std::int64_t kFew = kReducesLanes ? kLanes : std::max<std::int64_t>(kLanes, 32);
  for (std::int64_t g = 0; g < count; ++g) {
    const std::byte* const from = start + bounds[g] * static_cast<std::int64_t>(sizeof(T));
    const std::int64_t elements = bounds[g + 1] - bounds[g];
    KeyLane<T>* const low = Lowest<T>(into) + g;
    KeyLane<T>* const high = Highest<T>(into) + g;
    if (elements == 0) {
      *low = *high = 0;
    } else if (elements < kFew) {
      if constexpr (kReducesLanes) {
        if (bounds[g] + kLanes <= bounds[count]) {
          ExtremaInVector<T, kOmit>(from, elements, positions, g, into);
          continue;
        }
      }
      FewExtrema<T, kOmit>(from, elements, g, into);
    } else {
      Row<T, kOmit>(from, elements, low, high);
      if (positions.lowest) into->lowest_at[g] = Find<T>(*low, from, elements);
      if (positions.highest) into->highest_at[g] = Find<T>(*high, from, elements);
    }
  }
  if constexpr (!kIsFloat<T>) std::fill_n(into->has_nan, count, false);
  LookForNans<T, kOmit>(count, into);
  for (std::int64_t g = 0; g < count; ++g) {
    if (bounds[g] == bounds[g + 1]) into->has_nan[g] = into->any_nan = true;
  }
}

// max - min: of floats in f64, of integers exactly, as their keys differ by what they do.
template <class T>
HWY_INLINE void StoreRanges(const QuickExtrema& extrema, std::int64_t first, std::int64_t count, std::byte* out) {
  const auto* const lowest = reinterpret_cast<const KeyLane<T>*>(extrema.lowest) + first;
  const auto* const highest = reinterpret_cast<const KeyLane<T>*>(extrema.highest) + first;
  for (std::int64_t g = 0; g < count; ++g) {
    const auto range = [&] {
      if constexpr (kIsFloat<T>) {
        return ToDouble(std::bit_cast<T>(BitsOfKey<T>(highest[g]))) -
               ToDouble(std::bit_cast<T>(BitsOfKey<T>(lowest[g])));
      } else {
        return static_cast<std::uint64_t>(highest[g]) - static_cast<std::uint64_t>(lowest[g]);
      }
    }();
    std::memcpy(out + g * static_cast<std::int64_t>(sizeof(range)), &range, sizeof(range));
  }
}

template <class T>
void StoreExtrema(const QuickExtrema& extrema, Op op, std::int64_t first, std::int64_t count, std::byte* out) {
  const bool lowest = IsOfLowest(op);
  if (HasPosition(op)) {
    std::memcpy(out, (lowest ? extrema.lowest_at : extrema.highest_at) + first,
                static_cast<std::size_t>(count) * sizeof(std::int64_t));
    return;
  }
  if (op == Op::kRange) return StoreRanges<T>(extrema, first, count, out);
  const auto* const keys = reinterpret_cast<const KeyLane<T>*>(lowest ? extrema.lowest : extrema.highest) + first;
  for (std::int64_t g = 0; g < count; ++g) {
    const KeyLane<T> bits = BitsOfKey<T>(keys[g]);
    std::memcpy(out + g * static_cast<std::int64_t>(sizeof(T)), &bits, sizeof(T));
  }
}

template <class T, bool kOmit>
QuickExtremaOf ExtremaOf() {
  return {&ExtremaOfColumns<T, kOmit>, &ExtremaOfRows<T, kOmit>, &ExtremaOfSegments<T, kOmit>, &ClearExtrema<T>,
          &MergeExtrema<T, kOmit>,     &StoreExtrema<T>};
}

QuickExtremaOf ChooseExtrema(DType dtype, NanPolicy nans) {
  return VisitDType(dtype, [nans]<class T>(std::type_identity<T>) -> QuickExtremaOf {
    if constexpr (kIsF8<T>) {
      return {};
    } else {
      if constexpr (kIsFloat<T>) {
        if (nans == NanPolicy::kOmit) return ExtremaOf<T, true>();
      }
      return ExtremaOf<T, false>();
    }
  });
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace reduced
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reduced {

HWY_EXPORT(ChooseExtrema);

QuickExtremaOf QuickExtremaFor(DType dtype, NanPolicy nans) { return HWY_DYNAMIC_DISPATCH(ChooseExtrema)(dtype, nans); }

}  // namespace reduced
#endif
