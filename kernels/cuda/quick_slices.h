// Reductions along axes on a CUDA device at the speed of its memory: launches that answer all outputs of an array where
// they are, without a state for each. What an output is folded to is in quick_folds.h.
//
// A warp's lanes share rows (the innermost dimension is reduced), or have a column or several each (it is kept), with
// loads of 16 bytes where the array allows them. Short rows that lie end to end go through shared memory. Outputs that
// are too few for the device are cut into parts; of few columns each is split into n interleaved parts, each of which
// has every n-th row. Then folds go through device memory, and a second kernel merges them.
#ifndef REDUCED_KERNELS_CUDA_QUICK_SLICES_H_
#define REDUCED_KERNELS_CUDA_QUICK_SLICES_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "kernels/algebra/op.h"
#include "kernels/cuda/quick_folds.h"
#include "kernels/cuda/quick_kinds.h"
#include "kernels/cuda/slices.h"

namespace reduced {

// Neighbouring columns of a thread, each of which has a fold.
inline constexpr int kMostColumnsAtOnce = 4;
// Rows of such columns that a thread loads at once.
constexpr int QuickRowsAtOnce(int element_bytes) { return element_bytes <= 2 ? 16 : 8; }

// Threads of a block that stages rows, and the most shared memory for a tile of rows of a warp.
inline constexpr int kStagedRowThreads = 128, kStagedRowBytes = 4608;

// How outputs are given to threads.
struct QuickPlan {
  bool columns = false;     // else rows
  int vector_elements = 1;  // that a thread loads at once: one, as many as 16 bytes have or, of staged rows, as 4 bytes
  std::int64_t parts = 1;   // that an output is cut into
  // Of rows:
  int lanes = 1;         // of a warp, that share a row: a power of 2
  std::int64_t run = 1;  // neighbouring elements of an output
  int together = 1;      // rows of a lane that are merged together: a power of 2, at most `lanes`
  // Of rows that are staged in shared memory:
  int tile_rows = 0;                 // of a tile, a multiple of 32 / lanes; 0: they are not
  int tile_bytes = 0;                // of a tile in shared memory, with the padding, a multiple of 16
  int padding = 0;                   // after each row in shared memory, in 16 bytes
  std::uint32_t row_reciprocal = 0;  // if there is padding, 2^32 / (16-byte chunks of a row), rounded up
  // Of columns:
  std::int64_t width = 1;  // outputs that are neighbours
  std::int64_t fold = 1;   // rows that are taken as one, of fold * width columns
  int row_warps = 1;       // warps of a block that share columns: a power of 2, at most 8

  std::int64_t block_folds = 0;  // if blocks merge the folds of each output: folds of each in the end

  // Folds of an output that are merged. 1: it is answered at once.
  constexpr std::int64_t folds() const { return block_folds > 0 ? block_folds : parts * fold; }
};

// Absent: the outputs are too long, 2^31 elements or more. `most_folds`: that there is room for.
std::optional<QuickPlan> PlanQuickSlices(const SliceArray& array, int element_bytes, int multiprocessors,
                                         std::int64_t most_folds);

// Answers the ops of one kind.
struct QuickLaunch {
  QuickElements elements;
  QuickKind kind = QuickKind::kSums;
  SliceArray array;
  QuickPlan plan;
  QuickAnswer answers[kMostQuickOps] = {};
  int ops = 0;
  std::byte* folds = nullptr;  // device memory for kQuickFoldBytes of each fold, if there is more than one of an output
  // Outputs that are not known so: a bit each is set, and how many were is added up.
  std::uint32_t* redo = nullptr;
  unsigned long long* redone = nullptr;
  int multiprocessors = 1;
  cudaStream_t stream = nullptr;
};
cudaError_t LaunchQuickSums(const QuickLaunch& launch);  // and magnitudes
cudaError_t LaunchQuickMoments(const QuickLaunch& launch);
cudaError_t LaunchQuickExtrema(const QuickLaunch& launch);
cudaError_t LaunchQuickCounts(const QuickLaunch& launch);
cudaError_t LaunchQuickBits(const QuickLaunch& launch);
cudaError_t LaunchQuickProducts(const QuickLaunch& launch);
cudaError_t LaunchQuick(const QuickLaunch& launch);  // that of its kind

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_QUICK_SLICES_H_
