// How one thread folds the elements it loads, tile by tile, in registers.
//
// A thread walks over the array in slots: slot s is the vector at thread + s * threads. A tile is kVectors successive
// slots, loaded together. Fold<A, T> is the state of a thread for accumulator A:
//
//   Fold<A, T> fold;
//   fold.Tile(tile, slot, walk);              // `slot`: of the tile's first vector, ascending, the first tile's is 0
//   A::State state = fold.Settle(walk);       // by all threads of a warp together
#ifndef REDUCED_KERNELS_CUDA_FOLD_CUH_
#define REDUCED_KERNELS_CUDA_FOLD_CUH_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/algebra/accumulator.h"
#include "kernels/cuda/device_reduce.cuh"
#include "kernels/cuda/tile_extrema.cuh"
#include "kernels/cuda/vector16.cuh"

namespace reduced {

// Where a thread's vectors stand in the array, and how to load one again.
template <class T>
struct Walk {
  const uint4* vectors;     // the first of the array
  unsigned count;           // how many the array has, at most 2^30
  unsigned thread;          // this thread, of ...
  unsigned threads;         // at most 2^22
  std::int64_t base_index;  // of the first vector's first element

  __device__ unsigned VectorOf(unsigned slot) const { return thread + slot * threads; }
  __device__ std::int64_t IndexOf(unsigned slot, int element) const {
    return base_index + std::int64_t{VectorOf(slot)} * Vector16<T>::kElements + element;
  }
};

// Every element by itself: what is not worth more.
template <class A, class T>
struct Fold {
  typename A::Local local;

  template <int kVectors>
  __device__ void Tile(const Vector16<T> (&tile)[kVectors], unsigned, const Walk<T>&) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int e = 0; e < Vector16<T>::kElements; ++e) A::Add(local, tile[v].element[e], 0);
    }
  }
  __device__ typename A::State Settle(const Walk<T>&) const { return A::Settle(local); }
};

// Every element by itself but the NaNs, which only the counts see: NanPolicy::kOmit.
template <class A, class T>
struct OmittingFold {
  typename A::Local local;

  template <int kVectors>
  __device__ void Tile(const Vector16<T> (&tile)[kVectors], unsigned slot, const Walk<T>& walk) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int e = 0; e < Vector16<T>::kElements; ++e) {
        const T x = tile[v].element[e];
        if (A::kAccumulator == Accumulator::kCounts || !IsNan(x)) A::Add(local, x, walk.IndexOf(slot + v, e));
      }
    }
  }
  __device__ typename A::State Settle(const Walk<T>&) const { return A::Settle(local); }
};

// The sum of f(x) over the tile in f64, added pairwise: short dependency chains, and less rounding.
template <class T, int kVectors, class Function>
__device__ inline double TileSum(const Vector16<T> (&tile)[kVectors], Function f) {
  constexpr int kElements = Vector16<T>::kElements;
  double sums[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    double terms[kElements];
#pragma unroll
    for (int e = 0; e < kElements; ++e) terms[e] = f(ToDouble(tile[v].element[e]));
#pragma unroll
    for (int width = kElements / 2; width > 0; width /= 2) {
#pragma unroll
      for (int e = 0; e < width; ++e) terms[e] += terms[e + width];
    }
    sums[v] = terms[0];
  }
#pragma unroll
  for (int v = 1; v < kVectors; ++v) sums[0] += sums[v];
  return sums[0];
}

// The sum of 8- and 16-bit integers over the tile, by instructions that add 4 and 2 elements at once.
template <class T, int kVectors>
__device__ inline std::int32_t TileSumOfNarrow(const Vector16<T> (&tile)[kVectors]) {
  using Word = std::conditional_t<kIsSigned<T>, int, unsigned>;
  Word sum = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
#pragma unroll
    for (const unsigned word : tile[v].Words().word) {
      if constexpr (std::is_same_v<T, Bool>) {
        sum = __dp4a(__vsetne4(word, 0u), 0x01010101u, sum);
      } else if constexpr (sizeof(T) == 1) {
        sum = __dp4a(static_cast<Word>(word), static_cast<Word>(0x01010101), sum);
      } else {
        sum = __dp2a_lo(static_cast<Word>(word), static_cast<Word>(0x0101), sum);
      }
    }
  }
  return static_cast<std::int32_t>(sum);
}

template <class T>
requires(kIsFloat<T> || sizeof(T) < 4) struct Fold<SumOf<T>, T> {
  typename SumOf<T>::Local local;

  template <int kVectors>
  __device__ void Tile(const Vector16<T> (&tile)[kVectors], unsigned, const Walk<T>&) {
    if constexpr (kIsFloat<T>) {
      local.sum += TileSum(tile, [](double x) { return x; });
    } else {
      local.sum += TileSumOfNarrow(tile);
    }
  }
  __device__ typename SumOf<T>::State Settle(const Walk<T>&) const { return local; }
};

// The sum of 32-bit integers, halves of each apart: a 16-bit half is added by one instruction, and a tile's halves add
// up in 32 bits.
template <class T>
requires(!kIsFloat<T> && sizeof(T) == 4) struct Fold<SumOf<T>, T> {
  typename SumOf<T>::Local local;

  template <int kVectors>
  __device__ void Tile(const Vector16<T> (&tile)[kVectors], unsigned, const Walk<T>&) {
    unsigned low = 0;
    T high = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (const T x : tile[v].element) {
        low = __dp2a_lo(static_cast<unsigned>(x), 0x0001u, low);
        high = __dp2a_lo(x, T{0x0100}, high);
      }
    }
    local.sum += static_cast<std::int64_t>(high) * 65536 + low;
  }
  __device__ typename SumOf<T>::State Settle(const Walk<T>&) const { return local; }
};

// Squares of i32 are at most 2^62: two of them fit in 64 bits.
template <>
struct Fold<SumSquaresOf<std::int32_t>, std::int32_t> {
  SumSquaresOf<std::int32_t>::Local local;

  template <int kVectors>
  __device__ void Tile(const Vector16<std::int32_t> (&tile)[kVectors], unsigned, const Walk<std::int32_t>&) {
    const auto square = [](std::int64_t x) { return static_cast<std::uint64_t>(x * x); };
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int e = 0; e < Vector16<std::int32_t>::kElements; e += 2) {
        local.sum += square(tile[v].element[e]) + square(tile[v].element[e + 1]);
      }
    }
  }
  __device__ SumSquaresOf<std::int32_t>::State Settle(const Walk<std::int32_t>&) const { return local; }
};

template <class T>
requires(kIsFloat<T> || sizeof(T) == 1) struct Fold<SumSquaresOf<T>, T> {
  typename SumSquaresOf<T>::Local local;

  template <int kVectors>
  __device__ void Tile(const Vector16<T> (&tile)[kVectors], unsigned, const Walk<T>&) {
    if constexpr (kIsFloat<T>) {
      local.sum += TileSum(tile, [](double x) { return x * x; });
    } else {
      unsigned sum = 0;
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
#pragma unroll
        for (unsigned word : tile[v].Words().word) {
          if constexpr (std::is_same_v<T, Bool>) word = __vsetne4(word, 0u);
          if constexpr (kIsSigned<T>) {
            sum = static_cast<unsigned>(__dp4a(static_cast<int>(word), static_cast<int>(word), static_cast<int>(sum)));
          } else {
            sum = __dp4a(word, word, sum);
          }
        }
      }
      local.sum += sum;
    }
  }
  __device__ typename SumSquaresOf<T>::State Settle(const Walk<T>&) const { return local; }
};

template <class T>
struct Fold<MomentsOf<T>, T> {
  typename MomentsOf<T>::Local local;

  template <int kVectors>
  __device__ void Tile(const Vector16<T> (&tile)[kVectors], unsigned slot, const Walk<T>&) {
    if (slot == 0) local.pivot = IsFinite(tile[0].element[0]) ? tile[0].element[0] : T{};
    const double pivot = ToDouble(local.pivot);
    local.count += kVectors * Vector16<T>::kElements;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int e = 0; e < Vector16<T>::kElements; ++e) {
        const double deviation = ToDouble(tile[v].element[e]) - pivot;
        local.sum += deviation;
        local.sum_squares += deviation * deviation;
      }
    }
  }
  __device__ typename MomentsOf<T>::State Settle(const Walk<T>&) const { return MomentsOf<T>::Settle(local); }
};

// Sum, sum of squares and, of floats, moments together: what they share is computed once.
template <class T>
struct PowerSumsOf {
  static constexpr Accumulator kAccumulator = Accumulator::kMoments;  // not tested by the kernels that have this
  struct State {
    typename SumOf<T>::State sum;
    typename SumSquaresOf<T>::State sum_squares;
    typename MomentsOf<T>::State moments;
  };
  struct Local {
    typename SumOf<T>::Local sum;
    typename SumSquaresOf<T>::Local sum_squares;
    typename MomentsOf<T>::Local moments;
  };
  __device__ static void Add(Local& a, T x, std::int64_t index) {
    SumOf<T>::Add(a.sum, x, index);
    SumSquaresOf<T>::Add(a.sum_squares, x, index);
    MomentsOf<T>::Add(a.moments, x, index);
  }
  __device__ static State Settle(const Local& a) { return {a.sum, a.sum_squares, MomentsOf<T>::Settle(a.moments)}; }
  __device__ static void Merge(State& into, const State& later) {
    SumOf<T>::Merge(into.sum, later.sum);
    SumSquaresOf<T>::Merge(into.sum_squares, later.sum_squares);
    MomentsOf<T>::Merge(into.moments, later.moments);
  }
  __device__ static void Store(const State& state, Partial* out) {
    SumOf<T>::Store(state.sum, out);
    SumSquaresOf<T>::Store(state.sum_squares, out);
    MomentsOf<T>::Store(state.moments, out);
  }
};

template <class T>
requires(!kIsFloat<T>) struct PowerSumsOf<T> {
  static constexpr Accumulator kAccumulator = Accumulator::kMoments;  // not tested by the kernels that have this
  struct State {
    typename SumOf<T>::State sum;
    typename SumSquaresOf<T>::State sum_squares;
  };
  using Local = State;
  __device__ static void Add(Local& a, T x, std::int64_t index) {
    SumOf<T>::Add(a.sum, x, index);
    SumSquaresOf<T>::Add(a.sum_squares, x, index);
  }
  __device__ static State Settle(const Local& a) { return a; }
  __device__ static void Merge(State& into, const State& later) {
    SumOf<T>::Merge(into.sum, later.sum);
    SumSquaresOf<T>::Merge(into.sum_squares, later.sum_squares);
  }
  __device__ static void Store(const State& state, Partial* out) {
    SumOf<T>::Store(state.sum, out);
    SumSquaresOf<T>::Store(state.sum_squares, out);
  }
};

template <class T>
struct Fold<PowerSumsOf<T>, T> {
  Fold<SumOf<T>, T> sum;
  Fold<SumSquaresOf<T>, T> sum_squares;
  Fold<MomentsOf<T>, T> moments;

  template <int kVectors>
  __device__ void Tile(const Vector16<T> (&tile)[kVectors], unsigned slot, const Walk<T>& walk) {
    // Vector by vector, so that few elements are held as doubles at a time.
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const Vector16<T> one[1] = {tile[v]};
      sum.Tile(one, slot + v, walk);
      sum_squares.Tile(one, slot + v, walk);
      moments.Tile(one, slot + v, walk);
    }
  }
  __device__ typename PowerSumsOf<T>::State Settle(const Walk<T>& walk) const {
    return {sum.Settle(walk), sum_squares.Settle(walk), moments.Settle(walk)};
  }
};

template <class T>
requires(!kIsFloat<T>) struct Fold<PowerSumsOf<T>, T> {
  Fold<SumOf<T>, T> sum;
  Fold<SumSquaresOf<T>, T> sum_squares;

  template <int kVectors>
  __device__ void Tile(const Vector16<T> (&tile)[kVectors], unsigned slot, const Walk<T>& walk) {
    sum.Tile(tile, slot, walk);
    sum_squares.Tile(tile, slot, walk);
  }
  __device__ typename PowerSumsOf<T>::State Settle(const Walk<T>& walk) const {
    return {sum.Settle(walk), sum_squares.Settle(walk)};
  }
};

// The sums of f16 come from the moments: deviations of f16 from a finite pivot are exact in f64, and so are 2^12 of
// them added.
template <>
struct Fold<PowerSumsOf<Half>, Half> {
  Fold<MomentsOf<Half>, Half> moments;

  template <int kVectors>
  __device__ void Tile(const Vector16<Half> (&tile)[kVectors], unsigned slot, const Walk<Half>& walk) {
    moments.Tile(tile, slot, walk);
  }
  __device__ PowerSumsOf<Half>::State Settle(const Walk<Half>& walk) const {
    PowerSumsOf<Half>::State state;
    state.moments = moments.Settle(walk);
    const auto n = static_cast<double>(moments.local.count);
    const double pivot = ToDouble(moments.local.pivot);
    const double sum = moments.local.sum;
    const double sum_squares = moments.local.sum_squares;
    state.sum.sum = n * pivot + sum;
    // Not finite only if an element is infinite or NaN, and then it is what the sum of squares is: the pivot is finite.
    state.sum_squares.sum = IsFinite(sum_squares) ? sum_squares + pivot * (2 * sum + n * pivot) : sum_squares;
    return state;
  }
};

// Counts of f16 and bf16, in pairs: a comparison of two pairs gives 1.0 or 0.0 for each, and a tile has few enough
// elements for their sums to be exact.
template <class T>
requires(std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) struct Fold<CountsOf<T>, T> {
  typename CountsOf<T>::Local local;

  template <int kVectors>
  __device__ void Tile(const Vector16<T> (&tile)[kVectors], unsigned, const Walk<T>&) {
    using Pair = PairOf<T>;
    Pair nonzero = PairFromWord<Pair>(0);
    Pair ordered = nonzero;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (const unsigned word : tile[v].Words().word) {
        const Pair pair = PairFromWord<Pair>(word);
        nonzero = __hadd2(nonzero, __hneu2(pair, PairFromWord<Pair>(0)));
        ordered = __hadd2(ordered, __heq2(pair, pair));
      }
    }
    local.nonzero += static_cast<int>(__low2float(nonzero)) + static_cast<int>(__high2float(nonzero));
    local.nan += kVectors * Vector16<T>::kElements - static_cast<int>(__low2float(ordered)) -
                 static_cast<int>(__high2float(ordered));
  }
  __device__ typename CountsOf<T>::State Settle(const Walk<T>&) const { return local; }
};

// Extrema of each tile, and the tile where the thread's extrema were first. Which element of it, is looked up at the
// end, by loading that tile again, and only by the threads that have the warp's extremum. No branch depends on the data
// until then.
template <class T>
struct Fold<ExtremaOf<T>, T> {
  using Key = typename ExtremaOf<T>::Key;
  static constexpr unsigned kNoSlot = ~0u;

  Key min_key = std::numeric_limits<Key>::max();
  Key max_key = std::numeric_limits<Key>::min();
  unsigned min_slot = kNoSlot;
  unsigned max_slot = kNoSlot;
  unsigned nan_slot = kNoSlot;

  template <int kVectors>
  __device__ void Tile(const Vector16<T> (&tile)[kVectors], unsigned slot, const Walk<T>&) {
    const TileExtrema<T> extrema = ExtremaOfTile(tile);
    if (extrema.min_key < min_key || slot == 0) {
      min_key = extrema.min_key;
      min_slot = slot;
    }
    if (extrema.max_key > max_key || slot == 0) {
      max_key = extrema.max_key;
      max_slot = slot;
    }
    if (kIsFloat<T> && extrema.has_nan && nan_slot == kNoSlot) nan_slot = slot;
  }

  __device__ ExtremaState Settle(const Walk<T>& walk) const {
    const std::int64_t warp_min = WarpExtremum<false>(WidenKey(min_key));
    const std::int64_t warp_max = WarpExtremum<true>(WidenKey(max_key));
    ExtremaState state;
    if (nan_slot != kNoSlot) {  // the extrema no longer matter
      state.nan_index = Find(walk, nan_slot, [](T x) { return IsNan(x); });
      return state;
    }
    if (min_slot != kNoSlot && WidenKey(min_key) == warp_min) {
      state.min_key = warp_min;
      state.min_index = Find(walk, min_slot, [this](T x) { return OrderKey<T>::Of(x) == min_key; });
    }
    if (max_slot != kNoSlot && WidenKey(max_key) == warp_max) {
      state.max_key = warp_max;
      state.max_index = Find(walk, max_slot, [this](T x) { return OrderKey<T>::Of(x) == max_key; });
    }
    return state;
  }

  // The index of the first element from that slot on for which it is true; there is one.
  template <class Predicate>
  __device__ static std::int64_t Find(const Walk<T>& walk, unsigned slot, Predicate is_it) {
    for (; walk.VectorOf(slot) < walk.count; ++slot) {
      const Vector16<T> vector = LoadOnce<T>(walk.vectors + walk.VectorOf(slot));
      for (int e = 0; e < Vector16<T>::kElements; ++e) {
        if (is_it(vector.element[e])) return walk.IndexOf(slot, e);
      }
    }
    return kNoIndex;
  }
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_FOLD_CUH_
