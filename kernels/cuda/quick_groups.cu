// Groups in registers: a few threads, up to a warp, walk through an output or a part of one side by side, several
// elements in flight, and merge what they have by shuffles. Compiled without contraction of operations, as
// exact/two_doubles.h wants it, whose arithmetic the folds have.
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/group_elements.cuh"
#include "kernels/cuda/groups.h"
#include "kernels/cuda/quick_tiles.cuh"

namespace reduced {
namespace {

constexpr int kAtOnce = 4;  // loads in flight

__device__ inline GroupPart WholeOutput(const GroupOutputs& outputs, const GroupArray& array, std::int64_t output) {
  GroupPart part;
  if (outputs.bounds == nullptr) {
    part.start = OffsetOf(outputs.kept, output);
    part.end = outputs.elements;
    return part;
  }
  const std::int64_t group = outputs.columns == 1 ? output : output / outputs.columns;
  const std::int64_t begin = outputs.bounds[group];
  part.column = output - group * outputs.columns;
  part.start = array.rows != nullptr ? begin : begin * outputs.columns + part.column;
  part.end = outputs.bounds[group + 1] - begin;
  return part;
}

__global__ void __launch_bounds__(kQuickThreads) LocateKernel(LocateLaunch launch) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kQuickThreads + threadIdx.x;
  if (i < launch.count) launch.wholes[i] = WholeOutput(launch.outputs, launch.array, launch.numbers[i]);
}

// How positions lie in the array.
enum class Lie : std::uint8_t {
  kNeighbours,        // one after the other, and no mask leaves any of them out
  kMaskedNeighbours,  // likewise, with a mask of bytes
  kAny,
};

struct FewPositions {
  std::uint32_t of[kAtOnce];

  __device__ std::uint32_t operator()(int which) const {  // by no address, so that they stay in registers
    std::uint32_t found = of[0];
#pragma unroll
    for (int i = 1; i < kAtOnce; ++i) found = which == i ? of[i] : found;
    return found;
  }
};

// Elements of an output, of which some may not be there.
template <class Fold>
struct FewElements {
  using Word = typename Fold::Word;
  Word word[kAtOnce];
  std::uint32_t position[kAtOnce];  // as answers call it
  bool there[kAtOnce];

  __device__ int count() const {
    int count = 0;
#pragma unroll
    for (const bool each : there) count += each ? 1 : 0;
    return count;
  }
  // Adds them to the fold; n = count() >= 1.
  __device__ void AddTo(int n, const QuickElements& of, Fold* fold) const {
    QuickTile<Word, kAtOnce> tile{};
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) tile.Set(i, word[i]);
    Prepare<Fold>(of, &tile);
    // The first that is there stands for those that aren't, where they need a position.
    Word first = tile[0];
    std::uint32_t first_at = position[0];
    if constexpr (kCountsAbsent<Fold>) {
#pragma unroll
      for (int i = kAtOnce - 1; i >= 0; --i) {
        first = there[i] ? tile[i] : first;
        first_at = there[i] ? position[i] : first_at;
      }
    }
    const Word absent = Fold::Absent(first, of);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) tile.Set(i, there[i] ? tile[i] : absent);
    FewPositions at;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) at.of[i] = there[i] ? position[i] : first_at;
    fold->Add(tile, kAtOnce, at, of);
    if constexpr (kCountsAbsent<Fold>) {
      if (n < kAtOnce) fold->Forget(kAtOnce - n, absent, of);
    }
  }
};

template <class Fold, Lie kLie>
__global__ void __launch_bounds__(kQuickThreads, 3)
    QuickGroupsKernel(const __grid_constant__ QuickGroupsLaunch launch) {
  using Word = typename Fold::Word;
  const int width = launch.width;
  const int lane = static_cast<int>(threadIdx.x) & (width - 1);
  const std::int64_t item = (std::int64_t{blockIdx.x} * kQuickThreads + threadIdx.x) / width;
  const bool there = item < launch.count;
  GroupPart part;
  bool too_long = false;
  if (there && launch.parts != nullptr) part = launch.parts[item];
  if (there && launch.parts == nullptr) {
    part = WholeOutput(launch.outputs, launch.array, launch.first + item);
    too_long = part.end > launch.longest;
    if (too_long) part.end = 0;
  }
  const GroupWalk<Word> walk(launch.array, part.start, part.column);
  const Word* const data = static_cast<const Word*>(launch.array.data) + part.start;
  const std::uint8_t* const mask = kLie == Lie::kMaskedNeighbours ? launch.array.mask + part.start : nullptr;
  Fold fold;
  std::int64_t counted = 0;
  for (std::int64_t i = part.begin + lane; i < part.end; i += kAtOnce * width) {
    FewElements<Fold> few;
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const std::int64_t position = i + k * width;
      few.position[k] = static_cast<std::uint32_t>(position);
      few.there[k] = position < part.end;
      few.word[k] = 0;
      if (!few.there[k]) continue;
      if constexpr (kLie == Lie::kAny) {
        std::int64_t index;
        few.there[k] = walk.Load(position, &few.word[k], &index);
        few.position[k] = static_cast<std::uint32_t>(index);
      } else {
        few.word[k] = data[position];
        if constexpr (kLie == Lie::kMaskedNeighbours) few.there[k] = mask[position] != 0;
      }
    }
    const int n = few.count();
    if (n == 0) continue;
    counted += n;
    few.AddTo(n, launch.elements, &fold);
  }
  MergeLanes(width, &fold);
  if constexpr (kLie == Lie::kNeighbours) {
    counted = part.end - part.begin;
  } else {
    for (int distance = width / 2; distance > 0; distance /= 2) {
      counted += __shfl_xor_sync(kFullWarp, counted, distance);
    }
  }
  if (!there || lane != 0) return;
  if (launch.parts != nullptr) {
    GroupPartFold& out = launch.folds[item];
    memcpy(out.fold, &fold, sizeof(fold));
    out.count = counted;
    return;
  }
  std::uint8_t left = kTooLong;
  if (!too_long) {
    QuickElements of = launch.elements;
    of.count = counted;
    left = counted > 0 && fold.Finish(launch.answers, launch.ops, item, of) ? kAnswered : kNotKnown;
  }
  if (!launch.after || left != kAnswered) launch.left[item] = left;
}

template <class Fold>
cudaError_t Launch(const QuickGroupsLaunch& launch) {
  const GroupArray& array = launch.array;
  const bool neighbours =
      array.rows == nullptr && (array.reduced.count == 0 || (array.reduced.count == 1 && array.reduced.stride[0] == 1));
  const auto blocks = static_cast<unsigned>((launch.count * launch.width + kQuickThreads - 1) / kQuickThreads);
  if (neighbours && array.mask == nullptr) {
    QuickGroupsKernel<Fold, Lie::kNeighbours><<<blocks, kQuickThreads, 0, launch.stream>>>(launch);
  } else if (neighbours && !array.mask_bits) {
    QuickGroupsKernel<Fold, Lie::kMaskedNeighbours><<<blocks, kQuickThreads, 0, launch.stream>>>(launch);
  } else {
    QuickGroupsKernel<Fold, Lie::kAny><<<blocks, kQuickThreads, 0, launch.stream>>>(launch);
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
