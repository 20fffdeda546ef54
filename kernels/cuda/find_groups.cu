// Groups found on a CUDA device. Rows are sorted by CUB's radix sort, which is stable, so that those of a group keep
// their order; where each group begins is then looked up by bisection.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cub/device/device_radix_sort.cuh>
#include <type_traits>

#include "kernels/cuda/find_groups.h"
#include "kernels/cuda/group_elements.cuh"

namespace reduced {
namespace {

constexpr int kThreads = 256;

unsigned BlocksFor(std::int64_t items) {
  constexpr std::int64_t kMost = 1 << 16;
  return static_cast<unsigned>(std::min(kMost, (items + kThreads - 1) / kThreads));
}

// Calls f with every number below `count`, each by one thread of the grid.
template <class Function>
__device__ inline void ForEachItem(std::int64_t count, Function f) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads) {
    f(i);
  }
}

__device__ inline void ReportBad(std::int64_t i, GroupChecks* checks) {
  atomicMin(reinterpret_cast<long long*>(&checks->bad), static_cast<long long>(i));
}

template <class T>
__global__ void __launch_bounds__(kThreads) CheckOffsetsKernel(CheckOffsetsLaunch launch) {
  const auto* const offsets = static_cast<const T*>(launch.offsets);
  ForEachItem(launch.count, [&](std::int64_t i) {
    const std::int64_t offset = offsets[i];
    const std::int64_t before = i == 0 ? 0 : offsets[i - 1];
    if (offset < before || offset > launch.rows) ReportBad(i, launch.checks);
    launch.bounds[i] = offset;
    if (i == 0) launch.checks->first = offset;
    if (i == launch.count - 1) launch.checks->last = offset;
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads) CheckKeysKernel(CheckKeysLaunch launch) {
  const auto* const keys = static_cast<const T*>(launch.keys);
  ForEachItem(launch.rows, [&](std::int64_t row) {
    bool there = launch.array.mask == nullptr;
    const std::int64_t begin = row * launch.array.columns;
    for (std::int64_t i = begin; !there && i < begin + launch.array.columns; ++i) there = Keeps(launch.array, i);
    // A negative key is beyond all groups.
    const auto key = static_cast<std::uint64_t>(static_cast<std::int64_t>(keys[row]));
    const bool within = key < static_cast<std::uint64_t>(launch.groups);
    if (there && !within && !launch.drop) ReportBad(row, launch.checks);
    launch.ids[row] = static_cast<std::uint32_t>(there && within ? key : launch.groups);
  });
}

__global__ void __launch_bounds__(kThreads) NumberRowsKernel(SortRowsLaunch launch) {
  const auto groups = static_cast<std::uint32_t>(launch.groups);
  ForEachItem(launch.rows, [&](std::int64_t row) {
    launch.numbers[row] = static_cast<std::uint32_t>(row);
    if (launch.ids[row] > groups) launch.ids[row] = groups;
  });
}

__global__ void __launch_bounds__(kThreads) FindBoundsKernel(SortRowsLaunch launch) {
  ForEachItem(launch.groups + 1, [&](std::int64_t group) {
    std::int64_t begin = 0, end = launch.rows;
    while (begin < end) {
      const std::int64_t middle = (begin + end) / 2;
      if (launch.sorted_ids[middle] < group) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    launch.bounds[group] = begin;
  });
}

cudaError_t Sort(const SortRowsLaunch& launch, void* scratch, std::size_t* bytes) {
  const int bits = static_cast<int>(std::bit_width(static_cast<std::uint32_t>(launch.groups)));
  return cub::DeviceRadixSort::SortPairs(scratch, *bytes, launch.ids, launch.sorted_ids, launch.numbers, launch.sorted,
                                         launch.rows, 0, bits, launch.stream);
}

cudaError_t ClearChecks(GroupChecks* checks, cudaStream_t stream) {
  return cudaMemsetAsync(checks, 0x7f, sizeof(GroupChecks), stream);
}

}  // namespace

cudaError_t LaunchCheckOffsets(const CheckOffsetsLaunch& launch) {
  if (const cudaError_t error = ClearChecks(launch.checks, launch.stream); error != cudaSuccess) return error;
  const unsigned blocks = BlocksFor(launch.count);
  if (launch.dtype == DType::kI32) {
    CheckOffsetsKernel<std::int32_t><<<blocks, kThreads, 0, launch.stream>>>(launch);
  } else {
    CheckOffsetsKernel<std::int64_t><<<blocks, kThreads, 0, launch.stream>>>(launch);
  }
  return cudaGetLastError();
}

cudaError_t LaunchCheckKeys(const CheckKeysLaunch& launch) {
  if (const cudaError_t error = ClearChecks(launch.checks, launch.stream); error != cudaSuccess) return error;
  return VisitDType(launch.dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      CheckKeysKernel<T><<<BlocksFor(launch.rows), kThreads, 0, launch.stream>>>(launch);
      return cudaGetLastError();
    } else {
      return cudaErrorInvalidValue;
    }
  });
}

cudaError_t SortRowsScratch(const SortRowsLaunch& launch, std::size_t* bytes) {
  *bytes = 0;
  return Sort(launch, nullptr, bytes);
}

cudaError_t LaunchSortRows(const SortRowsLaunch& launch) {
  NumberRowsKernel<<<BlocksFor(launch.rows), kThreads, 0, launch.stream>>>(launch);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  std::size_t bytes = launch.scratch_bytes;
  if (const cudaError_t error = Sort(launch, launch.scratch, &bytes); error != cudaSuccess) return error;
  FindBoundsKernel<<<BlocksFor(launch.groups + 1), kThreads, 0, launch.stream>>>(launch);
  return cudaGetLastError();
}

}  // namespace reduced
