// Exact sums of the columns of a matrix, and of the products of each two of them, on a CUDA device: what answers
// cov_matrix and corr_matrix, in one read of the matrix from memory.
#ifndef REDUCED_KERNELS_CUDA_COLUMN_PRODUCTS_H_
#define REDUCED_KERNELS_CUDA_COLUMN_PRODUCTS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/algebra/dtype.h"

namespace reduced {

// A sum is that of digit[i] x 2^(kUnit + 32 i), and digits are signed. Of floats of up to 32 bits.
struct ColumnDigits {
  static constexpr int kUnit = -320;
  static constexpr int kDigits = 22;
  static constexpr std::int64_t kMostRows = std::int64_t{1} << 29;  // that no digit overflows of

  unsigned long long digit[kDigits] = {};
};

struct ColumnProductsLaunch {
  DType dtype = DType::kF32;   // of floats of up to 32 bits
  const void* data = nullptr;  // device memory: rows end to end, aligned to an element
  std::int64_t rows = 0;       // > 0 and at most kMostRows
  int columns = 0;             // 1 to 64
  // Device memory, all of it zero before. The sums of each pair of columns, in the order of PairsOfColumns, then those
  // of each column; and whether, not 0, some rows have an element that is not finite, so that the sums are of no use.
  ColumnDigits* out = nullptr;
  unsigned long long* not_finite = nullptr;
  int multiprocessors = 0;
  cudaStream_t stream = nullptr;
};
// Asynchronous; returns the first error of its launches. The device has a compute capability of 8.0 at least.
cudaError_t LaunchColumnProducts(const ColumnProductsLaunch& launch);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_COLUMN_PRODUCTS_H_
