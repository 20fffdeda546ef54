// Elements of a part of an output one by one, wherever they lie, a few in flight.
#ifndef REDUCED_KERNELS_CUDA_FEW_ELEMENTS_CUH_
#define REDUCED_KERNELS_CUDA_FEW_ELEMENTS_CUH_

#include <cstdint>

#include "kernels/cuda/group_elements.cuh"
#include "kernels/cuda/groups.h"
#include "kernels/cuda/quick_tiles.cuh"

namespace reduced {

inline constexpr int kFewElements = 4;  // loads in flight

struct FewPositions {
  std::uint32_t of[kFewElements];

  __device__ std::uint32_t operator()(int which) const {  // by no address, so that they stay in registers
    std::uint32_t found = of[0];
#pragma unroll
    for (int i = 1; i < kFewElements; ++i) found = which == i ? of[i] : found;
    return found;
  }
};

// Elements of an output, of which some may not be there.
template <class Fold>
struct FewElements {
  using Word = typename Fold::Word;
  Word word[kFewElements];
  std::uint32_t position[kFewElements];  // as answers call it
  bool there[kFewElements];

  __device__ int count() const {
    int count = 0;
#pragma unroll
    for (const bool each : there) count += each ? 1 : 0;
    return count;
  }
  // Adds them to the fold; n = count() >= 1.
  __device__ void AddTo(int n, const QuickElements& of, Fold* fold) const {
    QuickTile<Word, kFewElements> tile{};
#pragma unroll
    for (int i = 0; i < kFewElements; ++i) tile.Set(i, word[i]);
    Prepare<Fold>(of, &tile);
    // The first that is there stands for those that aren't, where they need a position.
    Word first = tile[0];
    std::uint32_t first_at = position[0];
    if constexpr (kCountsPadding<Fold>) {
#pragma unroll
      for (int i = kFewElements - 1; i >= 0; --i) {
        first = there[i] ? tile[i] : first;
        first_at = there[i] ? position[i] : first_at;
      }
    }
    const Word padding = Fold::Padding(first, of);
#pragma unroll
    for (int i = 0; i < kFewElements; ++i) tile.Set(i, there[i] ? tile[i] : padding);
    FewPositions at;
#pragma unroll
    for (int i = 0; i < kFewElements; ++i) at.of[i] = there[i] ? position[i] : first_at;
    fold->Add(tile, kFewElements, at, of);
    if constexpr (kCountsPadding<Fold>) {
      if (n < kFewElements) fold->Forget(kFewElements - n, padding, of);
    }
  }
};

// Adds one thread's share, among `threads`, of the elements of a part that the mask leaves; returns how many it added.
template <class Fold>
__device__ __forceinline__ std::int64_t AddFew(const GroupArray& array, const GroupPart& part, int thread, int threads,
                                               const QuickElements& of, Fold* fold) {
  const GroupWalk<typename Fold::Word> walk(array, part.start, part.column);
  std::int64_t counted = 0;
  for (std::int64_t i = part.begin + thread; i < part.end; i += kFewElements * threads) {
    FewElements<Fold> few;
#pragma unroll
    for (int k = 0; k < kFewElements; ++k) {
      const std::int64_t position = i + k * threads;
      std::int64_t index = 0;
      few.word[k] = 0;
      few.there[k] = position < part.end && walk.Load(position, &few.word[k], &index);
      few.position[k] = static_cast<std::uint32_t>(index);
    }
    const int n = few.count();
    if (n == 0) continue;
    counted += n;
    few.AddTo(n, of, fold);
  }
  return counted;
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_FEW_ELEMENTS_CUH_
