// A CUDA rung of the matrix product: one way to compute C = A B in device memory. The rungs are in this folder, one
// technique a file; matmul.h lists them.
#ifndef REDUCED_KERNELS_MATMUL_LAUNCH_H_
#define REDUCED_KERNELS_MATMUL_LAUNCH_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/algebra/dtype.h"
#include "kernels/engine/occupancy.h"

namespace reduced {

// One product on a stream. The matrices are row-major, dense and aligned to 16 bytes.
struct MatmulLaunch {
  DType dtype = DType::kF32;  // one that the rung supports
  std::int64_t m = 0;         // rows of A and C, 1 to kMaxMatmulSide
  std::int64_t n = 0;         // columns of B and C, likewise
  std::int64_t k = 0;         // the shared axis, 0 to kMaxMatmulSide
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  int tile = 0;     // of rungs with tiles in shared memory: 16 or 32
  int block_x = 0;  // of rungs with a choice of blocks: threads along n, and along m
  int block_y = 0;
  cudaStream_t stream = nullptr;
};

// Launches are asynchronous; both return the first error.
struct MatmulKernel {
  cudaError_t (*launch)(const MatmulLaunch& launch);
  cudaError_t (*occupancy)(const MatmulLaunch& launch, Occupancy* occupancy);  // null: nothing to say. Synchronous
};

extern const MatmulKernel kMatmulGlobal;
extern const MatmulKernel kMatmulShared1, kMatmulShared2, kMatmulShared3, kMatmulShared4, kMatmulShared5;
extern const MatmulKernel kMatmulRegisterTile, kMatmulTensorF64;
extern const MatmulKernel kMatmulCublas;

// Multiplies and adds in registers only, on every multiprocessor: the yardstick. Sets how many operations that are; for
// f64 by tensor cores where the device has them. In peak.cu.
cudaError_t LaunchMatmulPeak(DType dtype, int multiprocessors, int compute_major, void* sink, cudaStream_t stream,
                             double* operations);

}  // namespace reduced

#endif  // REDUCED_KERNELS_MATMUL_LAUNCH_H_
