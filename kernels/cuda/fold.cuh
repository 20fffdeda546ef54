// How one thread folds the elements it loads, tile by tile, in registers.
//
// A thread walks over the array in slots: slot s is the vector at thread + s * threads. A tile is kVectors successive
// slots, loaded together. Fold<A, T> is the state of a thread for accumulator A:
//
//   Fold<A, T> fold;
//   fold.Tile(tile, slot, walk);              // `slot`: of the tile's first vector, ascending, the first tile's is 0
//   A::State state = fold.Settle(walk);       // by all threads of a warp together
//
// NaNs cost nothing until there is one: what a tile gives is NaN then, and where NaNs are left out, the tile is folded
// once more without them.
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
  bool omit_nan;            // NaNs are left out, but for those who count them

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

// x, or what adds nothing for a NaN.
__device__ inline double ZeroForNan(double x) { return IsNan(x) ? 0 : x; }

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

// The same of what `walk` leaves of the tile.
template <class T, int kVectors, class Function>
__device__ inline double TileSumWithout(const Vector16<T> (&tile)[kVectors], const Walk<T>& walk, Function f) {
  const double sum = TileSum(tile, f);
  if (!walk.omit_nan || !IsNan(sum)) return sum;
  return Again(tile, [f](const auto& again) { return TileSum(again, [f](double x) { return f(ZeroForNan(x)); }); });
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
  __device__ void Tile(const Vector16<T> (&tile)[kVectors], unsigned, const Walk<T>& walk) {
    if constexpr (kIsFloat<T>) {
      local.sum += TileSumWithout(tile, walk, [](double x) { return x; });
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

// Squares of 16-bit integers: products of 32 bits added to 64 by one instruction.
template <class T>
requires(!kIsFloat<T> && sizeof(T) == 2) struct Fold<SumSquaresOf<T>, T> {
  typename SumSquaresOf<T>::Local local;

  template <int kVectors>
  __device__ void Tile(const Vector16<T> (&tile)[kVectors], unsigned, const Walk<T>&) {
    using Word = std::conditional_t<kIsSigned<T>, std::int32_t, std::uint32_t>;
    using Wide = std::conditional_t<kIsSigned<T>, std::int64_t, std::uint64_t>;
    Wide sum = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (const T x : tile[v].element) sum += static_cast<Wide>(Word{x}) * Word{x};
    }
    local.sum += static_cast<std::uint64_t>(sum);
  }
  __device__ typename SumSquaresOf<T>::State Settle(const Walk<T>&) const { return local; }
};

template <class T>
requires(kIsFloat<T> || sizeof(T) == 1) struct Fold<SumSquaresOf<T>, T> {
  typename SumSquaresOf<T>::Local local;

  template <int kVectors>
  __device__ void Tile(const Vector16<T> (&tile)[kVectors], unsigned, const Walk<T>& walk) {
    if constexpr (kIsFloat<T>) {
      local.sum += TileSumWithout(tile, walk, [](double x) { return x * x; });
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
  __device__ void Tile(const Vector16<T> (&tile)[kVectors], unsigned slot, const Walk<T>& walk) {
    constexpr int kElements = kVectors * Vector16<T>::kElements;
    if (slot == 0) local.pivot = PivotOf(tile);
    const double pivot = ToDouble(local.pivot);
    if (!walk.omit_nan) {
      local.count += kElements;
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        const double deviation = DeviationOf(tile, i, pivot);
        local.sum += deviation;
        local.sum_squares += deviation * deviation;
      }
      return;
    }
    int count = 0;
    double sum = 0;
    double sum_squares = 0;
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const double deviation = DeviationOf(tile, i, pivot);
      const double kept = ZeroForNan(deviation);
      if (!IsNan(deviation)) ++count;
      sum += kept;
      sum_squares += kept * kept;
    }
    local.count += count;
    local.sum += sum;
    local.sum_squares += sum_squares;
  }
  __device__ typename MomentsOf<T>::State Settle(const Walk<T>&) const { return MomentsOf<T>::Settle(local); }

 private:
  // The first finite element, or 0.
  template <int kVectors>
  __device__ static T PivotOf(const Vector16<T> (&tile)[kVectors]) {
    T pivot{};
#pragma unroll
    for (int i = kVectors * Vector16<T>::kElements - 1; i >= 0; --i) {
      const T x = tile[i / Vector16<T>::kElements].element[i % Vector16<T>::kElements];
      if (IsFinite(x)) pivot = x;
    }
    return pivot;
  }
  template <int kVectors>
  __device__ static double DeviationOf(const Vector16<T> (&tile)[kVectors], int i, double pivot) {
    return ToDouble(tile[i / Vector16<T>::kElements].element[i % Vector16<T>::kElements]) - pivot;
  }
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

// How many elements of a tile aren't zero, and how many are NaN: those of a tile in 32 bits or less.
template <class T>
struct Fold<CountsOf<T>, T> {
  typename CountsOf<T>::Local local;

  template <int kVectors>
  __device__ void Tile(const Vector16<T> (&tile)[kVectors], unsigned, const Walk<T>&) {
    unsigned nonzero = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (const T x : tile[v].element) nonzero += IsNonzero(x) ? 1 : 0;
    }
    local.nonzero += nonzero;
  }
  __device__ typename CountsOf<T>::State Settle(const Walk<T>&) const { return local; }
};

// How many NaNs a tile has.
template <class T, int kVectors>
__device__ inline int NansOf(const Vector16<T> (&tile)[kVectors]) {
  return Again(tile, [](const auto& again) {
    int nan = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (const T x : again[v].element) nan += IsNan(x) ? 1 : 0;
    }
    return nan;
  });
}

// Of f32 they are added up as floats, whose units are less busy. NaNs are counted if the sum of the tile is one.
template <>
struct Fold<CountsOf<float>, float> {
  CountsOf<float>::Local local;

  template <int kVectors>
  __device__ void Tile(const Vector16<float> (&tile)[kVectors], unsigned, const Walk<float>&) {
    float nonzero = 0;
    float sum = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (const float x : tile[v].element) {
        nonzero += x != 0 ? 1.0F : 0.0F;
        sum += x;
      }
    }
    local.nonzero += static_cast<int>(nonzero);
    if (IsNan(sum)) local.nan += NansOf(tile);
  }
  __device__ CountsOf<float>::State Settle(const Walk<float>&) const { return local; }
};

// Of f64 by their bits, as the units of f64 have the sums to do. NaNs are counted if the largest upper word is
// infinity's or more.
template <>
struct Fold<CountsOf<double>, double> {
  CountsOf<double>::Local local;

  template <int kVectors>
  __device__ void Tile(const Vector16<double> (&tile)[kVectors], unsigned, const Walk<double>&) {
    unsigned nonzero = 0;
    unsigned largest = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (const double x : tile[v].element) {
        const unsigned high = static_cast<unsigned>(__double2hiint(x)) & 0x7fffffffu;
        nonzero += (high | static_cast<unsigned>(__double2loint(x))) != 0 ? 1 : 0;
        largest = max(largest, high);
      }
    }
    local.nonzero += nonzero;
    if (largest >= 0x7ff00000u) local.nan += NansOf(tile);
  }
  __device__ CountsOf<double>::State Settle(const Walk<double>&) const { return local; }
};

// The top bit of each 8- or 16-bit integer of a word.
template <class T>
inline constexpr unsigned kTops = sizeof(T) == 1 ? 0x80808080u : 0x80008000u;

// Those of the elements that aren't zero: adding 0x7f.. carries into them.
template <class T>
__device__ inline unsigned TopsOfNonzero(unsigned word) {
  return (((word & ~kTops<T>)+~kTops<T>) | word) & kTops<T>;
}

// Of bytes four at a time, of 16-bit integers two.
template <class T>
requires(!kIsFloat<T> && sizeof(T) < 4) struct Fold<CountsOf<T>, T> {
  typename CountsOf<T>::Local local;

  template <int kVectors>
  __device__ void Tile(const Vector16<T> (&tile)[kVectors], unsigned, const Walk<T>&) {
    constexpr int kTopAt = 8 * static_cast<int>(sizeof(T)) - 1;
    unsigned tops = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (const unsigned word : tile[v].Words().word) {
        const unsigned nonzero = TopsOfNonzero<T>(word);
        if constexpr (sizeof(T) == 1) {
          tops = __dp4a(nonzero, 0x01010101u, tops);
        } else {
          tops += nonzero >> 16;
          tops += nonzero & 0xffffu;
        }
      }
    }
    local.nonzero += tops >> kTopAt;
  }
  __device__ typename CountsOf<T>::State Settle(const Walk<T>&) const { return local; }
};

// Of f16 and bf16 in pairs: a comparison of two pairs gives 1.0 or 0.0 for each, and a tile has few enough elements for
// their sums to be exact.
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

// And, or and exclusive or of the bits, of narrow elements several to a word. Where bool is not 0, it is 1.
template <class T>
requires(sizeof(T) < 8) struct Fold<BitsOf<T>, T> {
  unsigned bits_and = ~0u;
  unsigned bits_or = 0;
  unsigned bits_xor = 0;

  template <int kVectors>
  __device__ void Tile(const Vector16<T> (&tile)[kVectors], unsigned, const Walk<T>&) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (unsigned word : tile[v].Words().word) {
        if constexpr (std::is_same_v<T, Bool>) word = __vsetne4(word, 0u);
        bits_and &= word;
        bits_or |= word;
        bits_xor ^= word;
      }
    }
  }
  __device__ typename BitsOf<T>::State Settle(const Walk<T>&) const {
    typename BitsOf<T>::Local local;
#pragma unroll
    for (int at = 0; at < 32; at += 8 * static_cast<int>(sizeof(T))) {
      typename BitsOf<T>::Local of_one;
      of_one.bits_and = Extended(bits_and >> at);
      of_one.bits_or = Extended(bits_or >> at);
      of_one.bits_xor = Extended(bits_xor >> at);
      BitsOf<T>::Merge(local, of_one);
    }
    return local;
  }

 private:
  // The lowest element of a word as BitsOf<T> has it.
  __device__ static std::uint64_t Extended(unsigned word) {
    using Integer = decltype(ToInteger(T{}));
    return static_cast<std::uint64_t>(static_cast<Integer>(word));
  }
};

// Magnitudes of 8- and 16-bit integers: those of a tile in 32 bits.
template <class T>
requires(!kIsFloat<T> && sizeof(T) < 4) struct Fold<AbsSumOf<T>, T> {
  typename AbsSumOf<T>::Local local;

  template <int kVectors>
  __device__ void Tile(const Vector16<T> (&tile)[kVectors], unsigned, const Walk<T>&) {
    if constexpr (!kIsSigned<T>) {
      local.sum += static_cast<std::uint32_t>(TileSumOfNarrow(tile));
      return;
    }
    unsigned sum = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (sizeof(T) == 1) {
#pragma unroll
        for (const unsigned word : tile[v].Words().word) sum = __dp4a(__vabs4(word), 0x01010101u, sum);
      } else {
#pragma unroll
        for (const T x : tile[v].element) sum += static_cast<unsigned>(abs(static_cast<int>(x)));
      }
    }
    local.sum += sum;
  }
  __device__ typename AbsSumOf<T>::State Settle(const Walk<T>&) const { return local; }
};

template <class T>
requires(kIsFloat<T>) struct Fold<AbsSumOf<T>, T> {
  typename AbsSumOf<T>::Local local;

  template <int kVectors>
  __device__ void Tile(const Vector16<T> (&tile)[kVectors], unsigned, const Walk<T>& walk) {
    local.sum += TileSumWithout(tile, walk, [](double x) { return fabs(x); });
  }
  __device__ typename AbsSumOf<T>::State Settle(const Walk<T>&) const { return local; }
};

// The product of floats. Exponents are added apart from the rest, which is then within [1, 2): that of a tile needs to
// be taken apart once only.
template <class T>
requires(kIsFloat<T>) struct Fold<ProductOf<T>, T> {
  FloatProduct local;

  template <int kVectors>
  __device__ void Tile(const Vector16<T> (&tile)[kVectors], unsigned, const Walk<T>& walk) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int e = 0; e < Vector16<T>::kElements; e += kTogether) Group(tile[v], e, walk);
    }
  }
  __device__ FloatProduct Settle(const Walk<T>&) const { return local; }

 private:
  // So many elements' product is a normal f64; of f64 that none is known of.
  static constexpr int kTogether = std::is_same_v<T, Half> ? 8 : std::is_same_v<T, double> ? 2 : 4;

  __device__ __forceinline__ void Group(const Vector16<T>& vector, int first, const Walk<T>& walk) {
    double factor[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) factor[i] = ToDouble(vector.element[first + i]);
    if constexpr (std::is_same_v<T, double>) {
      bool normal = true;
      int exponent = 0;
      double mantissa = local.mantissa;
#pragma unroll
      for (const double x : factor) {
        const int high = __double2hiint(x);
        const unsigned field = static_cast<unsigned>(high) >> 20 & 0x7ff;
        normal = normal && field - 1 < 0x7fe;
        exponent += static_cast<int>(field) - 1023;
        mantissa *= __hiloint2double((high & static_cast<int>(0x800fffff)) | 0x3ff00000, __double2loint(x));
      }
      if (normal) return Take({mantissa, exponent});
#pragma unroll
      for (const double x : factor) {
        if (!walk.omit_nan || !IsNan(x)) ProductOf<T>::Add(local, x, 0);
      }
    } else {
      double product = factor[0];
#pragma unroll
      for (int i = 1; i < kTogether; ++i) product *= factor[i];
      if (walk.omit_nan && IsNan(product)) {
        product = 1;
#pragma unroll
        for (const double x : factor) product *= IsNan(x) ? 1 : x;
      }
      Take({local.mantissa * product, 0});
    }
  }
  // What has been multiplied by the mantissa already.
  __device__ __forceinline__ void Take(FloatProduct product) {
    Normalize(product);
    local.mantissa = product.mantissa;
    local.exponent += product.exponent;
  }
};

// The product of integers: once it is beyond 64 bits and has 64 factors of two, as it soon has of most arrays, only
// signs and zeros matter.
template <class T>
requires(!kIsFloat<T>) struct Fold<ProductOf<T>, T> {
  IntProduct local;

  template <int kVectors>
  __device__ void Tile(const Vector16<T> (&tile)[kVectors], unsigned, const Walk<T>&) {
    if (local.overflowed && local.wrapped == 0) return SignsAndZeros(tile);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int e = 0; e < Vector16<T>::kElements; ++e) ProductOf<T>::Add(local, tile[v].element[e], 0);
    }
  }
  __device__ IntProduct Settle(const Walk<T>&) const { return local; }

 private:
  template <int kVectors>
  __device__ void SignsAndZeros(const Vector16<T> (&tile)[kVectors]) {
    bool negative = false;
    bool zero = false;
    if constexpr (sizeof(T) < 4) {
      unsigned signs = 0;
      unsigned nonzero = kTops<T>;
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
#pragma unroll
        for (const unsigned word : tile[v].Words().word) {
          signs ^= word;
          nonzero &= TopsOfNonzero<T>(word);
        }
      }
      negative = kIsSigned<T> && __popc(signs & kTops<T>) % 2 != 0;
      zero = nonzero != kTops<T>;
    } else {
      T signs = 0;
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
#pragma unroll
        for (const T x : tile[v].element) {
          signs ^= x;
          zero = zero || x == 0;
        }
      }
      negative = IsNegative(signs);
    }
    local.negative = local.negative != negative;
    local.zero = local.zero || zero;
  }
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
  __device__ void Tile(const Vector16<T> (&tile)[kVectors], unsigned slot, const Walk<T>& walk) {
    const TileExtrema<T> extrema = ExtremaOfTile(tile, walk.omit_nan);
    if (kIsFloat<T> && extrema.has_nan && nan_slot == kNoSlot) nan_slot = slot;
    if (kIsFloat<T> && !extrema.has_number) return;
    if (extrema.min_key < min_key || min_slot == kNoSlot) {
      min_key = extrema.min_key;
      min_slot = slot;
    }
    if (extrema.max_key > max_key || max_slot == kNoSlot) {
      max_key = extrema.max_key;
      max_slot = slot;
    }
  }

  __device__ ExtremaState Settle(const Walk<T>& walk) const {
    const std::int64_t warp_min = WarpExtremum<false>(WidenKey(min_key));
    const std::int64_t warp_max = WarpExtremum<true>(WidenKey(max_key));
    ExtremaState state;
    if (nan_slot != kNoSlot && !walk.omit_nan) {  // the extrema no longer matter
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
