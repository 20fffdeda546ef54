// The kernel of quick_slices.h for columns, for any fold.
#ifndef REDUCED_KERNELS_CUDA_QUICK_COLUMNS_CUH_
#define REDUCED_KERNELS_CUDA_QUICK_COLUMNS_CUH_

#include <cstdint>

#include "kernels/cuda/quick_tiles.cuh"

namespace reduced {

// Blocks of a multiprocessor that have columns, which registers are to be enough for.
template <class Fold, int kLoads>
inline constexpr int kColumnBlocks = kLoads < QuickRowsAtOnce(sizeof(typename Fold::Word)) &&
                                             !kTakesManyRegisters<Fold> && !kOfFloats<Fold>
                                         ? 3
                                         : 2;

// Columns: kElements neighbouring ones of a thread, which walks down kLoads rows at once, as do the other row_warps - 1
// warps of the block that have the same columns. Threads have all columns of all positions of the outer kept
// dimensions, one after the other.
template <class Fold, int kElements, int kLoads>
__global__ void __launch_bounds__(kQuickThreads, kColumnBlocks<Fold, kLoads>)
    ColumnsKernel(const __grid_constant__ QuickLaunch launch) {
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
      // All rows are loaded, so that no load waits for another: where there are no more, the first again.
      const int n = row + (kLoads - 1) * step < end ? kLoads : static_cast<int>((end - row + step - 1) / step);
      std::int64_t offsets[kLoads];
      if (simple) {
#pragma unroll
        for (int i = 0; i < kLoads; ++i) offsets[i] = std::int64_t{i < n ? row + i * step : row} * row_step;
      } else {
        const SliceDimensions& reduced = array.reduced;
        const int inner = reduced.count - 1;
        const std::int64_t first = OffsetOfMany(reduced, row, reduced.count);
        const auto in_run = row % static_cast<unsigned>(reduced.size[inner]);
        if (in_run + (kLoads - 1) * step < static_cast<unsigned>(reduced.size[inner])) {  // all are in one run
#pragma unroll
          for (int i = 0; i < kLoads; ++i) offsets[i] = first + (i < n ? i * step : 0) * reduced.stride[inner];
        } else {
#pragma unroll
          for (int i = 0; i < kLoads; ++i) {
            offsets[i] = i > 0 && i < n ? OffsetOfMany(reduced, row + i * step, reduced.count) : first;
          }
        }
      }
      QuickTile<Word, kElements> loaded[kLoads];
#pragma unroll
      for (int i = 0; i < kLoads; ++i) loaded[i] = LoadTile<kElements>(data + offsets[i], ReadGlobal());
      Prepare<Fold, kLoads>(launch.elements, loaded);
      if (n < kLoads) {
        QuickTile<Word, kElements> padding{};
#pragma unroll
        for (int e = 0; e < kElements; ++e) padding.Set(e, Fold::Padding(loaded[0][e], launch.elements));
#pragma unroll
        for (int i = 1; i < kLoads; ++i) {
          if (i >= n) loaded[i] = padding;
        }
      }
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        const QuickPositions<1> position{row * fold_rows + first_row(e), step * fold_rows};
        folds[e].Add(TileAcross(loaded, e), n, position, launch.elements);
      }
    }
    // The rows after the last whole one.
    const std::int64_t rest = (array.elements - std::int64_t{rows} * fold_rows) * plan.width;
    if (column < rest && blockIdx.y == gridDim.y - 1 && share == 0) {
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        if (column + e >= rest) break;
        QuickTile<Word, 1> x = {data[rows * columns + e]};
        Prepare<Fold>(launch.elements, &x);
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

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_QUICK_COLUMNS_CUH_
