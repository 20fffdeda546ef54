// The kernel of quick_slices.h for rows, for any fold.
#ifndef REDUCED_KERNELS_CUDA_QUICK_ROWS_CUH_
#define REDUCED_KERNELS_CUDA_QUICK_ROWS_CUH_

#include <cstdint>

#include "kernels/cuda/quick_tiles.cuh"

namespace reduced {

// Blocks of a multiprocessor that registers are to be enough for.
template <class Fold>
inline constexpr int kRowBlocks = sizeof(Fold) > 32 ? 2 : 3;

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
  const int lanes_log = __ffs(lanes) - 1, in_warp = kWarpSize >> lanes_log;
  const int lane = in_warp_lane & (lanes - 1), group = in_warp_lane >> lanes_log;
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
      const Word* from = data;
      if (runs != 1) from += QuickOffsetOf(launch.array.reduced, run, launch.array.reduced.count - 1);
      const auto load = [&](unsigned i) {
        return LoadTile<kElements>(from + std::int64_t{i} * kElements, ReadGlobal());
      };
      AddTile<kLoads, Fold, kElements>(at, step, loads, 0, run * static_cast<unsigned>(plan.run), load, launch.elements,
                                       &fold);
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

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_QUICK_ROWS_CUH_
