// What a device multiplies and adds at best: no memory, only registers.
#include "kernels/matmul/kernel.cuh"
#include "kernels/matmul/tensor_f64.cuh"

namespace reduced {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksOfMultiprocessor = 4;
constexpr int kRounds = 4096;
constexpr int kChains = 16;  // of operations that don't wait for each other

template <class T>
__global__ void __launch_bounds__(kThreads) PeakKernel(T* sink) {
  const T x = static_cast<T>(threadIdx.x) + T{1};
  T sums[kChains];
#pragma unroll
  for (int i = 0; i < kChains; ++i) sums[i] = static_cast<T>(i);
#pragma unroll 1
  for (int round = 0; round < kRounds; ++round) {
#pragma unroll
    for (int i = 0; i < kChains; ++i) sums[i] = sums[i] * x + x;
  }
  T sum{};
#pragma unroll
  for (int i = 0; i < kChains; ++i) sum += sums[i];
  if (sum == static_cast<T>(1)) *sink = sum;  // so that it has a use
}

__global__ void __launch_bounds__(kThreads) TensorPeakKernel(double* sink) {
  constexpr int kShapes = kChains / 4;  // more would not fit in the registers
  const double x = 1.0 / (threadIdx.x + 1);
  const double a[4] = {x, x, x, x};
  const double b[2] = {x, x};
  double sums[kShapes][4] = {};
#pragma unroll 1
  for (int round = 0; round < kRounds / kShapes; ++round) {
#pragma unroll
    for (int i = 0; i < kShapes; ++i) MultiplyTensorF64(a, b, sums[i]);
  }
  double total = 0;
#pragma unroll
  for (int i = 0; i < kShapes; ++i) total += sums[i][0] + sums[i][1] + sums[i][2] + sums[i][3];
  if (total == 1) *sink = total;
}

}  // namespace

cudaError_t LaunchMatmulPeak(DType dtype, int multiprocessors, int compute_major, void* sink, cudaStream_t stream,
                             double* operations) {
  const int blocks = kBlocksOfMultiprocessor * multiprocessors;
  if (dtype == DType::kF64 && compute_major >= 8) {
    constexpr double kOfWarp = 2.0 * 16 * 8 * 8;  // of one multiplication
    *operations = kOfWarp * kRounds * blocks * kThreads / 32;
    TensorPeakKernel<<<blocks, kThreads, 0, stream>>>(static_cast<double*>(sink));
    return cudaGetLastError();
  }
  *operations = 2.0 * kChains * kRounds * blocks * kThreads;
  return VisitMatmulType(dtype, [&]<class T>(std::type_identity<T>) {
    PeakKernel<T><<<blocks, kThreads, 0, stream>>>(static_cast<T*>(sink));
    return cudaGetLastError();
  });
}

}  // namespace reduced
