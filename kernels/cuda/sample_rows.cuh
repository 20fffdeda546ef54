// What a few rows, or all, tell of the others before these are added to a table by key.
#ifndef REDUCED_KERNELS_CUDA_SAMPLE_ROWS_CUH_
#define REDUCED_KERNELS_CUDA_SAMPLE_ROWS_CUH_

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device_reduce.cuh"
#include "kernels/cuda/each_item.cuh"
#include "kernels/cuda/key_tables.h"
#include "kernels/cuda/keyed_rows.cuh"

namespace reduced {

template <int kBytes>
static __global__ void __launch_bounds__(kItemThreads)
    SampleRowsKernel(const __grid_constant__ KeyTablesLaunch launch, int key_bytes, std::int64_t samples) {
  using Word = WordOfBytes<kBytes>;
  const auto* const data = static_cast<const Word*>(launch.array.data);
  const std::int64_t apart = launch.rows / samples;
  unsigned long long largest = 0;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kItemThreads + threadIdx.x; i < samples;
       i += std::int64_t{gridDim.x} * kItemThreads) {
    // The samples of a warp are far from each other, so that keys that are sorted are no pairs; and not always as far,
    // since what has a period would be seen wrong.
    const std::int64_t sample =
        samples == KeyTablesLaunch::kSamples ? i % kWarpSize * (samples / kWarpSize) + i / kWarpSize : i;
    const auto jitter = static_cast<std::int64_t>(static_cast<unsigned>(sample) * 2654435761U % apart);
    const std::int64_t row = sample * apart + jitter;
    if (launch.elements.fold != 0 && Keeps(launch.array, row)) {
      const auto magnitude = static_cast<Word>(data[row] & static_cast<Word>(launch.elements.magnitude));
      if (magnitude < static_cast<Word>(launch.elements.infinity) && magnitude > largest) largest = magnitude;
    }
    if (samples != KeyTablesLaunch::kSamples) continue;  // else whole warps are here
    const auto* const key = static_cast<const unsigned char*>(launch.keys) + row * key_bytes;
    unsigned long long value = 0;
    for (int b = 0; b < key_bytes; ++b) value |= static_cast<unsigned long long>(key[b]) << (8 * b);
    const unsigned long long before = __shfl_up_sync(kFullWarp, value, 1);
    const bool pair = threadIdx.x % kWarpSize != 0 && before == value;
    const int pairs = __popc(__ballot_sync(kFullWarp, pair));
    if (threadIdx.x % kWarpSize == 0 && pairs != 0) atomicAdd(&launch.header->pairs, static_cast<unsigned>(pairs));
  }
  largest = WarpExtremum<true>(largest);
  if (threadIdx.x % kWarpSize == 0 && largest != 0) {
    atomicMax(reinterpret_cast<unsigned long long*>(&launch.header->largest), largest);
  }
}

// Fills in what of the header so many rows tell, all if there are no more.
inline cudaError_t LaunchSampleRows(const KeyTablesLaunch& launch, std::int64_t most) {
  const int key_bytes = RowOf(launch.key_dtype).bytes;
  const std::int64_t samples = std::min(launch.rows, most);
  const unsigned blocks = BlocksForItems(samples);
  switch (RowOf(launch.elements.dtype).bytes) {
    case 1:
      SampleRowsKernel<1><<<blocks, kItemThreads, 0, launch.stream>>>(launch, key_bytes, samples);
      break;
    case 2:
      SampleRowsKernel<2><<<blocks, kItemThreads, 0, launch.stream>>>(launch, key_bytes, samples);
      break;
    case 4:
      SampleRowsKernel<4><<<blocks, kItemThreads, 0, launch.stream>>>(launch, key_bytes, samples);
      break;
    default:
      SampleRowsKernel<8><<<blocks, kItemThreads, 0, launch.stream>>>(launch, key_bytes, samples);
      break;
  }
  return cudaGetLastError();
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_SAMPLE_ROWS_CUH_
