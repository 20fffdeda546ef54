#include <algorithm>

#include "kernels/cuda/histogram.h"
#include "kernels/cuda/visit_elements.cuh"
#include "kernels/folds/histogram_bins.h"

namespace reduced {
namespace {

constexpr int kThreads = 512;

// Where counts and the bins' smallest elements are.
enum class Where { kShared, kCountsShared, kGlobal };

template <class T, Where kWhere>
__global__ void __launch_bounds__(kThreads, 2)
    CountBins(const T* data, std::int64_t count, BinFinder<T> finder, unsigned long long* total) {
  extern __shared__ unsigned shared[];
  const int entries = finder.used + 1;
  if (kWhere != Where::kGlobal) {
    for (int i = threadIdx.x; i < entries; i += kThreads) shared[i] = 0;
  }
  if (kWhere == Where::kShared) {
    // Behind the counts, of which there is an even number.
    auto* const lowest = reinterpret_cast<typename BinFinder<T>::Value*>(shared + (entries + 1) / 2 * 2);
    for (int i = threadIdx.x; i < entries; i += kThreads) lowest[i] = finder.lowest[i];
    finder.lowest = lowest;
  }
  __syncthreads();
  VisitElements(data, count, 1, [&](T x, bool is_there, std::int64_t) {
    const auto value = BinFinder<T>::ValueOf(x);
    if (!is_there || !finder.Has(value)) return;
    const int bin = finder.BinOf(x, value);
    if (kWhere == Where::kGlobal) {
      atomicAdd(&total[bin], 1ULL);
    } else {
      atomicAdd(&shared[bin], 1U);
    }
  });
  if (kWhere == Where::kGlobal) return;
  __syncthreads();
  for (int i = threadIdx.x; i < entries; i += kThreads) {
    if (shared[i] > 0) atomicAdd(&total[i], static_cast<unsigned long long>(shared[i]));
  }
}

template <class T, Where kWhere>
cudaError_t Launch(const HistogramLaunch& launch, std::int64_t shared) {
  // All that a block can have: other threads launch it with more or less.
  const cudaError_t error = cudaFuncSetAttribute(CountBins<T, kWhere>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                 static_cast<int>(launch.shared_bytes));
  if (error != cudaSuccess) return error;
  constexpr std::int64_t kElements = 16 / sizeof(T) * kThreads;
  const auto blocks = static_cast<int>(
      std::clamp<std::int64_t>((launch.count + kElements - 1) / kElements, 1, 2 * launch.multiprocessors));
  CountBins<T, kWhere><<<blocks, kThreads, static_cast<std::size_t>(shared), launch.stream>>>(
      static_cast<const T*>(launch.data), launch.count, *static_cast<const BinFinder<T>*>(launch.finder),
      launch.counts);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchHistogram(const HistogramLaunch& launch) {
  return VisitDType(launch.dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (sizeof(T) == 1) {  // are counted by their values (count_bytes.h)
      return cudaErrorInvalidValue;
    } else {
      const std::int64_t counts = (launch.bins + 2) / 2 * 8;
      const std::int64_t both = counts + (launch.bins + 1) * std::int64_t{sizeof(T)};
      if (both <= launch.shared_bytes) return Launch<T, Where::kShared>(launch, both);
      if (counts <= launch.shared_bytes) return Launch<T, Where::kCountsShared>(launch, counts);
      return Launch<T, Where::kGlobal>(launch, 0);
    }
  });
}

}  // namespace reduced
