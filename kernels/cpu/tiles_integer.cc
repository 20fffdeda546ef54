// The tile functions of bool and the integers. All of them are exact.
#include "kernels/cpu/targets.h"
// Compiled again for each vector target
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/tiles_integer.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h
#include "kernels/cpu/extrema-inl.h"
#include "kernels/cpu/integer_sums-inl.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reduced {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

template <class T>
void FoldProduct(const Tile& tile, Partial* into) {
  Fold<ProductOf<T>, T>(tile, into);
}

#else

// ---- kProduct

template <class T>
struct FactorsAcc {  // what kinds of factors there are
  using Element = T;
  static constexpr std::int64_t kElements = hn::MaxLanes(KeyTag<T>());
  std::int64_t zeros = 0;
  std::int64_t negatives = 0;
  std::int64_t units = 0;  // 1 or -1

  HWY_INLINE FactorsAcc() {}
  HWY_INLINE void Add(const std::byte* p) {
    const KeyTag<T> d;
    const auto v = LoadKeyLanes<T>(p);
    zeros += static_cast<std::int64_t>(hn::CountTrue(d, hn::Eq(v, hn::Zero(d))));
    units += static_cast<std::int64_t>(hn::CountTrue(d, hn::Eq(v, hn::Set(d, KeyLane<T>{1}))));
    if constexpr (kIsSigned<T>) {
      units += static_cast<std::int64_t>(hn::CountTrue(d, hn::Eq(v, hn::Set(d, KeyLane<T>{-1}))));
      negatives += static_cast<std::int64_t>(hn::CountTrue(d, hn::Lt(v, hn::Zero(d))));
    }
  }
  HWY_INLINE void Merge(const FactorsAcc& other) {
    zeros += other.zeros;
    negatives += other.negatives;
    units += other.units;
  }
};

// Of any number of elements, modulo 2^64.
template <class T>
std::uint64_t WrappedProduct(const Tile& tile) {
  std::uint64_t product[4] = {1, 1, 1, 1};
  const auto factor = [&tile](std::int64_t i) {
    return static_cast<std::uint64_t>(ToInteger(ElementAt<T>(tile.data, i)));
  };
  std::int64_t i = 0;
  for (; i + 4 <= tile.count; i += 4) {
    for (int k = 0; k < 4; ++k) product[k] *= factor(i + k);
  }
  for (; i < tile.count; ++i) product[0] *= factor(i);
  return product[0] * product[1] * product[2] * product[3];
}

// Few tiles have factors whose product has to be computed: 64 of magnitude 2 or more overflow it, 64 even ones make it
// 0 modulo 2^64, and then only its sign, and whether it is zero, are left to be known.
template <class T>
void FoldProduct(const Tile& tile, Partial* into) {
  FactorsAcc<T> acc;
  const std::int64_t done = FoldVectors(tile, acc);
  for (std::int64_t i = done; i < tile.count; ++i) {
    const auto x = ToInteger(ElementAt<T>(tile.data, i));
    acc.zeros += x == 0 ? 1 : 0;
    acc.units += Magnitude(x) == 1 ? 1 : 0;
    acc.negatives += IsNegative(x) ? 1 : 0;
  }
  IntProduct& product = into->int_product;
  const std::int64_t large = tile.count - acc.zeros - acc.units;
  if (large != 0 && large < 64 && !product.overflowed) {
    return Fold<ProductOf<T>, T>(tile, into);
  }
  IntProduct factor;
  factor.zero = acc.zeros != 0;
  factor.negative = acc.negatives % 2 != 0;
  factor.overflowed = large >= 64;
  if (factor.zero || product.wrapped == 0) {
    factor.wrapped = 0;
  } else if (large != 0) {
    factor.wrapped = WrappedProduct<T>(tile);
  } else if (factor.negative) {
    factor.wrapped = ~std::uint64_t{0};
  }
  Multiply(product, factor);
}

// ---- kBits

template <class T>
struct BitsAcc {
  using Element = T;
  using D = KeyTag<T>;
  static constexpr std::int64_t kElements = hn::MaxLanes(D());
  hn::Vec<D> all_of;
  hn::Vec<D> any_of;
  hn::Vec<D> odd_of;

  HWY_INLINE BitsAcc()
      : all_of(hn::Set(D(), static_cast<KeyLane<T> >(-1))), any_of(hn::Zero(D())), odd_of(hn::Zero(D())) {}
  HWY_INLINE void Add(const std::byte* p) {
    const auto v = LoadKeyLanes<T>(p);
    all_of = hn::And(all_of, v);
    any_of = hn::Or(any_of, v);
    odd_of = hn::Xor(odd_of, v);
  }
  HWY_INLINE void Merge(const BitsAcc& other) {
    all_of = hn::And(all_of, other.all_of);
    any_of = hn::Or(any_of, other.any_of);
    odd_of = hn::Xor(odd_of, other.odd_of);
  }
};

template <class T>
struct Vectors<BitsOf<T> > {
  static std::int64_t Fold(const Tile& tile, typename BitsOf<T>::Local* local) {
    BitsAcc<T> acc;
    const std::int64_t done = FoldVectors(tile, acc);
    if (done == 0) return 0;
    constexpr std::int64_t kLanes = hn::MaxLanes(KeyTag<T>());
    alignas(64) KeyLane<T> lanes[3][kLanes];
    hn::StoreU(acc.all_of, KeyTag<T>(), lanes[0]);
    hn::StoreU(acc.any_of, KeyTag<T>(), lanes[1]);
    hn::StoreU(acc.odd_of, KeyTag<T>(), lanes[2]);
    for (std::int64_t i = 0; i < kLanes; ++i) {  // signed ones extend their sign, as in BitsOf
      local->bits_and &= static_cast<std::uint64_t>(lanes[0][i]);
      local->bits_or |= static_cast<std::uint64_t>(lanes[1][i]);
      local->bits_xor ^= static_cast<std::uint64_t>(lanes[2][i]);
    }
    return done;
  }
};

#endif  // HWY_TARGET

template <class T>
constexpr TileFolds FoldsOf() {
  TileFolds folds{};
  AllAccumulators<T>::ForEach([&]<class A>(std::type_identity<A>) {
    FoldTile& fold = folds.of[static_cast<int>(A::kAccumulator)];
    if constexpr (A::kAccumulator == Accumulator::kProduct) {
      fold = &FoldProduct<T>;
    } else if constexpr (A::kAccumulator == Accumulator::kExtrema) {
      fold = &FoldExtrema<T>;
    } else {
      fold = &Fold<A, T>;
    }
  });
  folds.counts_and_extrema = &FoldCountsAndExtrema<T>;
  return folds;
}

const TileFolds* IntegerFolds(DType dtype) {
  return VisitDType(dtype, []<class T>(std::type_identity<T>) -> const TileFolds* {
    if constexpr (!kIsFloat<T>) {
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

HWY_EXPORT(IntegerFolds);

const TileFolds& IntegerTileFolds(DType dtype) { return *HWY_DYNAMIC_DISPATCH(IntegerFolds)(dtype); }

std::vector<std::int64_t> VectorTargets() { return hwy::SupportedAndGeneratedTargets(); }

std::string VectorTargetName() { return hwy::TargetName(VectorTargets().front()); }

}  // namespace reduced
#endif
