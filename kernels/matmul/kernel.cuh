// What the kernels of the matrix product share.
#ifndef REDUCED_KERNELS_MATMUL_KERNEL_CUH_
#define REDUCED_KERNELS_MATMUL_KERNEL_CUH_

#include <cstdint>
#include <type_traits>

#include "kernels/matmul/launch.h"

namespace reduced {

// C[m][n] = A[m][k] B[k][n].
template <class T>
struct MatmulMatrices {
  const T* a;
  const T* b;
  T* c;
  int m, n, k;
};

// Products of integers are modulo 2^32, which unsigned arithmetic is defined to be.
template <class T>
MatmulMatrices<T> MatricesOf(const MatmulLaunch& launch) {
  return {static_cast<const T*>(launch.a), static_cast<const T*>(launch.b), static_cast<T*>(launch.c),
          static_cast<int>(launch.m),      static_cast<int>(launch.n),      static_cast<int>(launch.k)};
}

// Element (row, column) of a rows x columns matrix; zero beyond it.
template <class T>
__device__ inline T ElementOrZero(const T* matrix, int rows, int columns, int row, int column) {
  return row < rows && column < columns ? matrix[static_cast<std::int64_t>(row) * columns + column] : T{};
}

template <class T>
__device__ inline void StoreElement(const MatmulMatrices<T>& matrices, int row, int column, T value) {
  if (row < matrices.m && column < matrices.n) {
    matrices.c[static_cast<std::int64_t>(row) * matrices.n + column] = value;
  }
}

// The first row and column of this block's part of C, which has `rows` x `columns` elements. Blocks are numbered along
// the rows of C in one dimension, since a grid has no more than 65535 in the second.
struct BlockOrigin {
  int row;
  int column;
};
__device__ inline BlockOrigin OriginOf(int n, int rows, int columns) {
  const unsigned across = (static_cast<unsigned>(n) + columns - 1) / columns;
  return {static_cast<int>(blockIdx.x / across) * rows, static_cast<int>(blockIdx.x % across) * columns};
}
inline unsigned BlocksOf(const MatmulLaunch& launch, int rows, int columns) {
  return static_cast<unsigned>((launch.m + rows - 1) / rows * ((launch.n + columns - 1) / columns));
}

// Calls visit(std::type_identity<T>{}) for the type that computes in `dtype`.
template <class Visitor>
decltype(auto) VisitMatmulType(DType dtype, Visitor&& visit) {
  if (dtype == DType::kF32) return visit(std::type_identity<float>{});
  if (dtype == DType::kF64) return visit(std::type_identity<double>{});
  return visit(std::type_identity<std::uint32_t>{});
}

template <class Kernel>
cudaError_t MatmulOccupancy(Kernel kernel, int block_size, int shared_bytes, Occupancy* occupancy) {
  cudaFuncAttributes attributes;
  cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  int device = 0;
  if (error == cudaSuccess) error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&occupancy->max_threads_per_multiprocessor, cudaDevAttrMaxThreadsPerMultiProcessor,
                                   device);
  }
  if (error != cudaSuccess) return error;
  occupancy->block_size = block_size;
  occupancy->registers = attributes.numRegs;
  occupancy->shared_bytes = static_cast<int>(attributes.sharedSizeBytes) + shared_bytes;
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(&occupancy->blocks_per_multiprocessor, kernel, block_size,
                                                       static_cast<std::size_t>(shared_bytes));
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_MATMUL_KERNEL_CUH_
