// matmul_global: each thread computes one element of C from global memory.
//
// Why it is slow: each of the 2 k loads of a thread is one of its neighbours', too. The L1 cache serves most of them,
// but there are two loads for each multiplication.
//
// Source: a lecture's matrix product, "Global"; "Professional CUDA C Programming", chapter 3, for the sweep over
// blocks.
#include "kernels/matmul/kernel.cuh"

namespace reduced {
namespace {

constexpr int kMaxThreads = 1024;

template <class T>
__global__ void __launch_bounds__(kMaxThreads) MatmulGlobalKernel(MatmulMatrices<T> matrices) {
  const BlockOrigin origin = OriginOf(matrices.n, static_cast<int>(blockDim.y), static_cast<int>(blockDim.x));
  const int row = origin.row + static_cast<int>(threadIdx.y);
  const int column = origin.column + static_cast<int>(threadIdx.x);
  if (row >= matrices.m || column >= matrices.n) return;
  const T* const a = matrices.a + static_cast<std::int64_t>(row) * matrices.k;
  T sum{};
  for (int i = 0; i < matrices.k; ++i) sum += a[i] * matrices.b[static_cast<std::int64_t>(i) * matrices.n + column];
  StoreElement(matrices, row, column, sum);
}

cudaError_t Run(const MatmulLaunch& launch) {
  return VisitMatmulType(launch.dtype, [&]<class T>(std::type_identity<T>) {
    const dim3 block(launch.block_x, launch.block_y);
    MatmulGlobalKernel<T>
        <<<BlocksOf(launch, launch.block_y, launch.block_x), block, 0, launch.stream>>>(MatricesOf<T>(launch));
    return cudaGetLastError();
  });
}

cudaError_t Describe(const MatmulLaunch& launch, Occupancy* occupancy) {
  return VisitMatmulType(launch.dtype, [&]<class T>(std::type_identity<T>) {
    return MatmulOccupancy(&MatmulGlobalKernel<T>, launch.block_x * launch.block_y, 0, occupancy);
  });
}

}  // namespace

const MatmulKernel kMatmulGlobal = {&Run, &Describe};

}  // namespace reduced
