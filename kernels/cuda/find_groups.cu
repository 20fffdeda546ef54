// Groups found on a CUDA device. Rows or their elements are sorted by CUB's radix sort, which is stable, so that those
// of a group keep their order; where each group begins is then looked up by bisection.
#include <bit>
#include <cstdint>
#include <cub/device/device_radix_sort.cuh>
#include <type_traits>

#include "kernels/cuda/each_item.cuh"
#include "kernels/cuda/find_groups.h"
#include "kernels/cuda/group_elements.cuh"

namespace reduced {
namespace {

__device__ inline void ReportBad(std::int64_t i, GroupChecks* checks) {
  atomicMin(reinterpret_cast<long long*>(&checks->bad), static_cast<long long>(i));
}

template <class T>
__global__ void __launch_bounds__(kItemThreads) CheckOffsetsKernel(CheckOffsetsLaunch launch) {
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
__global__ void __launch_bounds__(kItemThreads) CheckKeysKernel(CheckKeysLaunch launch) {
  const auto* const keys = static_cast<const T*>(launch.keys);
  ForEachItem(launch.rows, [&](std::int64_t row) {
    const bool there = KeepsAny(launch.array, row);
    // A negative key is beyond all groups.
    const auto key = static_cast<std::uint64_t>(static_cast<std::int64_t>(keys[row]));
    const bool within = key < static_cast<std::uint64_t>(launch.groups);
    if (there && !within && !launch.drop) ReportBad(row, launch.checks);
    launch.ids[row] = static_cast<std::uint32_t>(there && within ? key : launch.groups);
  });
}

__global__ void __launch_bounds__(kItemThreads) NumberRowsKernel(std::uint32_t* numbers, std::int64_t rows) {
  ForEachItem(rows, [&](std::int64_t row) { numbers[row] = static_cast<std::uint32_t>(row); });
}

__global__ void __launch_bounds__(kItemThreads) FindBoundsKernel(FindBoundsLaunch launch) {
  ForEachItem(launch.groups + 1, [&](std::int64_t group) {
    launch.bounds[group] = LowerBound(launch.sorted_ids, launch.rows, static_cast<std::uint64_t>(group));
  });
}

// kNoKey has all bits, and so is not below `groups` in the bits that are looked at either.
template <class Value>
cudaError_t Sort(const SortByGroupLaunch& launch, void* scratch, std::size_t* bytes) {
  const int bits = static_cast<int>(std::bit_width(static_cast<std::uint32_t>(launch.groups)));
  return cub::DeviceRadixSort::SortPairs(
      scratch, *bytes, launch.ids, launch.sorted_ids, static_cast<const Value*>(launch.values),
      static_cast<Value*>(launch.sorted_values), launch.rows, launch.low_bit, bits, launch.stream);
}

cudaError_t SortValues(const SortByGroupLaunch& launch, void* scratch, std::size_t* bytes) {
  switch (launch.value_bytes) {
    case 1:
      return Sort<std::uint8_t>(launch, scratch, bytes);
    case 2:
      return Sort<std::uint16_t>(launch, scratch, bytes);
    case 4:
      return Sort<std::uint32_t>(launch, scratch, bytes);
    default:
      return Sort<std::uint64_t>(launch, scratch, bytes);
  }
}

cudaError_t ClearChecks(GroupChecks* checks, cudaStream_t stream) {
  return cudaMemsetAsync(checks, 0x7f, sizeof(GroupChecks), stream);
}

}  // namespace

cudaError_t LaunchCheckOffsets(const CheckOffsetsLaunch& launch) {
  if (const cudaError_t error = ClearChecks(launch.checks, launch.stream); error != cudaSuccess) return error;
  const unsigned blocks = BlocksForItems(launch.count);
  if (launch.dtype == DType::kI32) {
    CheckOffsetsKernel<std::int32_t><<<blocks, kItemThreads, 0, launch.stream>>>(launch);
  } else {
    CheckOffsetsKernel<std::int64_t><<<blocks, kItemThreads, 0, launch.stream>>>(launch);
  }
  return cudaGetLastError();
}

cudaError_t LaunchCheckKeys(const CheckKeysLaunch& launch) {
  if (const cudaError_t error = ClearChecks(launch.checks, launch.stream); error != cudaSuccess) return error;
  return VisitDType(launch.dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      CheckKeysKernel<T><<<BlocksForItems(launch.rows), kItemThreads, 0, launch.stream>>>(launch);
      return cudaGetLastError();
    } else {
      return cudaErrorInvalidValue;
    }
  });
}

cudaError_t LaunchNumberRows(std::uint32_t* numbers, std::int64_t rows, cudaStream_t stream) {
  NumberRowsKernel<<<BlocksForItems(rows), kItemThreads, 0, stream>>>(numbers, rows);
  return cudaGetLastError();
}

cudaError_t SortByGroupScratch(const SortByGroupLaunch& launch, std::size_t* bytes) {
  *bytes = 0;
  return SortValues(launch, nullptr, bytes);
}

cudaError_t LaunchSortByGroup(const SortByGroupLaunch& launch) {
  std::size_t bytes = launch.scratch_bytes;
  return SortValues(launch, launch.scratch, &bytes);
}

cudaError_t LaunchFindBounds(const FindBoundsLaunch& launch) {
  FindBoundsKernel<<<BlocksForItems(launch.groups + 1), kItemThreads, 0, launch.stream>>>(launch);
  return cudaGetLastError();
}

}  // namespace reduced
