// The tile functions of f16, bf16, f32 and f64. Every element is widened to f64, which is exact, before anything is
// added or multiplied.
#include <algorithm>

#include "kernels/cpu/targets.h"
// Compiled again for each vector target
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/tiles_float.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h
#include "kernels/cpu/extrema-inl.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reduced {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// Of 256 bits even where there are 512: no slower, as widening is what takes the time, no lower a clock on older Intel
// processors, and the same order of addition, so the same bits, with AVX2 and with AVX-512.
using DF64 = hn::CappedTag<double, 4>;
using DI64 = hn::RebindToSigned<DF64>;
using DU64 = hn::RebindToUnsigned<DF64>;
using VF64 = hn::Vec<DF64>;
constexpr std::int64_t kDoubles = hn::MaxLanes(DF64());

// The kDoubles elements at p as f64.
template <class T>
HWY_INLINE VF64 LoadDoubles(const std::byte* p) {
  const DF64 d;
  const hn::Rebind<float, DF64> df;
  if constexpr (std::is_same_v<T, double>) {
    return hn::LoadU(d, reinterpret_cast<const double*>(p));
  } else if constexpr (std::is_same_v<T, float>) {
    return hn::PromoteTo(d, hn::LoadU(df, reinterpret_cast<const float*>(p)));
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    const hn::Rebind<hwy::bfloat16_t, DF64> db;
    return hn::PromoteTo(d, hn::PromoteTo(df, hn::LoadU(db, reinterpret_cast<const hwy::bfloat16_t*>(p))));
  } else {
    const hn::Rebind<hwy::float16_t, DF64> dh;
    const auto v = hn::PromoteTo(df, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(p)));
#if HWY_TARGET == HWY_SSE4
    // Has no instruction for it, and Highway 1.0.3 makes ordinary numbers from 2^16 up of infinities and NaNs.
    const auto infinity = hn::Set(df, std::numeric_limits<float>::infinity());
    return hn::PromoteTo(d, hn::IfThenElse(hn::Lt(hn::Abs(v), hn::Set(df, 0x1p16f)), v, hn::Or(v, infinity)));
#else
    return hn::PromoteTo(d, v);
#endif
  }
}

// sum + x. Where there are registers enough to keep a 1, by the multipliers, which are idle while the adders are busy
// with widening too (AMD Zen 4: moments are 1.3 times as fast).
HWY_INLINE VF64 AddTo(VF64 sum, VF64 x) {
#if HWY_TARGET == HWY_AVX3
  return hn::MulAdd(x, hn::Set(DF64(), 1.0), sum);
#else
  return hn::Add(sum, x);
#endif
}

HWY_INLINE double Total(VF64 v) { return ReduceLanes(DF64(), v, Plus()); }

// ---- kSum, kAbsSum, kSumSquares

template <class T, Accumulator kAccumulator>
struct SumAcc {
  using Element = T;
  static constexpr std::int64_t kElements = kDoubles;
  VF64 sum;

  HWY_INLINE SumAcc() : sum(hn::Zero(DF64())) {}
  HWY_INLINE void Add(const std::byte* p) {
    const VF64 x = LoadDoubles<T>(p);
    if constexpr (kAccumulator == Accumulator::kSum) {
      sum = AddTo(sum, x);
    } else if constexpr (kAccumulator == Accumulator::kAbsSum) {
      sum = AddTo(sum, hn::Abs(x));
    } else {
      static_assert(kAccumulator == Accumulator::kSumSquares);
      sum = hn::MulAdd(x, x, sum);
    }
  }
  HWY_INLINE void Merge(const SumAcc& other) { sum = hn::Add(sum, other.sum); }
};

template <class T, class A>
HWY_INLINE std::int64_t FoldSum(const Tile& tile, typename A::Local* local) {
  SumAcc<T, A::kAccumulator> acc;
  const std::int64_t done = FoldVectors(tile, acc);
  local->sum = Total(acc.sum);
  return done;
}

template <class T>
struct Vectors<SumOf<T>> {
  static std::int64_t Fold(const Tile& tile, typename SumOf<T>::Local* local) {
    return FoldSum<T, SumOf<T>>(tile, local);
  }
};
template <class T>
struct Vectors<AbsSumOf<T>> {
  static std::int64_t Fold(const Tile& tile, typename AbsSumOf<T>::Local* local) {
    return FoldSum<T, AbsSumOf<T>>(tile, local);
  }
};
template <class T>
struct Vectors<SumSquaresOf<T>> {
  static std::int64_t Fold(const Tile& tile, typename SumSquaresOf<T>::Local* local) {
    return FoldSum<T, SumSquaresOf<T>>(tile, local);
  }
};

// ---- kMoments: deviations from the tile's first element, see accumulator.h; and with them, if asked for, kSum: most
// of what either costs is widening the elements

template <class T, bool kWithSum>
struct DeviationsAcc {
  using Element = T;
  static constexpr std::int64_t kElements = kDoubles;
  VF64 pivot;
  VF64 sum;
  VF64 deviations;
  VF64 squares;

  HWY_INLINE explicit DeviationsAcc(T first)
      : pivot(hn::Set(DF64(), ToDouble(first))),
        sum(hn::Zero(DF64())),
        deviations(hn::Zero(DF64())),
        squares(hn::Zero(DF64())) {}
  HWY_INLINE void Add(const std::byte* p) {
    const VF64 x = LoadDoubles<T>(p);
    const VF64 deviation = hn::Sub(x, pivot);
    if constexpr (kWithSum) sum = AddTo(sum, x);
    deviations = AddTo(deviations, deviation);
    squares = hn::MulAdd(deviation, deviation, squares);
  }
  HWY_INLINE void Merge(const DeviationsAcc& other) {
    sum = hn::Add(sum, other.sum);
    deviations = hn::Add(deviations, other.deviations);
    squares = hn::Add(squares, other.squares);
  }
};

template <class T, bool kWithSum>
HWY_INLINE std::int64_t FoldMoments(const Tile& tile, double* sum, typename MomentsOf<T>::Local* local) {
  if (tile.count == 0) return 0;
  local->pivot = ElementAt<T>(tile.data, 0);
  DeviationsAcc<T, kWithSum> acc(local->pivot);
  local->count = FoldVectors(tile, acc);
  local->sum = Total(acc.deviations);
  local->sum_squares = Total(acc.squares);
  if constexpr (kWithSum) *sum = Total(acc.sum);
  return local->count;
}

template <class T>
struct Vectors<MomentsOf<T>> {
  static std::int64_t Fold(const Tile& tile, typename MomentsOf<T>::Local* local) {
    return FoldMoments<T, false>(tile, nullptr, local);
  }
};

// Both into `into`, from the vectors' sums over all but the last elements, from `done` on.
template <class T>
HWY_INLINE void TakeSumAndMoments(const Tile& tile, std::int64_t done, typename SumOf<T>::Local sum,
                                  typename MomentsOf<T>::Local moments, Partial* into) {
  for (std::int64_t i = done; i < tile.count; ++i) {
    const T x = ElementAt<T>(tile.data, i);
    SumOf<T>::Add(sum, x, i);
    MomentsOf<T>::Add(moments, x, i);
  }
  Partial partial;
  SumOf<T>::Store(SumOf<T>::Settle(sum), &partial);
  MomentsOf<T>::Store(MomentsOf<T>::Settle(moments), &partial);
  CombineOne<Accumulator::kSum>(partial, into);
  CombineOne<Accumulator::kMoments>(partial, into);
}

template <class T>
void FoldSumAndMoments(const Tile& tile, Partial* into) {
  typename SumOf<T>::Local sum;
  typename MomentsOf<T>::Local moments;
  const std::int64_t done = FoldMoments<T, true>(tile, &sum.sum, &moments);
  TakeSumAndMoments<T>(tile, done, sum, moments, into);
}

// kCounts, kExtrema, kSum and kMoments, which are what a summary of some data takes, in one loop that keeps the memory
// busy from end to end. The four turns of FoldVectors are written out: additions are done in the same order.
template <class T>
void FoldAllFour(const Tile& tile, Partial* into) {
  using RangeOfVector = RangeAcc<T, false, true>;
  constexpr std::int64_t kRange = RangeOfVector::kElements;
  constexpr std::int64_t kStep = std::max(kRange, 4 * kDoubles);
  constexpr std::int64_t kElementBytes = sizeof(T);
  if (tile.count < kStep) {
    FoldCountsAndExtrema<T>(tile, into);
    return FoldSumAndMoments<T>(tile, into);
  }
  const T pivot = ElementAt<T>(tile.data, 0);
  RangeOfVector range;
  DeviationsAcc<T, true> a(pivot);
  DeviationsAcc<T, true> b = a;
  DeviationsAcc<T, true> c = a;
  DeviationsAcc<T, true> d = a;
  std::int64_t i = 0;
  for (; i + kStep <= tile.count; i += kStep) {
    const std::byte* const p = tile.data + i * kElementBytes;
    FetchAhead(p, kStep * kElementBytes);
    for (std::int64_t k = 0; k < kStep; k += kRange) range.Add(p + k * kElementBytes);
    for (std::int64_t k = 0; k < kStep; k += 4 * kDoubles) {
      a.Add(p + k * kElementBytes);
      b.Add(p + (k + kDoubles) * kElementBytes);
      c.Add(p + (k + 2 * kDoubles) * kElementBytes);
      d.Add(p + (k + 3 * kDoubles) * kElementBytes);
    }
  }
  TakeRange<T, true>(tile, RangeOf(tile, i, range), into);
  for (; i + 4 * kDoubles <= tile.count; i += 4 * kDoubles) {
    const std::byte* const p = tile.data + i * kElementBytes;
    a.Add(p);
    b.Add(p + kDoubles * kElementBytes);
    c.Add(p + 2 * kDoubles * kElementBytes);
    d.Add(p + 3 * kDoubles * kElementBytes);
  }
  for (; i + kDoubles <= tile.count; i += kDoubles) a.Add(tile.data + i * kElementBytes);
  b.Merge(d);
  a.Merge(c);
  a.Merge(b);
  TakeSumAndMoments<T>(tile, i, {Total(a.sum)}, {pivot, i, Total(a.deviations), Total(a.squares)}, into);
}

// ---- kProduct: mantissas in [1, 2) are multiplied, exponents added

template <class T>
struct ProductAcc {
  using Element = T;
  static constexpr std::int64_t kElements = kDoubles;
  // The product of a lane's mantissas must not overflow before the tile is done.
  static_assert(kTileBytes / static_cast<std::int64_t>(sizeof(T)) / (4 * kDoubles) < 1000);
  VF64 mantissa;
  hn::Vec<DI64> exponent;

  HWY_INLINE ProductAcc() : mantissa(hn::Set(DF64(), 1.0)), exponent(hn::Zero(DI64())) {}
  HWY_INLINE void Add(const std::byte* p) {
    VF64 x = LoadDoubles<T>(p);
    if constexpr (std::is_same_v<T, double>) {  // subnormal: the others' are normal in f64
      const DF64 d;
      const auto tiny = hn::Lt(hn::Abs(x), hn::Set(d, 0x1p-1022));
      x = hn::IfThenElse(tiny, hn::Mul(x, hn::Set(d, 0x1p54)), x);
      const auto by = hn::IfThenElseZero(tiny, hn::BitCast(d, hn::Set(DI64(), 54)));
      exponent = hn::Sub(exponent, hn::BitCast(DI64(), by));
    }
    Multiply(x);
  }
  HWY_INLINE void Merge(const ProductAcc& other) {
    exponent = hn::Add(exponent, other.exponent);
    Multiply(other.mantissa);
  }

 private:
  // By zero, a normal number, an infinity or NaN. Only a normal number is split; the others decide the product as they
  // are.
  HWY_INLINE void Multiply(VF64 x) {
    const DF64 d;
    const DI64 di;
    const DU64 du;
    const auto bits = hn::BitCast(du, x);
    const auto field = hn::BitCast(di, hn::And(hn::ShiftRight<52>(bits), hn::Set(du, 0x7ff)));
    const auto normal = hn::And(hn::Gt(field, hn::Zero(di)), hn::Lt(field, hn::Set(di, 0x7ff)));
    const auto significand =
        hn::Or(hn::And(bits, hn::Set(du, ~(std::uint64_t{0x7ff} << 52))), hn::Set(du, std::uint64_t{1023} << 52));
    mantissa = hn::Mul(mantissa, hn::IfThenElse(hn::RebindMask(d, normal), hn::BitCast(d, significand), x));
    exponent = hn::Add(exponent, hn::IfThenElseZero(normal, hn::Sub(field, hn::Set(di, 1023))));
  }
};

template <class T>
struct Vectors<ProductOf<T>> {
  static std::int64_t Fold(const Tile& tile, FloatProduct* local) {
    ProductAcc<T> acc;
    const std::int64_t done = FoldVectors(tile, acc);
    alignas(64) double mantissas[kDoubles];
    alignas(64) std::int64_t exponents[kDoubles];
    hn::StoreU(acc.mantissa, DF64(), mantissas);
    hn::StoreU(acc.exponent, DI64(), exponents);
    for (std::int64_t i = 0; i < kDoubles; ++i) {
      FloatProduct lane{mantissas[i], exponents[i]};
      Normalize(lane);
      Multiply(*local, lane);
    }
    return done;
  }
};

#endif  // HWY_TARGET != HWY_SCALAR

template <class T>
constexpr TileFolds FoldsOf() {
  TileFolds folds{};
  folds.of[static_cast<int>(Accumulator::kSum)] = &Fold<SumOf<T>, T>;
  folds.of[static_cast<int>(Accumulator::kAbsSum)] = &Fold<AbsSumOf<T>, T>;
  folds.of[static_cast<int>(Accumulator::kSumSquares)] = &Fold<SumSquaresOf<T>, T>;
  folds.of[static_cast<int>(Accumulator::kMoments)] = &Fold<MomentsOf<T>, T>;
  folds.of[static_cast<int>(Accumulator::kProduct)] = &Fold<ProductOf<T>, T>;
  folds.of[static_cast<int>(Accumulator::kExtrema)] = &FoldExtrema<T>;
  folds.of[static_cast<int>(Accumulator::kCounts)] = &Fold<CountsOf<T>, T>;
  folds.counts_and_extrema = &FoldCountsAndExtrema<T>;
#if HWY_TARGET != HWY_SCALAR
  folds.sum_and_moments = &FoldSumAndMoments<T>;
  folds.all_four = &FoldAllFour<T>;
#endif
  return folds;
}

const TileFolds* FloatFolds(DType dtype) {
  return VisitDType(dtype, []<class T>(std::type_identity<T>) -> const TileFolds* {
    if constexpr (kIsFloat<T>) {
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
