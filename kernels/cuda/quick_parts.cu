// Parts of outputs in registers, by a warp or a block each. Compiled without contraction of operations, as
// exact/two_doubles.h wants it, whose arithmetic the folds have.
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/groups.h"
#include "kernels/cuda/part_elements.cuh"
#include "kernels/cuda/quick_tiles.cuh"

namespace reduced {
namespace {

template <class Fold, Lie kLie>
__global__ void __launch_bounds__(kQuickThreads, kPartBlocks<Fold>)
    QuickPartsKernel(const __grid_constant__ QuickPartsLaunch launch) {
  const int threads = launch.threads;
  const int thread = static_cast<int>(threadIdx.x) & (threads - 1);
  const std::int64_t item = (std::int64_t{blockIdx.x} * kQuickThreads + threadIdx.x) / threads;
  GroupPart part;
  if (item < launch.count) part = launch.parts[item];
  Fold fold;
  std::int64_t counted = AddPart<Fold, kLie>(launch.array, part, thread, threads, launch.elements, &fold);
  MergeLanes(kWarpSize, &fold);
  counted = SumOfLanes(kWarpSize, counted);
  if (threads > kWarpSize) {  // the folds of a block's warps
    __shared__ alignas(16) unsigned char shared[kQuickWarps * sizeof(Fold)];
    __shared__ std::int64_t counts[kQuickWarps];
    auto* const folds = reinterpret_cast<Fold*>(shared);
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    if (threadIdx.x % kWarpSize == 0) {
      folds[warp] = fold;
      counts[warp] = counted;
    }
    __syncthreads();
    if (warp > 0) return;
    fold = thread < kQuickWarps ? folds[thread] : Fold{};
    MergeLanes(kQuickWarps, &fold);
    counted = 0;
    for (const std::int64_t count : counts) counted += count;
  }
  if (item >= launch.count || thread != 0) return;
  GroupPartFold& out = launch.folds[item];
  memcpy(out.fold, &fold, sizeof(fold));
  out.count = counted;
}

template <class Fold>
cudaError_t Launch(const QuickPartsLaunch& launch) {
  const auto blocks = static_cast<unsigned>((launch.count * launch.threads + kQuickThreads - 1) / kQuickThreads);
  switch (LieOf(launch.array)) {
    case Lie::kNeighbours:
      QuickPartsKernel<Fold, Lie::kNeighbours><<<blocks, kQuickThreads, 0, launch.stream>>>(launch);
      break;
    case Lie::kMaskedNeighbours:
      QuickPartsKernel<Fold, Lie::kMaskedNeighbours><<<blocks, kQuickThreads, 0, launch.stream>>>(launch);
      break;
    case Lie::kAny:
      QuickPartsKernel<Fold, Lie::kAny><<<blocks, kQuickThreads, 0, launch.stream>>>(launch);
      break;
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchQuickParts(const QuickPartsLaunch& launch) {
  return VisitQuickFold(launch.kind, launch.elements.dtype, cudaErrorNotSupported,
                        [&]<class Fold>(std::type_identity<Fold>) { return Launch<Fold>(launch); });
}

}  // namespace reduced
