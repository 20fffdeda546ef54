// See exact_tiles.h. Compiled without contraction of floating-point expressions: the splitting depends on each
// operation's own rounding.
#include "kernels/cpu/exact_tiles.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "kernels/algebra/float_format.h"
#include "kernels/cpu/targets.h"
// Compiled again for each vector target
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/exact_tiles.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h
#include "kernels/algebra/doubles-inl.h"
#include "kernels/cpu/near_tiles-inl.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reduced {
namespace HWY_NAMESPACE {

// The number of `into` that accumulator kA sums up in.
template <Accumulator kA>
HWY_INLINE auto& SumOfKind(ExactSums* into) {
  if constexpr (kA == Accumulator::kSum) return into->sum;
  if constexpr (kA == Accumulator::kAbsSum) return into->abs_sum;
  if constexpr (kA == Accumulator::kSumSquares) return into->sum_squares;
}

#if HWY_TARGET == HWY_SCALAR

template <class T, Accumulator kA>
void FoldTileExactly(const ExactTile& tile, ExactOutlook*, ExactSums* into) {
  AddElements<T>(tile, 0, SetOf(kA), into);
}

#else

// Bins are so far apart, and a bin takes magnitudes up to 2^(kBinBits - 1) of its units. It holds 2^(52 - kBinBits) of
// them a lane, which is as many as a vector of two lanes gets of a tile's elements.
constexpr int kBinBits = 42;
static_assert(kExactTileElements / 2 <= std::int64_t{1} << (52 - kBinBits));

// What f64 can anchor: the first anchor must be finite, the last unit is that of the smallest number.
constexpr int kLargestTop = 1010;
constexpr int kSmallestTop = -1000;

// Where bin b is that begins with numbers of up to 2^top.
constexpr int UnitOf(int top, int b) { return std::max(top - (kBinBits - 1) - b * kBinBits, -1074); }
constexpr double AnchorOf(int top, int b) { return 1.5 * PowerOfTwo(52 + UnitOf(top, b)); }

// The lowest top for `largest` > 0.
HWY_INLINE int TopFor(double largest) {
  return std::max(static_cast<int>(std::bit_cast<std::uint64_t>(largest) >> 52) - 1022, kSmallestTop);
}

// How accumulator kA sees elements T: as kValues numbers of f64 whose sum is, exactly, what is to be summed up.
template <class T, Accumulator kA>
struct TermsOf {
  static constexpr bool kTwo = kA == Accumulator::kSumSquares && std::is_same_v<T, double>;
  static constexpr int kValues = kTwo ? 2 : 1;
  // Enough for numbers of some 50 binades.
  static constexpr int kBins = kTwo ? 4 : std::is_same_v<T, double> || kA == Accumulator::kSumSquares ? 3 : 2;
  // Other elements are added by Add: NaNs and infinities; those that can't be anchored; those whose square is too large
  // or too small for its two terms to be exact.
  static constexpr double kLargest = kTwo ? 0x1p500 : std::is_same_v<T, double> ? PowerOfTwo(kLargestTop) : 0x1p200;
  static constexpr double kSmallest = kTwo ? 0x1p-480 : 0;

  // The first term and, if there are two, the second, at most 2^-53 of the first.
  static HWY_INLINE VExact First(VExact x) {
    if constexpr (kA == Accumulator::kSum) return x;
    if constexpr (kA == Accumulator::kAbsSum) return hn::Abs(x);
    if constexpr (kA == Accumulator::kSumSquares) return hn::Mul(x, x);
  }
  static HWY_INLINE VExact Second(VExact x, VExact square) {
#if HWY_NATIVE_FMA
    return hn::MulSub(x, x, square);
#else  // T. J. Dekker, "A floating-point technique for extending the available precision" (1971)
    const VExact scaled = hn::Mul(x, hn::Set(DExact(), 0x1p27 + 1));
    const VExact high = hn::Sub(scaled, hn::Sub(scaled, x));
    const VExact low = hn::Sub(x, high);
    const VExact both = hn::Mul(high, low);
    const VExact rest = hn::Add(hn::Add(hn::Sub(hn::Mul(high, high), square), both), both);
    return hn::Add(rest, hn::Mul(low, low));
#endif
  }
  static HWY_INLINE auto Ordinary(VExact x) {
    const DExact d;
    const VExact magnitude = hn::Abs(x);
    const auto small_enough = hn::Le(magnitude, hn::Set(d, kLargest));
    if constexpr (!kTwo) return small_enough;
    return hn::And(small_enough, hn::Or(hn::Ge(magnitude, hn::Set(d, kSmallest)), hn::Eq(x, hn::Zero(d))));
  }
};

template <int kBins>
struct Bins {
  VExact bin[kBins];

  HWY_INLINE explicit Bins(int top) {
    for (int b = 0; b < kBins; ++b) bin[b] = hn::Set(DExact(), AnchorOf(top, b));
  }
  // Adds x to the bins from `first` on; gives what is left over.
  template <int kFirst = 0>
  HWY_INLINE VExact Deposit(VExact x) {
#pragma GCC unroll 8
    for (int b = kFirst; b < kBins; ++b) {
      const VExact sum = hn::Add(bin[b], x);
      x = hn::Sub(x, hn::Sub(sum, bin[b]));
      bin[b] = sum;
    }
    return x;
  }
};

// Adds what two sets of bins, anchored for `top`, have.
template <int kBins, class Number>
HWY_INLINE void Flush(const Bins<kBins>& x, const Bins<kBins>& y, int top, Number& into) {
  const DExact d;
  for (int b = 0; b < kBins; ++b) {
    alignas(64) double lanes[2 * kExactLanes];
    hn::Store(x.bin[b], d, lanes);
    hn::Store(y.bin[b], d, lanes + kExactLanes);
    std::uint64_t units = 0;
    for (const double lane : lanes) units += std::bit_cast<std::uint64_t>(lane);
    units -= 2 * kExactLanes * std::bit_cast<std::uint64_t>(AnchorOf(top, b));
    into.Add(static_cast<std::int64_t>(units), UnitOf(top, b));
  }
}

HWY_INLINE double LargestLane(VExact v) {
  const DExact d;
  alignas(64) double lanes[kExactLanes];
  hn::Store(v, d, lanes);
  return *std::max_element(lanes, lanes + kExactLanes);
}

// Whether all bits but signs are 0.
HWY_INLINE bool NothingIn(VExact v) {
  const hn::RebindToUnsigned<DExact> du;
  const auto bits = hn::BitCast(du, v);
  return hn::AllTrue(du, hn::Eq(hn::Add(bits, bits), hn::Zero(du)));
}

// Of the first `count` elements of a tile: if all go as expected, adds them and gives true.
template <class T, Accumulator kA>
HWY_INLINE bool FoldExpected(const ExactTile& tile, std::int64_t count, int top, double* largest, ExactSums* into) {
  using Terms = TermsOf<T, kA>;
  constexpr std::int64_t kVectorBytes = kExactLanes * sizeof(T);
  const DExact d;
  Bins<Terms::kBins> even(top);
  Bins<Terms::kBins> odd(top);
  VExact left = hn::Zero(d);
  VExact largest_even = left;
  VExact largest_odd = left;
  const auto deposit = [&](const std::byte* p, Bins<Terms::kBins>& bins, VExact& lane_largest) HWY_ATTR {
    const VExact x = LoadDoubles<T>(d, p);
    const VExact first = Terms::First(x);
    // Any NaN, or infinity, leaves a NaN over.
    lane_largest = hn::Max(lane_largest, kA == Accumulator::kSum ? hn::Abs(first) : first);
    left = hn::Or(left, bins.Deposit(first));
    if constexpr (Terms::kTwo) {
      left = hn::Or(left, bins.template Deposit<1>(Terms::Second(x, first)));
      left = hn::Or(left, hn::IfThenZeroElse(Terms::Ordinary(x), hn::Set(d, 1.0)));
    }
  };
  for (std::int64_t i = 0; i < count; i += kStep) {
    const std::byte* const p = tile.data + i * static_cast<std::int64_t>(sizeof(T));
    FetchAhead(p, 2 * kVectorBytes);
    deposit(p, even, largest_even);
    deposit(p + kVectorBytes, odd, largest_odd);
  }
  *largest = std::max(LargestLane(largest_even), LargestLane(largest_odd));
  if (!NothingIn(left) || !(*largest <= PowerOfTwo(top))) return false;
  Flush(even, odd, top, SumOfKind<kA>(into));
  return true;
}

// Adds the numbers of a buffer of `count`, whatever they are up to 2^kLargestTop, and leaves zeros in it; gives the
// number of rounds that took. `largest`: of their magnitudes.
template <class Number>
HWY_INLINE int FoldBuffer(double* buffer, std::int64_t count, double largest, Number& into) {
  constexpr int kBufferBins = 3;
  const DExact d;
  int rounds = 0;
  for (; largest > 0; ++rounds) {
    const int top = TopFor(largest);
    Bins<kBufferBins> even(top);
    Bins<kBufferBins> odd(top);
    VExact most = hn::Zero(d);
    for (std::int64_t i = 0; i < count; i += kStep) {
      const VExact x = even.Deposit(hn::Load(d, buffer + i));
      const VExact y = odd.Deposit(hn::Load(d, buffer + i + kExactLanes));
      most = hn::Max(most, hn::Max(hn::Abs(x), hn::Abs(y)));
      hn::Store(x, d, buffer + i);
      hn::Store(y, d, buffer + i + kExactLanes);
    }
    Flush(even, odd, top, into);
    largest = LargestLane(most);
  }
  return rounds;
}

// Adds the first `count` elements of a tile, whatever they are. `largest`: of their terms' magnitudes, but for those
// that are added by themselves.
template <class T, Accumulator kA>
int FoldUnexpected(const ExactTile& tile, std::int64_t count, double* largest, ExactSums* into) {
  using Terms = TermsOf<T, kA>;
  static_assert(kExactTileBytes / static_cast<std::int64_t>(sizeof(double)) * 2 <= kExactTileElements);
  alignas(64) double buffer[kExactTileElements];
  const DExact d;
  VExact most = hn::Zero(d);
  for (std::int64_t i = 0; i < count; i += kExactLanes) {
    VExact x = LoadDoubles<T>(d, tile.data + i * static_cast<std::int64_t>(sizeof(T)));
    const auto ordinary = Terms::Ordinary(x);
    if (!hn::AllTrue(d, ordinary)) {
      alignas(64) double others[kExactLanes];
      alignas(64) double ones[kExactLanes];
      hn::Store(x, d, others);
      hn::Store(hn::IfThenElseZero(ordinary, hn::Set(d, 1.0)), d, ones);
      for (std::int64_t lane = 0; lane < kExactLanes; ++lane) {
        if (ones[lane] == 0) Add(others[lane], SetOf(kA), tile.specials_counted, into);
      }
      x = hn::IfThenElseZero(ordinary, x);
    }
    const VExact first = Terms::First(x);
    most = hn::Max(most, hn::Abs(first));
    hn::Store(first, d, buffer + i);
    if constexpr (Terms::kTwo) hn::Store(Terms::Second(x, first), d, buffer + count + i);
  }
  *largest = LargestLane(most);
  return FoldBuffer(buffer, Terms::kValues * count, *largest, SumOfKind<kA>(into));
}

template <class T, Accumulator kA>
void FoldTileExactly(const ExactTile& tile, ExactOutlook* outlook, ExactSums* into) {
  // More than fluctuates from tile to tile.
  constexpr int kSlack = 2;
  // So many tiles are not even tried.
  constexpr int kPatience = 16;
  const std::int64_t count = tile.count / kStep * kStep;
  double largest = 0;
  bool done = false;
  if (outlook->wide > 0) {
    --outlook->wide;
  } else if (outlook->top != ExactOutlook::kNoTop) {
    done = FoldExpected<T, kA>(tile, count, outlook->top, &largest, into);
  }
  if (!done) {
    const int rounds = FoldUnexpected<T, kA>(tile, count, &largest, into);
    if (largest > 0) outlook->top = std::min(TopFor(largest) + kSlack, kLargestTop);
    if (rounds > 1) outlook->wide = kPatience;
  }
  if constexpr (kA == Accumulator::kSum) LookAtZeros<T>(tile, count, largest > 0, into);
  AddElements<T>(tile, count, SetOf(kA), into);
}

// SetSpecialsAside of the elements that fill whole vectors; returns how many these are.
template <class T>
HWY_INLINE std::int64_t SetSpecialsOfVectorsAside(const ExactTile& tile, std::byte* finite, ExactSums* into) {
  const KeyTag<T> d;
  constexpr std::int64_t kLanes = hn::MaxLanes(KeyTag<T>());
  constexpr KeyLane<T> kSign = std::numeric_limits<KeyLane<T> >::min();  // and -0
  constexpr KeyLane<T> kRest = std::numeric_limits<KeyLane<T> >::max();
  std::size_t specials = 0;
  std::size_t nans = 0;
  std::size_t negative_infinities = 0;
  std::int64_t i = 0;
  for (; i + kLanes <= tile.count; i += kLanes) {
    const std::int64_t at = i * static_cast<std::int64_t>(sizeof(T));
    FetchAhead(tile.data + at + kExactTileBytes, kLanes * sizeof(T));
    const auto v = LoadKeyLanes<T>(tile.data + at);
    const auto magnitude = hn::And(v, hn::Set(d, kRest));
    const auto special = hn::Gt(magnitude, hn::Set(d, static_cast<KeyLane<T> >(kInfinityKey<T> - 1)));
    specials += hn::CountTrue(d, special);
    nans += hn::CountTrue(d, hn::Gt(magnitude, hn::Set(d, kInfinityKey<T>)));
    negative_infinities += hn::CountTrue(d, hn::Eq(v, hn::Set(d, static_cast<KeyLane<T> >(kInfinityKey<T> | kSign))));
    hn::StoreU(hn::IfThenElse(special, hn::Set(d, kSign), v), d, reinterpret_cast<KeyLane<T>*>(finite + at));
  }
  into->nans += static_cast<std::int64_t>(nans);
  into->negative_infinities += static_cast<std::int64_t>(negative_infinities);
  into->positive_infinities += static_cast<std::int64_t>(specials - nans - negative_infinities);
  return i;
}

#endif  // HWY_TARGET == HWY_SCALAR

template <class T, AccumulatorSet kSet>
constexpr FoldIfNear NearFoldFor() {
#if HWY_TARGET != HWY_SCALAR
  // Products before they are rounded take an instruction of their own.
  constexpr bool kSquares = (kSet & SetOf(Accumulator::kSumSquares)) != 0;
  if constexpr (HWY_NATIVE_FMA || !kSquares) return &FoldTileIfNear<T, kSet>;
#endif
  return nullptr;
}

template <class T>
bool SetSpecialsAsideOf(const ExactTile& tile, AccumulatorSet accumulators, std::byte* finite, ExactSums* into) {
  const std::int64_t before = into->specials();
  std::int64_t done = 0;
#if HWY_TARGET != HWY_SCALAR
  done = SetSpecialsOfVectorsAside<T>(tile, finite, into);
#endif
  for (std::int64_t i = done; i < tile.count; ++i) {
    T x = ElementAt<T>(tile.data, i);
    if (!std::isfinite(ToDouble(x))) {
      Add(ToDouble(x), /*set=*/0, /*elsewhere=*/false, into);
      x = FromDouble<T>(-0.0);
    }
    std::memcpy(finite + i * static_cast<std::int64_t>(sizeof(T)), &x, sizeof(T));
  }
  const std::int64_t infinities = into->positive_infinities + into->negative_infinities;
  if (infinities > 0 && (accumulators & SetOf(Accumulator::kSum)) != 0) into->not_only_negative_zeros = true;
  return into->specials() != before;
}

template <class T>
constexpr ExactTileFolds ExactFoldsFor() {
  static_assert(kExactAccumulators == 7);
  return {.of = {&FoldTileExactly<T, Accumulator::kSum>, &FoldTileExactly<T, Accumulator::kAbsSum>,
                 &FoldTileExactly<T, Accumulator::kSumSquares>},
          .if_near = {nullptr, NearFoldFor<T, 1>(), NearFoldFor<T, 2>(), NearFoldFor<T, 3>(), NearFoldFor<T, 4>(),
                      NearFoldFor<T, 5>(), NearFoldFor<T, 6>(), NearFoldFor<T, 7>()},
          .set_specials_aside = &SetSpecialsAsideOf<T>};
}

const ExactTileFolds* ExactFolds(DType dtype) {
  return VisitDType(dtype, []<class T>(std::type_identity<T>) -> const ExactTileFolds* {
    if constexpr (kIsFloat<T> && !kIsF8<T>) {
      static constexpr ExactTileFolds kFolds = ExactFoldsFor<T>();
      return &kFolds;
    }
    return nullptr;
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace reduced
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reduced {

HWY_EXPORT(ExactFolds);

const ExactTileFolds& ExactTileFoldsOf(DType dtype) { return *HWY_DYNAMIC_DISPATCH(ExactFolds)(dtype); }

ExactFolder::ExactFolder(DType dtype, AccumulatorSet accumulators)
    : accumulators_(accumulators),
      element_bytes_(RowOf(dtype).bytes),
      widen_(WidenElementsOf(dtype)),
      tile_elements_(std::min(kExactTileElements, kExactTileBytes / element_bytes_)),
      fold_if_near_(ExactTileFoldsOf(WideDType(dtype)).if_near[accumulators]),
      set_specials_aside_(ExactTileFoldsOf(WideDType(dtype)).set_specials_aside) {
  const ExactTileFolds& folds = ExactTileFoldsOf(WideDType(dtype));
  for (std::size_t a = 0; a < folds.of.size(); ++a) {
    if ((accumulators & SetOf(static_cast<Accumulator>(a))) != 0) folds_[fold_count_++] = folds.of[a];
  }
}

void ExactFolder::Fold(const void* elements, std::int64_t count, const std::optional<Extent>& extent) {
  const auto* const begin = static_cast<const std::byte*>(elements);
  alignas(64) std::byte wide[kExactTileBytes];
  for (std::int64_t done = 0; done < count; done += tile_elements_) {
    const std::byte* data = begin + done * element_bytes_;
    const std::int64_t size = std::min(tile_elements_, count - done);
    if (widen_ != nullptr) data = (widen_(data, size, wide), wide);
    FoldTile({.data = data, .count = size, .extent = extent});
  }
}

void ExactFolder::FoldTile(ExactTile tile) {
  constexpr int kPatience = 16;  // so many tiles are not even tried
  alignas(64) std::byte finite[kExactTileBytes];
  const auto set_specials_aside = [&] {
    specials_ = set_specials_aside_(tile, accumulators_, finite, &sums_);
    if (specials_) tile = {.data = finite, .count = tile.count, .specials_counted = true};
  };
  if (tile.extent.has_value()) specials_ = false;
  if (specials_) set_specials_aside();
  if (far_ > 0) {
    --far_;
  } else if (fold_if_near_ != nullptr) {
    Nearness nearness = fold_if_near_(tile, &sums_);
    if (nearness == Nearness::kOther && !tile.specials_counted) {
      set_specials_aside();
      if (specials_) nearness = fold_if_near_(tile, &sums_);
    }
    if (nearness == Nearness::kNear) return;
    if (nearness == Nearness::kTooFar) far_ = kPatience;
  }
  const std::int64_t before = sums_.specials();
  for (std::size_t i = 0; i < fold_count_; ++i) {
    folds_[i](tile, &outlooks_[i], &sums_);
    tile.specials_counted = true;
  }
  specials_ = specials_ || sums_.specials() != before;
}

}  // namespace reduced
#endif
