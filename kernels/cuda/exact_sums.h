// Exact sums on a CUDA device: the launch that adds those of an array to ExactDigits.
#ifndef REDUCED_KERNELS_CUDA_EXACT_SUMS_H_
#define REDUCED_KERNELS_CUDA_EXACT_SUMS_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/op.h"
#include "kernels/cuda/pipeline.h"
#include "kernels/exact/digits.h"

namespace reduced {

// What LaunchExactSums needs of device memory, in bytes.
inline constexpr std::size_t kExactScratchBytes = 8192;

// One reduction on a stream.
struct ExactLaunch {
  DType dtype = DType::kF32;        // of floats
  AccumulatorSet accumulators = 0;  // a subset of kExactAccumulators, not empty
  const void* data = nullptr;       // device memory, aligned to the element's size
  std::int64_t count = 0;           // elements, > 0, at most kMaxLaunchElements
  void* scratch = nullptr;          // kExactScratchBytes of device memory, zeroed once; used by one launch at a time
  ExactDigits* out = nullptr;       // device memory, or host memory mapped for the device; the identity before
  int multiprocessors = 0;
  cudaStream_t stream = nullptr;
  KernelTimes* times = nullptr;  // null: not wanted; only if ExactSumsKeepTime()
};

// Asynchronous; returns the first error of its launches.
cudaError_t LaunchExactSums(const ExactLaunch& launch);

// Whether they write ExactLaunch::times: what is one kernel, and short.
bool ExactSumsKeepTime(const ExactLaunch& launch);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_EXACT_SUMS_H_
