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

#include "hwy/highway.h"
#include "kernels/algebra/accumulator.h"
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

// The vector part of accumulator A: adds as many of the elements, from the first on, as fill whole vectors to `local`,
// and returns how many those were. Specialised below and in the files that include this one.
template <class A>
struct Vectors {
  static std::int64_t Fold(const Tile&, typename A::Local*) { return 0; }
};

// A of a whole tile, of whose first `done` elements `local` has: the rest is added one by one.
template <class A, class T>
HWY_INLINE typename A::State StateOf(const Tile& tile, std::int64_t done, typename A::Local local) {
  for (std::int64_t i = done; i < tile.count; ++i) A::Add(local, ElementAt<T>(tile.data, i), tile.first_index + i);
  return A::Settle(local);
}

template <class A, class T>
HWY_INLINE typename A::State StateOf(const Tile& tile) {
  typename A::Local local;
  const std::int64_t done = Vectors<A>::Fold(tile, &local);
  return StateOf<A, T>(tile, done, local);
}

template <class A>
HWY_INLINE void Take(const typename A::State& later, Partial* into) {
  Partial partial;
  A::Store(later, &partial);
  A::Combine(partial, into);
}

// FoldTile of accumulator A over elements T.
template <class A, class T>
void Fold(const Tile& tile, Partial* into) {
  Take<A>(StateOf<A, T>(tile), into);
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
// hardware's own prefetching pauses with the loads, and widening them keeps too few in flight. From memory into the L2
// cache, which can have more on the way than the L1 cache, then into that one. Asking beyond the array is harmless.
HWY_INLINE void FetchAhead(const std::byte* p, std::int64_t bytes) {
  constexpr std::int64_t kIntoL2 = 5120;  // measured: bench_cpu --goals, --describe
  constexpr std::int64_t kIntoL1 = 2048;
  for (std::int64_t line = 0; line < bytes; line += 64) {
    __builtin_prefetch(p + kIntoL2 + line, /*rw=*/0, /*locality=*/2);
    __builtin_prefetch(p + kIntoL1 + line, /*rw=*/0, /*locality=*/3);
  }
}

// What whole vectors are folded into is a struct of vectors, or of counts, with
//   Element, kElements         what Add takes
//   Add(const std::byte* p)    folds the kElements elements at p
//   Merge(const Acc& other)

// Two of them, the second for the kElements elements after those of the first. Specialised where one instruction can
// add to both.
template <class Acc>
struct Pair {
  Acc first;
  Acc second;

  HWY_INLINE explicit Pair(const Acc& each) : first(each), second(each) {}
  HWY_INLINE void Add(const std::byte* p) {
    first.Add(p);
    second.Add(p + Acc::kElements * sizeof(typename Acc::Element));
  }
  HWY_INLINE Acc First() const { return first; }
  HWY_INLINE Acc Second() const { return second; }
};

// Four of them that take turns, so that no addition waits for the one before.
template <class Acc>
struct FourTurns {
  static constexpr std::int64_t kBytes = Acc::kElements * sizeof(typename Acc::Element);
  static constexpr std::int64_t kElements = 4 * Acc::kElements;
  Pair<Acc> ab;
  Pair<Acc> cd;

  HWY_INLINE explicit FourTurns(const Acc& identity) : ab(identity), cd(identity) {}
  HWY_INLINE void Add(const std::byte* p) {
    ab.Add(p);
    cd.Add(p + 2 * kBytes);
  }
  // Takes what whole vectors there are from element `done` of the tile on, and the sum of all four into `acc`; returns
  // how many elements of the tile that makes.
  HWY_INLINE std::int64_t Finish(const Tile& tile, std::int64_t done, Acc& acc) const {
    acc = ab.First();
    for (; done + Acc::kElements <= tile.count; done += Acc::kElements) {
      acc.Add(tile.data + done * static_cast<std::int64_t>(sizeof(typename Acc::Element)));
    }
    Acc b = ab.Second();
    Acc c = cd.First();
    b.Merge(cd.Second());
    acc.Merge(c);
    acc.Merge(b);
    return done;
  }
};

// Folds whole vectors of the tile, from the first on, into `acc`, the identity; returns how many elements that were.
template <class Acc>
HWY_INLINE std::int64_t FoldVectors(const Tile& tile, Acc& acc) {
  using Turns = FourTurns<Acc>;
  Turns turns(acc);
  std::int64_t i = 0;
  for (; i + Turns::kElements <= tile.count; i += Turns::kElements) {
    const std::byte* const p = tile.data + i * static_cast<std::int64_t>(sizeof(typename Acc::Element));
    FetchAhead(p, 4 * Turns::kBytes);
    turns.Add(p);
  }
  return turns.Finish(tile, i, acc);
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
    const auto magnitude = hn::And(v, hn::Set(d, std::numeric_limits<KeyLane<T>>::max()));
    return static_cast<std::int64_t>(hn::CountTrue(d, hn::Gt(magnitude, hn::Set(d, kInfinityKey<T>))));
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
