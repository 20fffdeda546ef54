// What the tile functions of every dtype are made of, once for each vector target: no include guard but Highway's.
#if defined(REDUCED_KERNELS_CPU_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REDUCED_KERNELS_CPU_VECTORS_INL_H_
#undef REDUCED_KERNELS_CPU_VECTORS_INL_H_
#else
#define REDUCED_KERNELS_CPU_VECTORS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/accumulator.h"
#include "kernels/cpu/tiles.h"

HWY_BEFORE_NAMESPACE();
namespace reduced {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Element i of an array at any address.
template <class T>
HWY_INLINE T ElementAt(const std::byte* tile, std::int64_t i) {
  T x;
  std::memcpy(&x, tile + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return x;
}

// Combine() of the fields of one accumulator.
template <Accumulator kAccumulator>
HWY_INLINE void CombineOne(const Partial& later, Partial* into) {
  if constexpr (kAccumulator == Accumulator::kSum) {
    into->float_sum += later.float_sum;
    into->int_sum += later.int_sum;
  } else if constexpr (kAccumulator == Accumulator::kAbsSum) {
    into->float_abs_sum += later.float_abs_sum;
    into->int_abs_sum += later.int_abs_sum;
  } else if constexpr (kAccumulator == Accumulator::kSumSquares) {
    into->float_sum_squares += later.float_sum_squares;
    Increase(into->int_sum_squares, later.int_sum_squares);
  } else if constexpr (kAccumulator == Accumulator::kMoments) {
    MergeMoments(into->moments, later.moments);
  } else if constexpr (kAccumulator == Accumulator::kProduct) {
    Multiply(into->float_product, later.float_product);
    Multiply(into->int_product, later.int_product);
  } else if constexpr (kAccumulator == Accumulator::kExtrema) {
    MergeExtrema(into->extrema, later.extrema);
  } else if constexpr (kAccumulator == Accumulator::kBits) {
    into->bits_and &= later.bits_and;
    into->bits_or |= later.bits_or;
    into->bits_xor ^= later.bits_xor;
  } else {
    static_assert(kAccumulator == Accumulator::kCounts);
    into->nonzero += later.nonzero;
    into->nan += later.nan;
  }
}

// The vector part of accumulator A: adds as many of the elements, from the first on, as fill whole vectors to `local`,
// and returns how many those were. Specialised below and in the files that include this one.
template <class A>
struct Vectors {
  static std::int64_t Fold(const Tile&, typename A::Local*) { return 0; }
};

// A of a whole tile: the vector part, then the rest one by one.
template <class A, class T>
HWY_INLINE typename A::State StateOf(const Tile& tile) {
  typename A::Local local;
  for (std::int64_t i = Vectors<A>::Fold(tile, &local); i < tile.count; ++i) {
    A::Add(local, ElementAt<T>(tile.data, i), tile.first_index + i);
  }
  return A::Settle(local);
}

// FoldTile of accumulator A over elements T.
template <class A, class T>
void Fold(const Tile& tile, Partial* into) {
  Partial partial;
  A::Store(StateOf<A, T>(tile), &partial);
  CombineOne<A::kAccumulator>(partial, into);
}

#if HWY_TARGET != HWY_SCALAR

// Lane type and tag of elements T as order keys compare: floats as signed integers of their bits, Bool as a byte.
template <class T>
using KeyLane = typename OrderKey<T>::Type;
template <class T>
using KeyTag = hn::ScalableTag<KeyLane<T>>;

// A vector of elements from any address; Bools become 0 or 1.
template <class T>
HWY_INLINE hn::Vec<KeyTag<T>> LoadKeyLanes(const std::byte* p) {
  const KeyTag<T> d;
  const auto v = hn::LoadU(d, reinterpret_cast<const KeyLane<T>*>(p));
  if constexpr (std::is_same_v<T, Bool>) {
    return hn::Min(v, hn::Set(d, KeyLane<T>{1}));
  } else {
    return v;
  }
}

// Asks for `bytes` that will be needed soon, while the same number at `p` are folded: at the end of a tile the
// hardware's own prefetching pauses with the loads, and widening them keeps too few in flight. Asking beyond the array
// is harmless.
HWY_INLINE void FetchAhead(const std::byte* p, std::int64_t bytes) {
  constexpr std::int64_t kAhead = 2048;  // measured: bench_cpu --goals
  for (std::int64_t line = 0; line < bytes; line += 64) hwy::Prefetch(p + kAhead + line);
}

// Folds whole vectors into `acc`, the identity, which is a struct of vectors:
//   Element, kElements         what Add takes
//   Add(const std::byte* p)    folds the kElements elements at p
//   Merge(const Acc& other)
// and returns how many elements that were. Four of them take turns, so that no addition waits for the one before.
template <class Acc>
HWY_INLINE std::int64_t FoldVectors(const Tile& tile, Acc& acc) {
  constexpr std::int64_t kElements = Acc::kElements;
  constexpr std::int64_t kBytes = kElements * sizeof(typename Acc::Element);
  Acc b = acc;
  Acc c = acc;
  Acc d = acc;
  const std::byte* data = tile.data;
  std::int64_t i = 0;
  for (; i + 4 * kElements <= tile.count; i += 4 * kElements, data += 4 * kBytes) {
    FetchAhead(data, 4 * kBytes);
    acc.Add(data);
    b.Add(data + kBytes);
    c.Add(data + 2 * kBytes);
    d.Add(data + 3 * kBytes);
  }
  for (; i + kElements <= tile.count; i += kElements, data += kBytes) acc.Add(data);
  b.Merge(d);
  acc.Merge(c);
  acc.Merge(b);
  return i;
}

struct Plus {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    if constexpr (std::is_arithmetic_v<V>) {
      return static_cast<V>(a + b);
    } else {
      return hn::Add(a, b);
    }
  }
};
struct Lesser {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    if constexpr (std::is_arithmetic_v<V>) {
      return a < b ? a : b;
    } else {
      return hn::Min(a, b);
    }
  }
};
struct Greater {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    if constexpr (std::is_arithmetic_v<V>) {
      return a > b ? a : b;
    } else {
      return hn::Max(a, b);
    }
  }
};

// The lanes of v combined by `op`, by halves.
template <class D, class Op>
HWY_INLINE hn::TFromD<D> ReduceLanes(D d, hn::Vec<D> v, Op op) {
  using Lane = hn::TFromD<D>;
  constexpr std::size_t kLanes = hn::MaxLanes(D());
  if constexpr (kLanes * sizeof(Lane) > 16) {
    const hn::Half<D> half;
    return ReduceLanes(half, op(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), op);
  } else {
    alignas(16) Lane lanes[kLanes];
    hn::Store(v, d, lanes);
    Lane all = lanes[0];
    for (std::size_t i = 1; i < kLanes; ++i) all = op(all, lanes[i]);
    return all;
  }
}

// ---- kCounts

// How many lanes are zero, of either sign.
template <class T>
HWY_INLINE std::int64_t CountZeros(hn::Vec<KeyTag<T>> v) {
  const KeyTag<T> d;
  if constexpr (std::is_floating_point_v<T>) {
    const hn::ScalableTag<T> df;
    return static_cast<std::int64_t>(hn::CountTrue(df, hn::Eq(hn::BitCast(df, v), hn::Zero(df))));
  } else if constexpr (kIsFloat<T>) {
    return static_cast<std::int64_t>(hn::CountTrue(d, hn::Eq(hn::Add(v, v), hn::Zero(d))));  // without the sign bit
  } else {
    return static_cast<std::int64_t>(hn::CountTrue(d, hn::Eq(v, hn::Zero(d))));
  }
}

// How many lanes are NaN.
template <class T>
HWY_INLINE std::int64_t CountNans(hn::Vec<KeyTag<T>> v) {
  if constexpr (std::is_floating_point_v<T>) {
    const hn::ScalableTag<T> df;
    return static_cast<std::int64_t>(hn::CountTrue(df, hn::IsNaN(hn::BitCast(df, v))));
  } else if constexpr (kIsFloat<T>) {
    const KeyTag<T> d;
    constexpr KeyLane<T> kInfinity = std::is_same_v<T, Half> ? 0x7c00 : 0x7f80;
    const auto magnitude = hn::And(v, hn::Set(d, std::numeric_limits<KeyLane<T>>::max()));
    return static_cast<std::int64_t>(hn::CountTrue(d, hn::Gt(magnitude, hn::Set(d, kInfinity))));
  } else {
    return 0;
  }
}

template <class T>
struct CountsAcc {
  using Element = T;
  static constexpr std::int64_t kElements = hn::MaxLanes(KeyTag<T>());
  std::int64_t zeros = 0;
  std::int64_t nans = 0;

  HWY_INLINE CountsAcc() {}
  HWY_INLINE void Add(const std::byte* p) {
    const auto v = LoadKeyLanes<T>(p);
    zeros += CountZeros<T>(v);
    nans += CountNans<T>(v);
  }
  HWY_INLINE void Merge(const CountsAcc& other) {
    zeros += other.zeros;
    nans += other.nans;
  }
};

template <class T>
struct Vectors<CountsOf<T>> {
  static std::int64_t Fold(const Tile& tile, typename CountsOf<T>::Local* local) {
    CountsAcc<T> acc;
    const std::int64_t done = FoldVectors(tile, acc);
    local->nonzero = done - acc.zeros;
    local->nan = acc.nans;
    return done;
  }
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace reduced
HWY_AFTER_NAMESPACE();

#endif  // include guard
