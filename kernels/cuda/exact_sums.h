// Exact sums on a CUDA device: the launch that adds those of an array to ExactDigits, and finds extrema and counts in
// the same read.
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
inline constexpr std::size_t kExactScratchBytes = std::size_t{64} << 10;

// What can be asked for beside exact sums.
inline constexpr AccumulatorSet kBesideExactSums = SetOf(Accumulator::kExtrema) | SetOf(Accumulator::kCounts);

// One reduction on a stream.
struct ExactLaunch {
  DType dtype = DType::kF32;        // of floats
  AccumulatorSet accumulators = 0;  // a subset of kExactAccumulators, not empty
  AccumulatorSet others = 0;        // a subset of kBesideExactSums
  bool omit_nan = false;            // of the others; the sums never have NaNs
  const void* data = nullptr;       // device memory, aligned to the element's size
  std::int64_t count = 0;           // elements, > 0, at most kMaxLaunchElements
  std::int64_t base_index = 0;      // of the first element in the whole array
  void* scratch = nullptr;          // kExactScratchBytes of device memory, zeroed once; used by one launch at a time
  ExactDigits* out = nullptr;       // device memory, or host memory mapped for the device; the identity before
  Partial* partial = nullptr;       // likewise, for the others
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
