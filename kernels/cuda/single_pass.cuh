// One read of an array by some blocks, each of whose threads folds vectors of 16 bytes in registers: what the pipeline
// single_pass (single_pass.cu) and the launch for many arrays (many_folds.cu) share.
#ifndef REDUCED_KERNELS_CUDA_SINGLE_PASS_CUH_
#define REDUCED_KERNELS_CUDA_SINGLE_PASS_CUH_

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/block_states.cuh"

namespace reduced {

// How the work is laid out: threads of a block, blocks that should fit on a multiprocessor (which tells the compiler
// how many registers it has), and vectors that a thread has in flight.
template <int kThreadsOfBlock, int kMinBlocksPerMultiprocessor, int kVectorsInFlight>
struct PassShape {
  static constexpr int kThreads = kThreadsOfBlock;
  static constexpr int kMinBlocks = kMinBlocksPerMultiprocessor;
  static constexpr int kVectors = kVectorsInFlight;
};

// Measured on an H200: tests/bench/bench_cuda.
using ExtremaAlone = PassShape<1024, 1, 4>;
// Several accumulators, where loads take turns with much arithmetic; the more so for integers, and for bf16.
template <class T>
using Statistics =
    std::conditional_t<kIsFloat<T> && !std::is_same_v<T, BFloat16>, PassShape<384, 2, 6>, PassShape<512, 1, 8>>;

// Threads that fit on a multiprocessor of the architecture compiled for.
#if defined(__CUDA_ARCH__) && \
    (__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 870 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1100)
constexpr int kThreadsPerMultiprocessor = 1536;
#else
constexpr int kThreadsPerMultiprocessor = 2048;
#endif

// Folds the vectors that a thread has of an array.
template <class T, bool kAll, class S, class... As>
__device__ __forceinline__ void FoldVectors(const Walk<T>& walk, AccumulatorSet set, Folds<T, As...>& folds) {
  constexpr int kVectors = S::kVectors;
  unsigned slot = 0;
  unsigned vector = walk.thread;
  for (; vector + (kVectors - 1) * walk.threads < walk.count; vector += kVectors * walk.threads) {
    Vector16<T> tile[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) tile[v] = LoadOnce<T>(walk.vectors + vector + v * walk.threads);
    ForEach<kAll>(set, folds, [&](auto, auto& fold) { fold.Tile(tile, slot, walk); });
    slot += kVectors;
  }
  for (; vector < walk.count; vector += walk.threads) {
    const Vector16<T> tile[1] = {LoadOnce<T>(walk.vectors + vector)};
    ForEach<kAll>(set, folds, [&](auto, auto& fold) { fold.Tile(tile, slot, walk); });
    ++slot;
  }
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_SINGLE_PASS_CUH_
