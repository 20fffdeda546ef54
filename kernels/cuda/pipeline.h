// A CUDA pipeline: one way to reduce an array that lies in device memory. The pipelines are in kernels/pipelines, one
// technique a file.
#ifndef REDUCED_KERNELS_CUDA_PIPELINE_H_
#define REDUCED_KERNELS_CUDA_PIPELINE_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"
#include "kernels/op.h"
#include "kernels/partial.h"

namespace reduced {

// One reduction on a stream.
struct Launch {
  DType dtype = DType::kF32;
  AccumulatorSet accumulators = 0;
  bool omit_nan = false;
  const void* data = nullptr;   // device memory, aligned to the element's size
  std::int64_t count = 0;       // elements, > 0
  std::int64_t base_index = 0;  // of the first element in the whole array
  void* scratch = nullptr;      // kScratchBytes of device memory, zeroed once; used by one launch at a time
  Partial* out = nullptr;       // device memory, or host memory mapped for the device; the identity before the launch
  int multiprocessors = 0;
  bool clusters = false;  // the device has thread block clusters: compute capability 9.0 and up
  int grid_blocks = 0;    // 0: the pipeline's own choice; for benchmarks
  cudaStream_t stream = nullptr;
};

// Enough for every pipeline.
inline constexpr std::size_t kScratchBytes = std::size_t{2} << 20;

// pipelines/single_pass.cu. Asynchronous; returns the launch's error.
cudaError_t LaunchSinglePass(const Launch& launch);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_PIPELINE_H_
