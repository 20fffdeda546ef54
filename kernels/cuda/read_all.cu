#include "kernels/cuda/pipeline.h"

namespace reduced {
namespace {

constexpr int kThreads = 512;
constexpr int kInFlight = 4;

__global__ void __launch_bounds__(kThreads) ReadAll(const uint4* data, std::int64_t vectors) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * kThreads;
  std::int64_t v = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  unsigned seen = 0;
  for (; v + (kInFlight - 1) * threads < vectors; v += kInFlight * threads) {
    uint4 loaded[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) loaded[i] = __ldcs(data + v + i * threads);
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) seen |= loaded[i].x | loaded[i].y | loaded[i].z | loaded[i].w;
  }
  for (; v < vectors; v += threads) seen |= __ldcs(data + v).x;
  if (seen == 0x9e3779b9) __nanosleep(1);  // keeps the loads
}

}  // namespace

cudaError_t LaunchReadAll(const void* data, std::int64_t bytes, int multiprocessors, cudaStream_t stream) {
  ReadAll<<<8 * multiprocessors, kThreads, 0, stream>>>(static_cast<const uint4*>(data), bytes / 16);
  return cudaGetLastError();
}

}  // namespace reduced
