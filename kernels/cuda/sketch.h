// The sketch of distinct (kernels/folds/sketch.h) of a whole array on a CUDA device.
#ifndef REDUCED_KERNELS_CUDA_SKETCH_H_
#define REDUCED_KERNELS_CUDA_SKETCH_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/selection.h"

namespace reduced {

struct SketchLaunch {
  KeyFormat format{};  // of 4 or 8 bytes
  const void* data = nullptr;
  std::int64_t count = 0;              // > 0
  std::uint32_t* registers = nullptr;  // device memory, kRegisters zeros
  int multiprocessors = 0;
  cudaStream_t stream = nullptr;
};
cudaError_t LaunchSketch(const SketchLaunch& launch);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_SKETCH_H_
