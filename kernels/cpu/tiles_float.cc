// The tile functions of f16, bf16, f32 and f64. Every element is widened to f64, which is exact, before anything is
// added or multiplied.
#include <algorithm>

#include "kernels/cpu/targets.h"
// Compiled again for each vector target
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/tiles_float.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h
#include "kernels/algebra/doubles-inl.h"
#include "kernels/cpu/extrema-inl.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reduced {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

template <class T, class... As>
void FoldSums(const Tile& tile, Partial* into) {
  (Fold<As, T>(tile, into), ...);
}

template <class T, class... As>
void FoldCountsExtremaAndSums(const Tile& tile, Partial* into) {
  FoldCountsAndExtrema<T>(tile, into);
  FoldSums<T, As...>(tile, into);
}

#else

// Sums are kept in vectors of four doubles. AVX-512 adds to two of them by one instruction: see Pair<SumsAcc>.
using DF64 = hn::CappedTag<double, 4>;
using DI64 = hn::RebindToSigned<DF64>;
using VF64 = hn::Vec<DF64>;
constexpr std::int64_t kDoubles = hn::MaxLanes(DF64());

// sum + x. Where there are registers enough to keep a 1, by the multipliers, which are idle while the adders are busy
// with widening too (AMD Zen 4: moments are 1.3 times as fast).
template <class D>
HWY_INLINE hn::Vec<D> AddTo(D d, hn::Vec<D> sum, hn::Vec<D> x) {
#if HWY_TARGET == HWY_AVX3
  return hn::MulAdd(x, hn::Set(d, 1.0), sum);
#else
  (void)d;
  return hn::Add(sum, x);
#endif
}

// ---- kSum, kAbsSum, kSumSquares and kMoments: any of them in one loop, as most of what one costs is widening the
// elements

template <class... As>
inline constexpr AccumulatorSet kSetOf = (SetOf(As::kAccumulator) | ...);
constexpr bool Has(AccumulatorSet set, Accumulator a) { return (set & SetOf(a)) != 0; }

// The sums that kSet takes, by lane; the others stay 0. Deviations are from the tile's first element: see
// accumulator.h.
template <class T, AccumulatorSet kSet, class D = DF64>
struct SumsAcc {
  using Element = T;
  using V = hn::Vec<D>;
  static constexpr std::int64_t kElements = hn::MaxLanes(D());
  T first;
  V pivot;
  V sum;
  V magnitudes;
  V squares;
  V deviations;
  V squared_deviations;

  HWY_INLINE explicit SumsAcc(T first_of_tile)
      : first(first_of_tile),
        pivot(hn::Set(D(), ToDouble(first))),
        sum(hn::Zero(D())),
        magnitudes(sum),
        squares(sum),
        deviations(sum),
        squared_deviations(sum) {}
  HWY_INLINE void Add(const std::byte* p) {
    const D d;
    const V x = LoadDoubles<T>(d, p);
    if constexpr (Has(kSet, Accumulator::kSum)) sum = AddTo(d, sum, x);
    if constexpr (Has(kSet, Accumulator::kAbsSum)) magnitudes = AddTo(d, magnitudes, hn::Abs(x));
    if constexpr (Has(kSet, Accumulator::kSumSquares)) squares = hn::MulAdd(x, x, squares);
    if constexpr (Has(kSet, Accumulator::kMoments)) {
      const V deviation = hn::Sub(x, pivot);
      deviations = AddTo(d, deviations, deviation);
      squared_deviations = hn::MulAdd(deviation, deviation, squared_deviations);
    }
  }
  HWY_INLINE void Merge(const SumsAcc& other) {
    sum = hn::Add(sum, other.sum);
    magnitudes = hn::Add(magnitudes, other.magnitudes);
    squares = hn::Add(squares, other.squares);
    deviations = hn::Add(deviations, other.deviations);
    squared_deviations = hn::Add(squared_deviations, other.squared_deviations);
  }
};

#if HWY_TARGET == HWY_AVX3

// Side by side in vectors of eight: half the instructions, and the same order of addition, so the same bits, as AVX2.
using DWide = hn::CappedTag<double, 8>;

template <class T, AccumulatorSet kSet>
struct Pair<SumsAcc<T, kSet>> {
  using Each = SumsAcc<T, kSet>;
  SumsAcc<T, kSet, DWide> both;

  HWY_INLINE explicit Pair(const Each& each) : both(each.first) {}
  HWY_INLINE void Add(const std::byte* p) { both.Add(p); }
  HWY_INLINE Each First() const { return Half<false>(); }
  HWY_INLINE Each Second() const { return Half<true>(); }

 private:
  template <bool kUpper>
  static HWY_INLINE VF64 HalfOf(hn::Vec<DWide> v) {
    return kUpper ? hn::UpperHalf(DF64(), v) : hn::LowerHalf(DF64(), v);
  }
  template <bool kUpper>
  HWY_INLINE Each Half() const {
    Each half(both.first);
    half.sum = HalfOf<kUpper>(both.sum);
    half.magnitudes = HalfOf<kUpper>(both.magnitudes);
    half.squares = HalfOf<kUpper>(both.squares);
    half.deviations = HalfOf<kUpper>(both.deviations);
    half.squared_deviations = HalfOf<kUpper>(both.squared_deviations);
    return half;
  }
};

#endif

HWY_INLINE double Total(VF64 v) { return ReduceLanes(DF64(), v, Plus()); }

// Of accumulator A, what `acc` has of the first `done` elements of a tile.
template <class A, class T, AccumulatorSet kSet>
HWY_INLINE typename A::Local LocalOf(std::int64_t done, const SumsAcc<T, kSet>& acc) {
  if constexpr (A::kAccumulator == Accumulator::kSum) {
    return {Total(acc.sum)};
  } else if constexpr (A::kAccumulator == Accumulator::kAbsSum) {
    return {Total(acc.magnitudes)};
  } else if constexpr (A::kAccumulator == Accumulator::kSumSquares) {
    return {Total(acc.squares)};
  } else {
    static_assert(A::kAccumulator == Accumulator::kMoments);
    return {acc.first, done, Total(acc.deviations), Total(acc.squared_deviations)};
  }
}

// Takes all of As into `into`: `acc` has the first `done` elements of the tile.
template <class T, class... As>
HWY_INLINE void TakeSums(const Tile& tile, std::int64_t done, const SumsAcc<T, kSetOf<As...>>& acc, Partial* into) {
  (Take<As>(StateOf<As, T>(tile, done, LocalOf<As>(done, acc)), into), ...);
}

template <class T, class... As>
void FoldSums(const Tile& tile, Partial* into) {
  if (tile.count == 0) return;
  SumsAcc<T, kSetOf<As...>> acc(ElementAt<T>(tile.data, 0));
  const std::int64_t done = FoldVectors(tile, acc);
  TakeSums<T, As...>(tile, done, acc, into);
}

// What a summary of some data takes, in one loop: the elements are loaded and widened once, and the memory is kept busy
// from end to end.
template <class T, class... As>
void FoldCountsExtremaAndSums(const Tile& tile, Partial* into) {
  using RangeOfVector = RangeAcc<T, false, true>;
  using Sums = SumsAcc<T, kSetOf<As...>>;
  using Turns = FourTurns<Sums>;
  constexpr std::int64_t kStep = std::max(RangeOfVector::kElements, Turns::kElements);
  constexpr std::int64_t kElementBytes = sizeof(T);
  if (tile.count < kStep) {
    FoldCountsAndExtrema<T>(tile, into);
    return FoldSums<T, As...>(tile, into);
  }
  RangeOfVector range;
  Sums acc(ElementAt<T>(tile.data, 0));
  Turns turns(acc);
  std::int64_t i = 0;
  for (; i + kStep <= tile.count; i += kStep) {
    const std::byte* const p = tile.data + i * kElementBytes;
    FetchAhead(p, kStep * kElementBytes);
    for (std::int64_t k = 0; k < kStep; k += RangeOfVector::kElements) range.Add(p + k * kElementBytes);
    for (std::int64_t k = 0; k < kStep; k += Turns::kElements) turns.Add(p + k * kElementBytes);
  }
  TakeRange<T, true>(tile, RangeOf(tile, i, range), into);
  for (; i + Turns::kElements <= tile.count; i += Turns::kElements) turns.Add(tile.data + i * kElementBytes);
  i = turns.Finish(tile, i, acc);
  TakeSums<T, As...>(tile, i, acc, into);
}

// ---- kProduct: mantissas in [1, 2) are multiplied, exponents added

template <class T, class D = DF64>
struct ProductAcc {
  using Element = T;
  using V = hn::Vec<D>;
  using DI = hn::RebindToSigned<D>;
  using DU = hn::RebindToUnsigned<D>;
  // So many elements, unless they are zero, infinite or NaN, have a product that is a normal number of f64: it is taken
  // apart once for all of them. One of f64 need not be normal itself.
  static constexpr int kFactors = std::is_same_v<T, double> ? 1 : std::is_same_v<T, Half> ? 16 : 4;
  static constexpr std::int64_t kElements = kFactors * hn::MaxLanes(D());
  static constexpr std::int64_t kVectorBytes = hn::MaxLanes(D()) * sizeof(T);
  // The product of a lane's mantissas must not overflow before the tile is done.
  static_assert(kTileBytes / static_cast<std::int64_t>(sizeof(T)) / kElements < 1000);
  V mantissa;
  hn::Vec<DI> exponent;

  HWY_INLINE ProductAcc() : mantissa(hn::Set(D(), 1.0)), exponent(hn::Zero(DI())) {}
  HWY_INLINE void Add(const std::byte* p, std::int64_t stride = kVectorBytes) {
    V x = LoadDoubles<T>(D(), p);
    for (int i = 1; i < kFactors; ++i) x = hn::Mul(x, LoadDoubles<T>(D(), p + i * stride));
    Multiply(x);
  }
  HWY_INLINE void Merge(const ProductAcc& other) {
    exponent = hn::Add(exponent, other.exponent);
    Multiply(other.mantissa);
  }

 private:
  static HWY_INLINE hn::Vec<DI> ExponentField(V x) {
    const auto field = hn::ShiftRight<52>(hn::BitCast(DU(), x));
    return hn::BitCast(DI(), hn::And(field, hn::Set(DU(), 0x7ff)));
  }
  HWY_INLINE void Multiply(V x) {
    const D d;
    const DI di;
    const hn::Vec<DI> field = ExponentField(x);
    const auto normal = hn::Lt(hn::BitCast(DU(), hn::Sub(field, hn::Set(di, 1))), hn::Set(DU(), 0x7fe));
    if (!hn::AllTrue(DU(), normal)) return MultiplyAny(x);
    mantissa = hn::Mul(mantissa, Significand(x));
    exponent = hn::Add(exponent, hn::Sub(field, hn::Set(di, 1023)));
  }
  // Zeros, infinities and NaNs, too, which decide the product as they are.
  HWY_INLINE void MultiplyAny(V x) {
    const D d;
    const DI di;
    if constexpr (std::is_same_v<T, double>) {  // subnormal
      const auto tiny = hn::Lt(hn::Abs(x), hn::Set(d, 0x1p-1022));
      x = hn::IfThenElse(tiny, hn::Mul(x, hn::Set(d, 0x1p54)), x);
      const auto by = hn::IfThenElseZero(tiny, hn::BitCast(d, hn::Set(di, 54)));
      exponent = hn::Sub(exponent, hn::BitCast(di, by));
    }
    const hn::Vec<DI> field = ExponentField(x);
    const auto normal = hn::And(hn::Gt(field, hn::Zero(di)), hn::Lt(field, hn::Set(di, 0x7ff)));
    mantissa = hn::Mul(mantissa, hn::IfThenElse(hn::RebindMask(d, normal), Significand(x), x));
    exponent = hn::Add(exponent, hn::IfThenElseZero(normal, hn::Sub(field, hn::Set(di, 1023))));
  }
  // Of a normal number: x scaled to [1, 2), with its sign.
  static HWY_INLINE V Significand(V x) {
    const DU du;
    const auto fraction_and_sign = hn::Set(du, ~(std::uint64_t{0x7ff} << 52));
    const auto one = hn::Set(du, std::uint64_t{1023} << 52);
    return hn::BitCast(D(), hn::Or(hn::And(hn::BitCast(du, x), fraction_and_sign), one));
  }
};

// The two take vectors in turns, as the halves of one that is twice as wide do: AVX-512 gives the same bits as AVX2.
template <class T>
struct Pair<ProductAcc<T>> {
  using Each = ProductAcc<T>;
#if HWY_TARGET == HWY_AVX3
  ProductAcc<T, DWide> both;

  HWY_INLINE explicit Pair(const Each&) {}
  HWY_INLINE void Add(const std::byte* p) { both.Add(p); }
  HWY_INLINE Each First() const {
    Each half;
    half.mantissa = hn::LowerHalf(DF64(), both.mantissa);
    half.exponent = hn::LowerHalf(DI64(), both.exponent);
    return half;
  }
  HWY_INLINE Each Second() const {
    Each half;
    half.mantissa = hn::UpperHalf(DF64(), both.mantissa);
    half.exponent = hn::UpperHalf(DI64(), both.exponent);
    return half;
  }
#else
  Each first;
  Each second;

  HWY_INLINE explicit Pair(const Each& each) : first(each), second(each) {}
  HWY_INLINE void Add(const std::byte* p) {
    first.Add(p, 2 * Each::kVectorBytes);
    second.Add(p + Each::kVectorBytes, 2 * Each::kVectorBytes);
  }
  HWY_INLINE Each First() const { return first; }
  HWY_INLINE Each Second() const { return second; }
#endif
};

template <class T>
struct Vectors<ProductOf<T>> {
  static std::int64_t Fold(const Tile& tile, FloatProduct* local) {
    ProductAcc<T> acc;
    const std::int64_t done = FoldVectors(tile, acc);
    alignas(64) double mantissas[kDoubles];
    alignas(64) std::int64_t exponents[kDoubles];
    hn::Store(acc.mantissa, DF64(), mantissas);
    hn::Store(acc.exponent, DI64(), exponents);
    for (std::int64_t i = 0; i < kDoubles; ++i) {
      FloatProduct lane{mantissas[i], exponents[i]};
      Normalize(lane);
      Multiply(*local, lane);
    }
    return done;
  }
};

// ---- what NanPolicy::kOmit leaves out

// Of the elements of a tile that fill whole vectors, copies those that aren't NaN to `kept`, and adds how many these
// are to `out`; returns how many elements it looked at.
template <class T>
HWY_INLINE std::int64_t DropNansFromVectors(const Tile& tile, std::byte* kept, std::int64_t* out) {
  const KeyTag<T> d;
  constexpr std::int64_t kLanes = hn::MaxLanes(KeyTag<T>());
  auto* const to = reinterpret_cast<KeyLane<T>*>(kept);
  std::int64_t i = 0;
  for (; i + kLanes <= tile.count; i += kLanes) {
    const auto v = LoadKeyLanes<T>(tile.data + i * static_cast<std::int64_t>(sizeof(T)));
    const auto magnitude = hn::And(v, hn::Set(d, std::numeric_limits<KeyLane<T>>::max()));
    const auto number = hn::Not(hn::Gt(magnitude, hn::Set(d, kInfinityKey<T>)));
    *out += static_cast<std::int64_t>(hn::CompressStore(v, number, d, to + *out));
  }
  return i;
}

#endif  // HWY_TARGET != HWY_SCALAR

template <class T>
std::int64_t DropNansOf(const Tile& tile, std::byte* kept) {
  std::int64_t done = 0;
  std::int64_t out = 0;
#if HWY_TARGET != HWY_SCALAR
  done = DropNansFromVectors<T>(tile, kept, &out);
#endif
  for (std::int64_t i = done; i < tile.count; ++i) {
    const T x = ElementAt<T>(tile.data, i);
    std::memcpy(kept + out * static_cast<std::int64_t>(sizeof(T)), &x, sizeof(T));
    out += IsNan(x) ? 0 : 1;
  }
  return out;
}

template <class T>
constexpr TileFolds FoldsOf() {
  TileFolds folds{};
  AllAccumulators<T>::ForEach([&]<class A>(std::type_identity<A>) {
    constexpr AccumulatorSet kSums = SetOf(Accumulator::kSum) | SetOf(Accumulator::kAbsSum) |
                                     SetOf(Accumulator::kSumSquares) | SetOf(Accumulator::kMoments);
    FoldTile& fold = folds.of[static_cast<int>(A::kAccumulator)];
    if constexpr ((kSums & SetOf(A::kAccumulator)) != 0) {
      fold = &FoldSums<T, A>;
    } else if constexpr (A::kAccumulator == Accumulator::kExtrema) {
      fold = &FoldExtrema<T>;
    } else {
      fold = &Fold<A, T>;
    }
  });
  folds.counts_and_extrema = &FoldCountsAndExtrema<T>;
  folds.sum_and_moments = &FoldSums<T, SumOf<T>, MomentsOf<T>>;
  folds.all_four = &FoldCountsExtremaAndSums<T, SumOf<T>, MomentsOf<T>>;
  folds.all_five = &FoldCountsExtremaAndSums<T, SumOf<T>, MomentsOf<T>, SumSquaresOf<T>>;
  folds.drop_nans = &DropNansOf<T>;
  return folds;
}

const TileFolds* FloatFolds(DType dtype) {
  return VisitDType(dtype, []<class T>(std::type_identity<T>) -> const TileFolds* {
    if constexpr (kIsFloat<T> && !kIsF8<T>) {
      static constexpr TileFolds kFolds = FoldsOf<T>();
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

HWY_EXPORT(FloatFolds);

const TileFolds& FloatTileFolds(DType dtype) { return *HWY_DYNAMIC_DISPATCH(FloatFolds)(dtype); }

}  // namespace reduced
#endif
