// The launches of quick_slices.h, for any fold.
#ifndef REDUCED_KERNELS_CUDA_QUICK_SLICES_CUH_
#define REDUCED_KERNELS_CUDA_QUICK_SLICES_CUH_

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/quick_columns.cuh"
#include "kernels/cuda/quick_rows.cuh"
#include "kernels/cuda/quick_staged_rows.cuh"
#include "kernels/cuda/quick_tiles.cuh"

namespace reduced {

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
  constexpr std::int64_t kTurns = 4;  // of blocks that have rows
  const QuickPlan& plan = launch.plan;
  const bool vectors = plan.vector_elements > 1;
  const int together = std::min(plan.together, kMostRowsTogether<Fold>);
  const auto rows = [&](auto kernel, std::int64_t units, int at_once) {
    const std::int64_t in_block = std::int64_t{kQuickThreads} / plan.lanes * at_once;
    const std::int64_t blocks =
        std::min((units + in_block - 1) / in_block, kTurns * kRowBlocks<Fold> * launch.multiprocessors);
    kernel<<<static_cast<unsigned>(blocks), kQuickThreads, 0, launch.stream>>>(launch);
  };
  if (plan.columns) {
    const std::int64_t threads = launch.array.outputs * plan.fold / plan.vector_elements;
    const std::int64_t in_block = kQuickThreads / plan.row_warps;
    const dim3 grid(static_cast<unsigned>((threads + in_block - 1) / in_block), static_cast<unsigned>(plan.parts));
    constexpr int kRows = QuickRowsAtOnce(sizeof(Word));
    const bool few_rows = launch.array.elements / plan.fold <= kRows / 2;
    if (vectors && few_rows) {
      ColumnsKernel<Fold, kColumns, kRows / 2><<<grid, kQuickThreads, 0, launch.stream>>>(launch);
    } else if (vectors) {
      ColumnsKernel<Fold, kColumns, kRows><<<grid, kQuickThreads, 0, launch.stream>>>(launch);
    } else {
      ColumnsKernel<Fold, 1, kRows><<<grid, kQuickThreads, 0, launch.stream>>>(launch);
    }
  } else if (plan.tile_rows > 0) {
    const auto staged = [&](auto kernel) {
      constexpr int kWarps = kStagedRowThreads / kWarpSize;
      const std::int64_t tiles = (launch.array.outputs + plan.tile_rows - 1) / plan.tile_rows;
      const std::size_t shared_bytes = std::size_t{2} * kWarps * plan.tile_bytes;
      int resident = 1;  // blocks of a multiprocessor
      if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kStagedRowThreads, shared_bytes) !=
          cudaSuccess) {
        return;  // the error stays
      }
      const std::int64_t blocks = std::min<std::int64_t>((tiles + kWarps - 1) / kWarps,
                                                         std::int64_t{std::max(resident, 1)} * launch.multiprocessors);
      kernel<<<static_cast<unsigned>(blocks), kStagedRowThreads, shared_bytes, launch.stream>>>(launch);
    };
    constexpr int kPack = sizeof(Word) < 4 ? 4 / sizeof(Word) : 1;
    const std::int64_t lane_loads = plan.run / plan.vector_elements / plan.lanes;
    if (plan.vector_elements == kPack) {
      staged(lane_loads < 5 ? &StagedRowsKernel<Fold, kPack, 4> : &StagedRowsKernel<Fold, kPack, 8>);
    } else {
      staged(lane_loads < 3 ? &StagedRowsKernel<Fold, kVector, 1> : &StagedRowsKernel<Fold, kVector, 4>);
    }
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
