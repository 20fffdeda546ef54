// Reductions of segments, by keys and under masks on a CUDA device: the launches that CudaLane::ReduceGroups is made
// of.
#ifndef REDUCED_KERNELS_CUDA_GROUPS_H_
#define REDUCED_KERNELS_CUDA_GROUPS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/op.h"
#include "kernels/algebra/partial.h"
#include "kernels/cuda/slices.h"
#include "kernels/exact/digits.h"

namespace reduced {

// An array in device memory, how the positions of an output lie in it, and which of its elements are there.
struct GroupArray {
  const void* data = nullptr;  // aligned to the element's size
  // With keys: position p of an output is row rows[start + p], of `columns` elements. Else null.
  const std::uint32_t* rows = nullptr;
  std::int64_t columns = 1;
  // Else: how far position p lies behind the first one.
  SliceDimensions reduced;
  // Null: all elements are there. Bytes, or bits of which `first_bit` is that of element 0.
  const std::uint8_t* mask = nullptr;
  bool mask_bits = false;
  std::int64_t first_bit = 0;
};

// Positions [begin, end) of one output.
struct GroupPart {
  std::int64_t start = 0;   // with keys: of the output's rows; else the index of its position 0 in the array
  std::int64_t column = 0;  // with keys
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Folds parts of outputs to states, whatever the accumulators.
struct GroupStatesLaunch {
  DType dtype = DType::kF32;
  AccumulatorSet accumulators = 0;
  AccumulatorSet exact_accumulators = 0;  // of ExactDigits, of floats
  bool omit_nan = false;
  GroupArray array;
  const GroupPart* parts = nullptr;  // device memory
  int count = 0;                     // of parts, > 0
  Partial* partials = nullptr;       // device memory, one of each part; their `count` is of the elements that are there
  ExactDigits* digits = nullptr;     // likewise; null: no exact accumulators
  cudaStream_t stream = nullptr;
};
cudaError_t LaunchGroupStates(const GroupStatesLaunch& launch);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_GROUPS_H_
