// Several accumulators in one kernel: a thread's folds, their states block by block, and how the last block merges
// those.
#ifndef REDUCED_KERNELS_CUDA_BLOCK_STATES_CUH_
#define REDUCED_KERNELS_CUDA_BLOCK_STATES_CUH_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device_reduce.cuh"
#include "kernels/cuda/fold.cuh"

namespace reduced {

// A thread's share of the work: its state for each of several accumulators.
template <class T, class... As>
struct Folds {};
template <class T, class A, class... Rest>
struct Folds<T, A, Rest...> {
  Fold<A, T> fold;
  Folds<T, Rest...> rest;
};

// Calls f with each accumulator that is wanted: all, or those of the set.
template <bool kAll, class Function, class T, class A, class... Rest>
__device__ inline void ForEach(AccumulatorSet set, Folds<T, A, Rest...>& folds, Function f) {
  if (kAll || (set & SetOf(A::kAccumulator)) != 0) f(std::type_identity<A>{}, folds.fold);
  if constexpr (sizeof...(Rest) > 0) ForEach<kAll>(set, folds.rest, f);
}
template <bool kAll, class Function, class T>
__device__ inline void ForEach(AccumulatorSet, Folds<T>&, Function) {}

// Bytes of one accumulator's states of that many blocks, such that the next accumulator's are aligned.
template <class State>
__host__ __device__ constexpr std::size_t StatesBytes(unsigned blocks) {
  static_assert(alignof(State) <= 16);
  return (sizeof(State) * blocks + 15) / 16 * 16;
}

// The elements of an array that are in no whole vector: a head up to the first line boundary, and a tail. Each has
// fewer elements than a block has threads.
struct Edges {
  unsigned head;
  unsigned tail;
};

// An array that some blocks reduce: whole vectors of 16 bytes between its edges.
struct EdgedArray {
  const void* data;
  std::int64_t count;
  std::int64_t base_index;  // of the first element in the whole array
  unsigned vectors;
  Edges edges;
};
// Vectors begin at a line of the caches, which is what a warp's loads should start on.
template <class T>
__host__ __device__ inline EdgedArray EdgedArrayOf(const void* data, std::int64_t count, std::int64_t base_index) {
  constexpr std::uintptr_t kLineBytes = 128;
  const auto to_boundary =
      static_cast<std::int64_t>((-reinterpret_cast<std::uintptr_t>(data) & (kLineBytes - 1)) / sizeof(T));
  const std::int64_t head = std::min(to_boundary, count);
  const std::int64_t vectors = (count - head) / Vector16<T>::kElements;
  return {data,
          count,
          base_index,
          static_cast<unsigned>(vectors),
          {static_cast<unsigned>(head), static_cast<unsigned>(count - head - vectors * Vector16<T>::kElements)}};
}
// The walk of this thread of block `block` of `blocks`, with kThreads each.
template <class T, int kThreads>
__device__ inline Walk<T> WalkOf(const EdgedArray& array, unsigned block, unsigned blocks, bool omit_nan) {
  return {.vectors = reinterpret_cast<const uint4*>(static_cast<const T*>(array.data) + array.edges.head),
          .count = array.vectors,
          .thread = block * kThreads + threadIdx.x,
          .threads = blocks * kThreads,
          .base_index = array.base_index + array.edges.head,
          .omit_nan = omit_nan};
}

// A thread's state, its edge elements included.
template <class A, class T>
__device__ inline typename A::State StateOf(const Fold<A, T>& fold, const Walk<T>& walk, const EdgedArray& array) {
  const auto* const data = static_cast<const T*>(array.data);
  const Edges& edges = array.edges;
  typename A::State state = fold.Settle(walk);
  if (walk.thread < std::max(edges.head, edges.tail)) {
    typename A::Local local;
    const auto add = [&](std::int64_t i) {
      const T x = data[i];
      const bool left_out = walk.omit_nan && A::kAccumulator != Accumulator::kCounts && IsNan(x);
      if (!left_out) A::Add(local, x, array.base_index + i);
    };
    if (walk.thread < edges.head) add(walk.thread);
    if (walk.thread < edges.tail) add(array.count - edges.tail + walk.thread);
    A::Merge(state, A::Settle(local));
  }
  return state;
}

// The merged states of all blocks, of each of the first kMergers threads' share of them; kAtOnce loads in flight.
template <class A, int kMergers, int kAtOnce>
__device__ inline typename A::State MergedStates(const unsigned char* states) {
  using State = typename A::State;
  State state{};
  for (unsigned block = threadIdx.x; block < gridDim.x; block += kAtOnce * kMergers) {
    State others[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const unsigned other = block + i * kMergers;
      others[i] = other < gridDim.x ? LoadFromL2(reinterpret_cast<const State*>(states) + other) : State{};
    }
#pragma unroll
    for (const State& other : others) A::Merge(state, other);
  }
  return state;
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_BLOCK_STATES_CUH_
