// Copies arrays in device memory whose elements do not lie next to each other, or have their bytes in the other order.
#ifndef REDUCED_KERNELS_CUDA_STRIDED_H_
#define REDUCED_KERNELS_CUDA_STRIDED_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace reduced {

inline constexpr int kMostGathered = 64;  // dimensions

// A plain struct, which kernels get as it is.
struct GatherLaunch {
  const std::byte* data = nullptr;  // the element whose indexes are all 0, at any address
  int width = 0;                    // bytes of an element: 1, 2, 4 or 8
  bool swaps = false;               // the bytes of each element are reversed
  std::int64_t first = 0;           // in C order
  std::int64_t count = 0;           // > 0
  void* to = nullptr;               // device memory, aligned to the width
  int dimensions = 0;               // 1 to kMostGathered, from the outermost
  std::int64_t sizes[kMostGathered] = {};
  std::int64_t strides[kMostGathered] = {};  // bytes
  int multiprocessors = 0;
  cudaStream_t stream = nullptr;
};
// Asynchronous; returns the first error of its launch. Each element is loaded by itself: neighbouring threads load
// neighbours in C order, so that a read of rows takes little more than the bytes of the cache lines that they lie in.
cudaError_t LaunchGather(const GatherLaunch& launch);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_STRIDED_H_
