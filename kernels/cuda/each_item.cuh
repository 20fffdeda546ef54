// Kernels whose threads take items one by one.
#ifndef REDUCED_KERNELS_CUDA_EACH_ITEM_CUH_
#define REDUCED_KERNELS_CUDA_EACH_ITEM_CUH_

#include <algorithm>
#include <cstdint>

namespace reduced {

inline constexpr int kItemThreads = 256;  // of a block

// How many blocks a grid has for so many items: one at least.
inline unsigned BlocksForItems(std::int64_t items) {
  constexpr std::int64_t kMost = 1 << 16;
  return static_cast<unsigned>(std::clamp<std::int64_t>((items + kItemThreads - 1) / kItemThreads, 1, kMost));
}

// Calls f with every number below `count`, each by one thread of the grid.
template <class Function>
__device__ inline void ForEachItem(std::int64_t count, Function f) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kItemThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kItemThreads) {
    f(i);
  }
}

// The first of ascending values that is not below `value`; `count`: all are.
template <class T>
__device__ inline std::int64_t LowerBound(const T* values, std::int64_t count, std::uint64_t value) {
  std::int64_t begin = 0, end = count;
  while (begin < end) {
    const std::int64_t middle = (begin + end) / 2;
    if (values[middle] < value) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_EACH_ITEM_CUH_
