// Reductions along axes on a CUDA device: the launch that CudaLane::ReduceSlices is made of. It folds outputs to
// states, which the host finalizes.
#ifndef REDUCED_KERNELS_CUDA_SLICES_H_
#define REDUCED_KERNELS_CUDA_SLICES_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/op.h"
#include "kernels/algebra/partial.h"
#include "kernels/exact/digits.h"

namespace reduced {

// Joined dimensions of one kind, kept or reduced, from the outermost. Arrays have at most 63 of size 2 or more, and
// neighbours are of different kinds.
struct SliceDimensions {
  static constexpr int kMost = 32;
  int count = 0;
  std::int64_t size[kMost] = {};
  std::int64_t stride[kMost] = {};  // in elements
};

// An array in device memory and how it falls apart, as Layout. Has outputs, and outputs have elements.
struct SliceArray {
  const void* data = nullptr;  // aligned to the element's size
  std::int64_t outputs = 1;
  std::int64_t elements = 1;  // of each output
  SliceDimensions kept;
  SliceDimensions reduced;
};

// Folds outputs to states, whatever the accumulators and the layout.
struct SliceStatesLaunch {
  DType dtype = DType::kF32;
  AccumulatorSet accumulators = 0;
  AccumulatorSet exact_accumulators = 0;  // of ExactDigits, of floats
  bool omit_nan = false;
  SliceArray array;
  std::int64_t first = 0;               // output
  const std::int64_t* which = nullptr;  // device memory: the outputs, in place of `count` from `first` on; may be null
  int count = 0;                        // outputs, > 0
  int parts = 1;                        // that each output is cut into, at most 65535
  Partial* partials = nullptr;          // device memory, `parts` of each output; their `count` is not set
  ExactDigits* digits = nullptr;        // likewise; null: no exact accumulators
  cudaStream_t stream = nullptr;
};
cudaError_t LaunchSliceStates(const SliceStatesLaunch& launch);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_SLICES_H_
