// Histograms of whole arrays on a CUDA device.
#ifndef REDUCED_KERNELS_CUDA_HISTOGRAM_H_
#define REDUCED_KERNELS_CUDA_HISTOGRAM_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/algebra/dtype.h"

namespace reduced {

struct HistogramLaunch {
  DType dtype = DType::kF32;     // of more than 16 bits
  const void* data = nullptr;    // aligned to the element's size
  std::int64_t count = 0;        // > 0
  const void* finder = nullptr;  // host memory: a BinFinder<T> whose `lowest` is in device memory; it has bins in use
  int bins = 0;                  // in use
  unsigned long long* counts = nullptr;  // device memory, zeros: bins + 1, as of HistogramBins::Count
  std::int64_t shared_bytes = 0;         // that a block may have
  int multiprocessors = 0;
  cudaStream_t stream = nullptr;
};
cudaError_t LaunchHistogram(const HistogramLaunch& launch);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_HISTOGRAM_H_
