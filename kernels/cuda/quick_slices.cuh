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

// As they are in memory.
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
  } else if constexpr (sizeof(Loaded) == 4) {
    const unsigned raw = __ldg(reinterpret_cast<const unsigned*>(address));
    memcpy(&words, &raw, sizeof(words));
  } else {
    static_assert(kElements == 1);
    words.word[0] = __ldg(address);
  }
  return words;
}

// PreparedWord of each, by words of 32 bits.
template <class Word, int kElements>
__device__ __forceinline__ void Prepare(const QuickElements& of, Words<Word, kElements>* words) {
  constexpr int kBytes = sizeof(*words);
  if constexpr (kBytes % 4 != 0) {
    for (Word& word : words->word) word = PreparedWord(word, of);
  } else {
    unsigned packed[kBytes / 4];
    memcpy(packed, words, kBytes);
    constexpr std::uint64_t kEach = sizeof(Word) == 1   ? 0x0101010101010101
                                    : sizeof(Word) == 2 ? 0x0001000100010001
                                    : sizeof(Word) == 4 ? 0x0000000100000001
                                                        : 1;
    const std::uint64_t flip = of.flip * kEach;
#pragma unroll
    for (int i = 0; i < kBytes / 4; ++i) {
      packed[i] ^= static_cast<unsigned>(i % 2 == 0 ? flip : flip >> 32);
      if (sizeof(Word) == 1 && of.is_bool) packed[i] = __vminu4(packed[i], 0x01010101U);
    }
    memcpy(words, packed, kBytes);
  }
}

// OffsetOf, whose divisions take no registers where there is one dimension.
__device__ __noinline__ inline std::int64_t OffsetOfMany(const SliceDimensions& dimensions, std::int64_t index,
                                                         int count) {
  return OffsetOf(dimensions, index, count);
}
__device__ __forceinline__ std::int64_t QuickOffsetOf(const SliceDimensions& dimensions, std::int64_t index,
                                                      int count) {
  if (count > 1) return OffsetOfMany(dimensions, index, count);
  return count == 1 ? index * dimensions.stride[0] : 0;
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
template <class Fold, int kElements, int kLoads>
__device__ __forceinline__ void AddLoads(const Words<typename Fold::Word, kElements> (&loaded)[kLoads], int n,
                                         QuickPositions<kElements> position, const QuickElements& of, Fold* fold) {
  constexpr int kAll = kElements * kLoads;
  constexpr int kTile = kAll < kQuickTile ? kAll : kQuickTile;
  static_assert(kAll % kTile == 0 && kTile % kElements == 0);
#pragma unroll
  for (int tile = 0; tile < kAll; tile += kTile) {
    if (tile >= n) break;
    typename Fold::Word x[kTile];
#pragma unroll
    for (int i = 0; i < kTile; ++i) x[i] = loaded[(tile + i) / kElements].word[(tile + i) % kElements];
    fold->Add(x, n - tile < kTile ? n - tile : kTile, position, of);
    position.first += kTile / kElements * position.step;
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
// Blocks of a multiprocessor that registers are to be enough for.
template <class Fold>
inline constexpr int kRowBlocks = sizeof(Fold) > 32 ? 2 : 3;

template <class Fold, int kElements, int kRows>
__global__ void __launch_bounds__(kQuickThreads, kRowBlocks<Fold>)
    TinyRowsKernel(const __grid_constant__ QuickLaunch launch) {
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
        const std::int64_t offset = QuickOffsetOf(launch.array.kept, output, launch.array.kept.count);
        loaded[r] = LoadWords<Word, kElements>(data + offset + lane * kElements);
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t output = row + r * in_warp;
      Fold fold;
      const bool mine = there && output < launch.array.outputs;
      if (mine) {
        Words<Word, kElements> one[1] = {loaded[r]};
        Prepare(launch.elements, one);
        const QuickPositions<kElements> position{static_cast<std::uint32_t>(lane * kElements)};
        AddLoads(one, kElements, position, launch.elements, &fold);
      }
      MergeLanes(lanes, &fold);
      if (mine && lane == 0) FinishOutput(launch, output, fold);
    }
  }
}

// Rows of which a warp merges the folds together.
template <class Fold>
inline constexpr int kMostRowsTogether = sizeof(Fold) > 32 ? 2 : 4;

// Rows, or parts of them, of runs of neighbours: `lanes` lanes each, kLoads loads of a lane at once. Lanes leave what
// they have of `together` rows in shared memory, which then as many times fewer lanes of each row merge.
template <class Fold, int kElements, int kLoads>
__global__ void __launch_bounds__(kQuickThreads, kRowBlocks<Fold>)
    RowsKernel(const __grid_constant__ QuickLaunch launch) {
  using Word = typename Fold::Word;
  constexpr int kTogether = kMostRowsTogether<Fold>;
  __shared__ alignas(16) unsigned char shared[kTogether * kQuickThreads * sizeof(Fold)];
  const QuickPlan& plan = launch.plan;
  const int lanes = plan.lanes, together = min(plan.together, kTogether);
  const int in_warp_lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int lane = in_warp_lane % lanes, group = in_warp_lane / lanes, in_warp = kWarpSize / lanes;
  auto* const left = reinterpret_cast<Fold*>(shared) + threadIdx.x / kWarpSize * kTogether * kWarpSize;
  const std::int64_t warp = (std::int64_t{blockIdx.x} * kQuickThreads + threadIdx.x) / kWarpSize;
  const std::int64_t warps = std::int64_t{gridDim.x} * kQuickWarps;
  const std::int64_t units = launch.array.outputs * plan.parts;
  const auto loads = static_cast<unsigned>(plan.run / kElements);
  const auto step = static_cast<unsigned>(lanes);
  const unsigned run_tiles = (loads + kLoads * step - 1) / (kLoads * step);
  const auto runs = static_cast<unsigned>(launch.array.elements / plan.run);
  const std::int64_t tiles = std::int64_t{run_tiles} * runs;
  const std::int64_t part_tiles = (tiles + plan.parts - 1) / plan.parts;
  const auto fold_unit = [&](std::int64_t unit) {
    Fold fold;
    if (unit >= units) return fold;
    const std::int64_t output = plan.parts == 1 ? unit : unit / plan.parts;
    const std::int64_t part = unit - output * plan.parts;
    const auto* const data =
        static_cast<const Word*>(launch.array.data) + QuickOffsetOf(launch.array.kept, output, launch.array.kept.count);
    const std::int64_t end = min(tiles, (part + 1) * part_tiles);
    for (std::int64_t tile = part * part_tiles; tile < end; ++tile) {
      const unsigned run = runs == 1 ? 0 : static_cast<unsigned>(tile) / run_tiles;
      const unsigned at = (static_cast<unsigned>(tile) - run * run_tiles) * kLoads * step + lane;
      if (at >= loads) continue;
      const Word* from = data + std::int64_t{at} * kElements;
      if (runs != 1) from += QuickOffsetOf(launch.array.reduced, run, launch.array.reduced.count - 1);
      Words<Word, kElements> loaded[kLoads];
      int n = kElements;
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        if (at + i * step < loads) {
          loaded[i] = LoadWords<Word, kElements>(from + i * step * kElements);
          n = (i + 1) * kElements;
        }
      }
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        Prepare(launch.elements, &loaded[i]);
        if (n <= i * kElements) {
          loaded[i] = Repeat<Word, kElements>(Fold::Absent(loaded[0].word[0], launch.elements));
        }
      }
      const QuickPositions<kElements> position{run * static_cast<unsigned>(plan.run) + at * kElements,
                                               step * kElements};
      AddLoads(loaded, n, position, launch.elements, &fold);
    }
    return fold;
  };
  const auto finish = [&](std::int64_t unit, const Fold& fold) {
    if (unit >= units) return;
    if (plan.parts == 1) {
      FinishOutput(launch, unit, fold);
    } else {
      reinterpret_cast<Fold*>(launch.folds)[unit] = fold;
    }
  };
  const std::int64_t at_once = std::int64_t{together} * in_warp;
  for (std::int64_t first = warp * at_once; first < units; first += warps * at_once) {
    if (together == 1) {
      Fold fold = fold_unit(first + group);
      MergeLanes(lanes, &fold);
      if (lane == 0) finish(first + group, fold);
      continue;
    }
    for (int i = 0; i < together; ++i) left[i * kWarpSize + in_warp_lane] = fold_unit(first + i * in_warp + group);
    __syncwarp();
    // Lane by lane: `merging` lanes a row, of which each has the folds of `together` lanes.
    const int merging = lanes / together, row = in_warp_lane / merging;
    const Fold* const mine = left + row * lanes + in_warp_lane % merging;
    Fold fold = mine[0];
    for (int i = 1; i < together; ++i) fold.Merge(mine[i * merging]);
    __syncwarp();
    MergeLanes(merging, &fold);
    if (in_warp_lane % merging == 0) finish(first + row, fold);
  }
}

// Columns: kElements neighbouring ones of a thread, which walks down kLoads rows at once, as do the other row_warps - 1
// warps of the block that have the same columns. Threads have all columns of all positions of the outer kept
// dimensions, one after the other.
template <class Fold, int kElements, int kLoads>
__global__ void __launch_bounds__(kQuickThreads, 2) ColumnsKernel(const __grid_constant__ QuickLaunch launch) {
  using Word = typename Fold::Word;
  __shared__ alignas(16) unsigned char shared[kQuickThreads * sizeof(Fold)];
  auto* const left = reinterpret_cast<Fold*>(shared);
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
        static_cast<const Word*>(array.data) + QuickOffsetOf(array.kept, outer, array.kept.count - 1) + column;
    // Of column e, which is one of every fold_rows-th row.
    const auto first_row = [&](int e) {
      return fold_rows == 1 ? 0U : static_cast<unsigned>((column + e) / plan.width);
    };
    const bool simple = fold_rows != 1 || array.reduced.count <= 1;
    const std::int64_t row_step = fold_rows != 1 ? columns : array.reduced.count == 1 ? array.reduced.stride[0] : 0;
    const auto step = static_cast<unsigned>(plan.row_warps);
    for (unsigned row = blockIdx.y * part_rows + share; row < end; row += kLoads * step) {
      Words<Word, kElements> loaded[kLoads];
      int n = 1;
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const unsigned at = row + i * step;
        if (at >= end) continue;
        const std::int64_t offset = simple ? at * row_step : OffsetOfMany(array.reduced, at, array.reduced.count);
        loaded[i] = LoadWords<Word, kElements>(data + offset);
        n = i + 1;
      }
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        Prepare(launch.elements, &loaded[i]);
        if (i < n) continue;
#pragma unroll
        for (int e = 0; e < kElements; ++e) loaded[i].word[e] = Fold::Absent(loaded[0].word[e], launch.elements);
      }
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        Word x[kLoads];
#pragma unroll
        for (int i = 0; i < kLoads; ++i) x[i] = loaded[i].word[e];
        const QuickPositions<1> position{row * fold_rows + first_row(e), step * fold_rows};
        folds[e].Add(x, n, position, launch.elements);
      }
    }
    // The rows after the last whole one.
    const std::int64_t rest = (array.elements - std::int64_t{rows} * fold_rows) * plan.width;
    if (column < rest && blockIdx.y == gridDim.y - 1 && share == 0) {
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        if (column + e >= rest) break;
        const Word x[1] = {PreparedWord(data[rows * columns + e], launch.elements)};
        folds[e].Add(x, 1, QuickPositions<1>{rows * fold_rows + first_row(e)}, launch.elements);
      }
    }
  }
  for (int e = 0; plan.row_warps > 1 && e < kElements; ++e) {
    Fold fold;
#pragma unroll
    for (int i = 0; i < kElements; ++i) fold = i == e ? folds[i] : fold;
    if (share != 0) left[threadIdx.x] = fold;
    __syncthreads();
    if (share == 0) {
      for (int other = 1; other < plan.row_warps; ++other) fold.Merge(left[threadIdx.x + other * kWarpSize]);
    }
#pragma unroll
    for (int i = 0; i < kElements; ++i) folds[i] = i == e ? fold : folds[i];
    __syncthreads();
  }
  if (plan.block_folds > 0) {  // few columns: the block merges those of its folds that are of the same one
    if (share == 0) {
#pragma unroll
      for (int e = 0; e < kElements; ++e) left[lane * kElements + e] = folds[e];
    }
    __syncthreads();
    const auto width = static_cast<int>(plan.width);
    const std::int64_t first = std::int64_t{blockIdx.x} * kWarpSize * kElements;
    const auto count = static_cast<int>(min(columns - first, std::int64_t{kWarpSize * kElements}));
    if (static_cast<int>(threadIdx.x) < width) {
      Fold fold;
      const auto skip = static_cast<int>(first % width);
      const int begin = static_cast<int>(threadIdx.x) - skip + (static_cast<int>(threadIdx.x) < skip ? width : 0);
      for (int i = begin; i < count; i += width) fold.Merge(left[i]);
      reinterpret_cast<Fold*>(launch.folds)[(std::int64_t{blockIdx.y} * gridDim.x + blockIdx.x) * width + threadIdx.x] =
          fold;
    }
    return;
  }
  if (!mine || share != 0) return;
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
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
      if (plan.block_folds > 0) {
        at = i * plan.width + column;
      } else if (plan.columns) {
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
  constexpr int kColumns = std::min(kVector, kMostColumnsAtOnce);
  constexpr std::int64_t kBlocks = 32;  // of each multiprocessor, that take turns with rows
  const QuickPlan& plan = launch.plan;
  const bool vectors = plan.vector_elements > 1;
  const int together = std::min(plan.together, kMostRowsTogether<Fold>);
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
    rows(&RowsKernel<Fold, kVector, 4>, launch.array.outputs * plan.parts, together);
  } else {
    rows(&RowsKernel<Fold, 1, 8>, launch.array.outputs * plan.parts, together);
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
