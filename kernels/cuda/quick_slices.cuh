// The kernels of quick_slices.h, for any fold.
#ifndef REDUCED_KERNELS_CUDA_QUICK_SLICES_CUH_
#define REDUCED_KERNELS_CUDA_QUICK_SLICES_CUH_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cuda/device_reduce.cuh"
#include "kernels/cuda/quick_slices.h"
#include "kernels/cuda/slice_layout.cuh"

namespace reduced {

inline constexpr int kQuickThreads = 256;
inline constexpr int kQuickWarps = kQuickThreads / kWarpSize;
inline constexpr unsigned kAllLanes = ~0U;
// Elements that a fold takes at once.
inline constexpr int kQuickTile = 16;

// Neighbouring words that are loaded at once.
template <class Word, int kElements>
struct alignas(kElements * sizeof(Word)) Words {
  Word word[kElements];
};

template <class Word, int kElements>
__device__ __forceinline__ Words<Word, kElements> LoadWords(const Word* address) {
  using Loaded = Words<Word, kElements>;
  Loaded words;
  if constexpr (sizeof(Loaded) == 16) {
    const uint4 raw = __ldg(reinterpret_cast<const uint4*>(address));
    memcpy(&words, &raw, sizeof(words));
  } else if constexpr (sizeof(Loaded) == 8) {
    const uint2 raw = __ldg(reinterpret_cast<const uint2*>(address));
    memcpy(&words, &raw, sizeof(words));
  } else {
    static_assert(kElements == 1);
    words.word[0] = __ldg(address);
  }
  return words;
}

template <class Fold>
__device__ __forceinline__ Fold FoldOfLane(const Fold& fold, int distance) {
  static_assert(sizeof(Fold) % 4 == 0 && sizeof(Fold) <= kQuickFoldBytes);
  unsigned words[sizeof(Fold) / 4];
  memcpy(words, &fold, sizeof(fold));
#pragma unroll
  for (unsigned& word : words) word = __shfl_xor_sync(kAllLanes, word, distance);
  Fold other;
  memcpy(&other, words, sizeof(other));
  return other;
}

// Merges the folds of `lanes` neighbouring lanes, a power of 2, by whole warps.
template <class Fold>
__device__ __forceinline__ void MergeLanes(int lanes, Fold* fold) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    if constexpr (requires { fold->plain(); }) {  // nearly all sums are
      if (__all_sync(kAllLanes, fold->plain())) {
        fold->AddOne(__shfl_xor_sync(kAllLanes, fold->sum, distance));
        continue;
      }
    }
    fold->Merge(FoldOfLane(*fold, distance));
  }
}

// Answers an output, or says that it is to be redone.
template <class Fold>
__device__ __forceinline__ void FinishOutput(const QuickLaunch& launch, std::int64_t output, const Fold& fold) {
  if (fold.Finish(launch.answers, launch.ops, output, launch.elements)) return;
  const unsigned bit = 1U << (output % 32);
  if ((atomicOr(launch.redo + output / 32, bit) & bit) == 0) atomicAdd(launch.redone, 1ULL);
}

// Adds kLoads loads of kElements each, of which the first `n` elements are there: in tiles.
template <class Fold, int kElements, int kLoads, class Position>
__device__ __forceinline__ void AddLoads(const Words<typename Fold::Word, kElements> (&loaded)[kLoads], int n,
                                         Position position, const QuickElements& of, Fold* fold) {
  constexpr int kAll = kElements * kLoads;
  constexpr int kTile = kAll < kQuickTile ? kAll : kQuickTile;
  static_assert(kAll % kTile == 0);
#pragma unroll
  for (int tile = 0; tile < kAll; tile += kTile) {
    if (tile >= n) break;
    typename Fold::Word x[kTile];
#pragma unroll
    for (int i = 0; i < kTile; ++i) x[i] = loaded[(tile + i) / kElements].word[(tile + i) % kElements];
    fold->Add(
        x, n - tile < kTile ? n - tile : kTile, [&](int i) { return position(tile + i); }, of);
  }
}

template <class Word, int kElements>
__device__ __forceinline__ Words<Word, kElements> Repeat(Word word) {
  Words<Word, kElements> words;
#pragma unroll
  for (Word& each : words.word) each = word;
  return words;
}

// Rows of up to 32 loads, each of a lane; a warp has kRows times as many rows as its lanes allow at once.
template <class Fold, int kElements, int kRows>
__global__ void __launch_bounds__(kQuickThreads) TinyRowsKernel(const __grid_constant__ QuickLaunch launch) {
  using Word = typename Fold::Word;
  const int lanes = launch.plan.lanes, lane = static_cast<int>(threadIdx.x) % lanes;
  const std::int64_t in_warp = kWarpSize / lanes;
  const std::int64_t warp = (std::int64_t{blockIdx.x} * kQuickThreads + threadIdx.x) / kWarpSize;
  const std::int64_t warps = std::int64_t{gridDim.x} * kQuickWarps;
  const auto* const data = static_cast<const Word*>(launch.array.data);
  const bool there = lane * kElements < launch.plan.run;
  for (std::int64_t first = warp * kRows * in_warp; first < launch.array.outputs; first += warps * kRows * in_warp) {
    Words<Word, kElements> loaded[kRows];
    const std::int64_t row = first + threadIdx.x % kWarpSize / lanes;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t output = row + r * in_warp;
      if (there && output < launch.array.outputs) {
        loaded[r] = LoadWords<Word, kElements>(data + OffsetOf(launch.array.kept, output) + lane * kElements);
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t output = row + r * in_warp;
      Fold fold;
      const bool mine = there && output < launch.array.outputs;
      if (mine) {
        const Words<Word, kElements> one[1] = {loaded[r]};
        const auto position = [&](int i) { return static_cast<std::uint32_t>(lane * kElements + i); };
        AddLoads<Fold, kElements, 1>(one, kElements, position, launch.elements, &fold);
      }
      MergeLanes(lanes, &fold);
      if (mine && lane == 0) FinishOutput(launch, output, fold);
    }
  }
}

// Rows, or parts of them, of runs of neighbours: `lanes` lanes each, kLoads loads of a lane at once.
template <class Fold, int kElements, int kLoads>
__global__ void __launch_bounds__(kQuickThreads) RowsKernel(const __grid_constant__ QuickLaunch launch) {
  using Word = typename Fold::Word;
  const QuickPlan& plan = launch.plan;
  const int lanes = plan.lanes, lane = static_cast<int>(threadIdx.x) % lanes;
  const std::int64_t in_warp = kWarpSize / lanes;
  const std::int64_t warp = (std::int64_t{blockIdx.x} * kQuickThreads + threadIdx.x) / kWarpSize;
  const std::int64_t warps = std::int64_t{gridDim.x} * kQuickWarps;
  const std::int64_t units = launch.array.outputs * plan.parts;
  const auto loads = static_cast<unsigned>(plan.run / kElements);
  const auto step = static_cast<unsigned>(lanes);
  const unsigned run_tiles = (loads + kLoads * step - 1) / (kLoads * step);
  const auto runs = static_cast<unsigned>(launch.array.elements / plan.run);
  const std::int64_t tiles = std::int64_t{run_tiles} * runs;
  const std::int64_t part_tiles = (tiles + plan.parts - 1) / plan.parts;
  for (std::int64_t first = warp * in_warp; first < units; first += warps * in_warp) {
    const std::int64_t unit = first + threadIdx.x % kWarpSize / lanes;
    Fold fold;
    const std::int64_t output = plan.parts == 1 ? unit : unit / plan.parts;
    if (unit < units) {
      const std::int64_t part = unit - output * plan.parts;
      const auto* const data = static_cast<const Word*>(launch.array.data) + OffsetOf(launch.array.kept, output);
      const std::int64_t end = min(tiles, (part + 1) * part_tiles);
      for (std::int64_t tile = part * part_tiles; tile < end; ++tile) {
        const unsigned run = runs == 1 ? 0 : static_cast<unsigned>(tile) / run_tiles;
        const unsigned at = (static_cast<unsigned>(tile) - run * run_tiles) * kLoads * step + lane;
        if (at >= loads) continue;
        const Word* from = data + std::int64_t{at} * kElements;
        if (runs != 1) from += OffsetOf(launch.array.reduced, run, launch.array.reduced.count - 1);
        Words<Word, kElements> loaded[kLoads];
        int n = 0;
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
          if (at + i * step < loads) {
            loaded[i] = LoadWords<Word, kElements>(from + i * step * kElements);
            n = (i + 1) * kElements;
          } else {
            loaded[i] = Repeat<Word, kElements>(Fold::Absent(loaded[0].word[0], launch.elements));
          }
        }
        const unsigned position = run * static_cast<unsigned>(plan.run) + at * kElements;
        AddLoads(
            loaded, n, [&](int i) { return position + i / kElements * step * kElements + i % kElements; },
            launch.elements, &fold);
      }
    }
    MergeLanes(lanes, &fold);
    if (unit >= units || lane != 0) continue;
    if (plan.parts == 1) {
      FinishOutput(launch, output, fold);
    } else {
      reinterpret_cast<Fold*>(launch.folds)[unit] = fold;
    }
  }
}

// Columns: kElements neighbouring ones of a thread, which walks down kLoads rows at once, as do the other row_warps - 1
// warps of the block that have the same columns. Threads have all columns of all positions of the outer kept
// dimensions, one after the other.
template <class Fold, int kElements, int kLoads>
__global__ void __launch_bounds__(kQuickThreads) ColumnsKernel(const __grid_constant__ QuickLaunch launch) {
  using Word = typename Fold::Word;
  __shared__ alignas(16) unsigned char shared[kQuickThreads * sizeof(Fold)];
  const QuickPlan& plan = launch.plan;
  const SliceArray& array = launch.array;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int share = warp % plan.row_warps;
  const std::int64_t columns = plan.width * plan.fold, outer_count = array.outputs / plan.width;
  const std::int64_t loads = columns / kElements;
  const std::int64_t thread =
      (std::int64_t{blockIdx.x} * (kQuickWarps / plan.row_warps) + warp / plan.row_warps) * kWarpSize + lane;
  const bool mine = thread < loads * outer_count;
  const std::int64_t outer = outer_count == 1 ? 0 : thread / loads;
  const std::int64_t column = (thread - outer * loads) * kElements;
  const auto fold_rows = static_cast<unsigned>(plan.fold);
  const auto rows = static_cast<unsigned>(array.elements / plan.fold);  // whole ones
  const auto part_rows = (rows + gridDim.y - 1) / gridDim.y;
  const unsigned end = min(rows, (blockIdx.y + 1) * part_rows);
  Fold folds[kElements];
  if (mine) {
    const auto* const data =
        static_cast<const Word*>(array.data) + OffsetOf(array.kept, outer, array.kept.count - 1) + column;
    // Of column e, which is one of every fold_rows-th row.
    const auto first_row = [&](int e) {
      return fold_rows == 1 ? 0U : static_cast<unsigned>((column + e) / plan.width);
    };
    const auto offset_of = [&](unsigned row) { return fold_rows != 1 ? row * columns : OffsetOf(array.reduced, row); };
    const auto step = static_cast<unsigned>(plan.row_warps);
    for (unsigned row = blockIdx.y * part_rows + share; row < end; row += kLoads * step) {
      Words<Word, kElements> loaded[kLoads];
      int n = 0;
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        if (row + i * step < end) {
          loaded[i] = LoadWords<Word, kElements>(data + offset_of(row + i * step));
          n = i + 1;
        } else {
#pragma unroll
          for (int e = 0; e < kElements; ++e) {
            loaded[i].word[e] = Fold::Absent(loaded[0].word[e], launch.elements);
          }
        }
      }
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        Word x[kLoads];
#pragma unroll
        for (int i = 0; i < kLoads; ++i) x[i] = loaded[i].word[e];
        folds[e].Add(
            x, n, [&](int i) { return (row + i * step) * fold_rows + first_row(e); }, launch.elements);
      }
    }
    // The rows after the last whole one.
    const std::int64_t rest = (array.elements - std::int64_t{rows} * fold_rows) * plan.width;
    if (column < rest && blockIdx.y == gridDim.y - 1 && share == 0) {
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        if (column + e >= rest) break;
        const Word x[1] = {data[rows * columns + e]};
        folds[e].Add(
            x, 1, [&](int) { return rows * fold_rows + first_row(e); }, launch.elements);
      }
    }
  }
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    if (plan.row_warps > 1) {
      auto* const others = reinterpret_cast<Fold*>(shared);
      if (share != 0) others[threadIdx.x] = folds[e];
      __syncthreads();
      if (share == 0) {
        for (int other = 1; other < plan.row_warps; ++other) {
          const Fold theirs = others[threadIdx.x + other * kWarpSize];
          folds[e].Merge(theirs);
        }
      }
      __syncthreads();
    }
    if (!mine || share != 0) continue;
    if (gridDim.y == 1 && plan.fold == 1) {
      FinishOutput(launch, outer * plan.width + column + e, folds[e]);
    } else {
      reinterpret_cast<Fold*>(launch.folds)[(blockIdx.y * outer_count + outer) * columns + column + e] = folds[e];
    }
  }
}

// Merges the folds of each output, by `lanes` lanes.
template <class Fold>
__global__ void __launch_bounds__(kQuickThreads) MergeKernel(const __grid_constant__ QuickLaunch launch, int lanes) {
  const QuickPlan& plan = launch.plan;
  const std::int64_t output = (std::int64_t{blockIdx.x} * kQuickThreads + threadIdx.x) / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const auto* const folds = reinterpret_cast<const Fold*>(launch.folds);
  Fold fold;
  if (output < launch.array.outputs) {
    const std::int64_t outer = output / plan.width, column = output % plan.width;
    for (std::int64_t i = lane; i < plan.folds(); i += lanes) {
      std::int64_t at = output * plan.parts + i;
      if (plan.columns) {
        const std::int64_t part = i / plan.fold;
        at = (part * launch.array.outputs + outer * plan.width) * plan.fold + (i - part * plan.fold) * plan.width +
             column;
      }
      fold.Merge(folds[at]);
    }
  }
  MergeLanes(lanes, &fold);
  if (lane == 0 && output < launch.array.outputs) FinishOutput(launch, output, fold);
}

template <class Fold>
cudaError_t LaunchFold(const QuickLaunch& launch) {
  using Word = typename Fold::Word;
  constexpr int kVector = 16 / sizeof(Word);
  constexpr int kColumns = std::min(kVector, 8);
  constexpr std::int64_t kBlocks = 32;  // of each multiprocessor, that take turns with rows
  const QuickPlan& plan = launch.plan;
  const bool vectors = plan.vector_elements > 1;
  const auto rows = [&](auto kernel, std::int64_t units, int at_once) {
    const std::int64_t in_block = std::int64_t{kQuickThreads} / plan.lanes * at_once;
    const std::int64_t blocks = std::min((units + in_block - 1) / in_block, kBlocks * launch.multiprocessors);
    kernel<<<static_cast<unsigned>(blocks), kQuickThreads, 0, launch.stream>>>(launch);
  };
  if (plan.columns) {
    const std::int64_t threads = launch.array.outputs * plan.fold / plan.vector_elements;
    const std::int64_t in_block = kQuickThreads / plan.row_warps;
    const dim3 grid(static_cast<unsigned>((threads + in_block - 1) / in_block), static_cast<unsigned>(plan.parts));
    if (vectors) {
      ColumnsKernel<Fold, kColumns, 8><<<grid, kQuickThreads, 0, launch.stream>>>(launch);
    } else {
      ColumnsKernel<Fold, 1, 8><<<grid, kQuickThreads, 0, launch.stream>>>(launch);
    }
  } else if (plan.tiny) {
    rows(&TinyRowsKernel<Fold, kVector, 4>, launch.array.outputs, 4);
  } else if (vectors) {
    rows(&RowsKernel<Fold, kVector, 4>, launch.array.outputs * plan.parts, 1);
  } else {
    rows(&RowsKernel<Fold, 1, 8>, launch.array.outputs * plan.parts, 1);
  }
  cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess || plan.folds() == 1) return error;
  int lanes = 1;
  while (lanes < kWarpSize && lanes * 4 < plan.folds()) lanes *= 2;
  const std::int64_t blocks = (launch.array.outputs * lanes + kQuickThreads - 1) / kQuickThreads;
  MergeKernel<Fold><<<static_cast<unsigned>(blocks), kQuickThreads, 0, launch.stream>>>(launch, lanes);
  return cudaGetLastError();
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_QUICK_SLICES_CUH_
