// How the states of threads are merged: by warp, by block. Every function is called by all threads of the warp or
// block.
#ifndef REDUCED_KERNELS_CUDA_DEVICE_REDUCE_CUH_
#define REDUCED_KERNELS_CUDA_DEVICE_REDUCE_CUH_

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/algebra/accumulator.h"

namespace reduced {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kFullWarp = 0xffffffffu;

// The smallest or largest value that a thread of the warp has, for all of them.
template <bool kLargest, class Value>
__device__ inline Value WarpExtremum(Value value) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    const Value other = __shfl_xor_sync(kFullWarp, value, offset);
    value = (kLargest ? other > value : other < value) ? other : value;
  }
  return value;
}

template <class State>
__device__ inline State ShuffleDown(const State& state, int offset) {
  static_assert(sizeof(State) % 4 == 0);
  unsigned words[sizeof(State) / 4];
  memcpy(words, &state, sizeof(State));
#pragma unroll
  for (unsigned& word : words) word = __shfl_down_sync(kFullWarp, word, offset);
  State other;
  memcpy(&other, words, sizeof(State));
  return other;
}

// What another block wrote: read past the L1 cache.
template <class State>
__device__ inline State LoadFromL2(const State* address) {
  using Word = std::conditional_t<sizeof(State) % 8 == 0 && alignof(State) % 8 == 0, unsigned long long, unsigned>;
  static_assert(sizeof(State) % sizeof(Word) == 0);
  Word words[sizeof(State) / sizeof(Word)];
#pragma unroll
  for (int w = 0; w < static_cast<int>(sizeof(State) / sizeof(Word)); ++w) {
    words[w] = __ldcg(reinterpret_cast<const Word*>(address) + w);
  }
  State state;
  memcpy(&state, words, sizeof(State));
  return state;
}

// The merged state of the warp's first kLanes lanes, a power of two, in lane 0.
template <class A, int kLanes = kWarpSize>
__device__ inline typename A::State WarpReduce(typename A::State state) {
  static_assert(std::has_single_bit(static_cast<unsigned>(kLanes)));
  // Merging large states takes much code and many registers: once is enough.
#pragma unroll(sizeof(typename A::State) > 16 ? 1 : 5)
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    const typename A::State other = ShuffleDown(state, offset);
    A::Merge(state, other);
  }
  return state;
}

// The merged state of a block of kThreads, in thread 0. `shared`: room for one state a warp; in use until the first
// warp has returned, so that a barrier has to stand before it is used again.
template <class A, int kThreads>
__device__ inline typename A::State BlockReduce(typename A::State state, void* shared) {
  auto* const by_warp = static_cast<typename A::State*>(shared);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  state = WarpReduce<A>(state);
  if (lane == 0) by_warp[warp] = state;
  __syncthreads();
  if (warp == 0) {
    constexpr int kWarps = kThreads / kWarpSize;
    state = WarpReduce<A, static_cast<int>(std::bit_ceil(static_cast<unsigned>(kWarps)))>(
        lane < kWarps ? by_warp[lane] : typename A::State{});
  }
  return state;
}

// How many elements there are, as an accumulator.
struct ElementCount {
  struct State {
    std::int64_t count = 0;
  };
  __device__ static void Merge(State& into, const State& other) { into.count += other.count; }
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_DEVICE_REDUCE_CUH_
