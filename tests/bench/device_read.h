// How fast device memory is only read: what benchmarks of the CUDA engine compare with.
#ifndef REDUCED_TESTS_BENCH_DEVICE_READ_H_
#define REDUCED_TESTS_BENCH_DEVICE_READ_H_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/pipeline.h"

namespace reduced {

// Microseconds of a plain read of that memory of device 0, at best.
inline absl::StatusOr<double> MicrosOfRead(const void* data, std::int64_t bytes) {
  constexpr int kRuns = 20;
  int multiprocessors = 0;
  cudaEvent_t begin = nullptr, end = nullptr;
  float best = std::numeric_limits<float>::max();
  cudaError_t error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
  if (error == cudaSuccess) error = cudaEventCreate(&begin);
  if (error == cudaSuccess) error = cudaEventCreate(&end);
  for (int run = 0; run < kRuns && error == cudaSuccess; ++run) {
    float millis = 0;
    error = cudaEventRecord(begin);
    if (error == cudaSuccess) error = LaunchReadAll(data, bytes, multiprocessors, nullptr);
    if (error == cudaSuccess) error = cudaEventRecord(end);
    if (error == cudaSuccess) error = cudaEventSynchronize(end);
    if (error == cudaSuccess) error = cudaEventElapsedTime(&millis, begin, end);
    best = std::min(best, millis);
  }
  if (begin != nullptr) cudaEventDestroy(begin);
  if (end != nullptr) cudaEventDestroy(end);
  if (error != cudaSuccess) return absl::UnavailableError(cudaGetErrorString(error));
  return 1e3 * best;
}

}  // namespace reduced

#endif  // REDUCED_TESTS_BENCH_DEVICE_READ_H_
