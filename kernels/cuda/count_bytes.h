// How many elements of 8 bits have each value, and where the least and the greatest ones stand first, of an array on a
// CUDA device.
#ifndef REDUCED_KERNELS_CUDA_COUNT_BYTES_H_
#define REDUCED_KERNELS_CUDA_COUNT_BYTES_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/selection.h"
#include "kernels/folds/byte_counts.h"

namespace reduced {

struct CountBytesLaunch {
  const void* data = nullptr;  // elements, at any address
  std::int64_t count = 0;      // of them, > 0, at most 2^38 for each multiprocessor
  ByteCounts* out = nullptr;   // device memory, that of no element before
  // Whether to look for places, too, and of elements of which format: floats. If NaNs are omitted, not for theirs.
  bool finds_places = false;
  KeyFormat format{};
  std::int64_t base_index = 0;  // of the first element, where places are counted from
  int multiprocessors = 0;
  cudaStream_t stream = nullptr;
};
// Asynchronous; returns the first error of its launches.
cudaError_t LaunchCountBytes(const CountBytesLaunch& launch);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_COUNT_BYTES_H_
