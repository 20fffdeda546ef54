// Groups in registers: a few threads, up to a warp, walk through an output side by side, several elements in flight,
// and merge what they have by shuffles. Compiled without contraction of operations, as exact/two_doubles.h wants it,
// whose arithmetic the folds have.
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/groups.h"
#include "kernels/cuda/part_elements.cuh"
#include "kernels/cuda/quick_tiles.cuh"

namespace reduced {
namespace {

__global__ void __launch_bounds__(kQuickThreads) LocateKernel(LocateLaunch launch) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kQuickThreads + threadIdx.x;
  if (i < launch.count) launch.wholes[i] = WholeOutput(launch.outputs, launch.array, launch.numbers[i]);
}

template <class Fold, Lie kLie>
__global__ void __launch_bounds__(kQuickThreads, sizeof(Fold) > 32 ? 2 : 4)
    QuickGroupsKernel(const __grid_constant__ QuickGroupsLaunch launch) {
  const int in_warp = static_cast<int>(threadIdx.x) % kWarpSize;
  int width = launch.width;
  int lane = in_warp & (width - 1);
  std::int64_t item = (std::int64_t{blockIdx.x} * kQuickThreads + threadIdx.x) / width;
  GroupPart part;
  if (item < launch.count) part = WholeOutput(launch.outputs, launch.array, launch.first + item);
  // Outputs that are too long for so few lanes are answered by the warp after the others, one after the other.
  const std::int64_t own_item = item, positions = part.end;
  const bool too_long = positions > launch.longest_of_warp, later = !too_long && positions > launch.longest;
  if (too_long || later) part.end = 0;
  unsigned rest = __ballot_sync(kFullWarp, later && lane == 0);
  bool answers = lane == 0 && item < launch.count && !later;
  bool looks = !too_long;
  for (;;) {
    Fold fold;
    std::int64_t counted = AddPart<Fold, kLie>(launch.array, part, lane, width, launch.elements, &fold);
    MergeLanes(width, &fold);
    counted = SumOfLanes(width, counted);
    if (answers) {
      std::uint8_t left = kTooLong;
      if (looks) {
        QuickElements of = launch.elements;
        of.count = counted;
        left = counted > 0 && fold.Finish(launch.answers, launch.ops, item, of) ? kAnswered : kNotKnown;
      }
      if (!launch.after || left != kAnswered) launch.left[item] = left;
    }
    if (rest == 0) return;
    const int of_lane = __ffs(static_cast<int>(rest)) - 1;
    rest &= rest - 1;
    item = __shfl_sync(kFullWarp, own_item, of_lane);
    width = kWarpSize;
    lane = in_warp;
    answers = lane == 0;
    looks = true;
    part = WholeOutput(launch.outputs, launch.array, launch.first + item);
  }
}

template <class Fold>
cudaError_t Launch(const QuickGroupsLaunch& launch) {
  const auto blocks = static_cast<unsigned>((launch.count * launch.width + kQuickThreads - 1) / kQuickThreads);
  switch (LieOf(launch.array)) {
    case Lie::kNeighbours:
      QuickGroupsKernel<Fold, Lie::kNeighbours><<<blocks, kQuickThreads, 0, launch.stream>>>(launch);
      break;
    case Lie::kMaskedNeighbours:
      QuickGroupsKernel<Fold, Lie::kMaskedNeighbours><<<blocks, kQuickThreads, 0, launch.stream>>>(launch);
      break;
    case Lie::kAny:
      QuickGroupsKernel<Fold, Lie::kAny><<<blocks, kQuickThreads, 0, launch.stream>>>(launch);
      break;
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchLocate(const LocateLaunch& launch) {
  const auto blocks = static_cast<unsigned>((launch.count + kQuickThreads - 1) / kQuickThreads);
  LocateKernel<<<blocks, kQuickThreads, 0, launch.stream>>>(launch);
  return cudaGetLastError();
}

cudaError_t LaunchQuickGroups(const QuickGroupsLaunch& launch) {
  return VisitQuickFold(launch.kind, launch.elements.dtype, cudaErrorNotSupported,
                        [&]<class Fold>(std::type_identity<Fold>) { return Launch<Fold>(launch); });
}

}  // namespace reduced
