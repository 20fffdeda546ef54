// Sums by key in shared memory. The unit follows from the largest magnitude, which a first launch finds: elements are
// then integers of so few bits that a block's sums fit in 64, which are kept as two words of 32, since those are what
// shared memory adds to by itself. Few groups have several copies of their words, so that the threads of a warp rarely
// wait for each other. At the end each block adds its sums to those in global memory.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/algebra/dtype.h"
#include "kernels/cuda/device_reduce.cuh"
#include "kernels/cuda/exact_terms.cuh"
#include "kernels/cuda/key_tables.h"

namespace reduced {
namespace {

constexpr int kThreads = 512;
constexpr int kBlocks = 4;  // of each multiprocessor
constexpr int kAtOnce = 4;  // loads in flight
constexpr int kMostCopies = 32;

template <class T>
inline constexpr bool kHasTables = sizeof(T) <= 4;

// A finite float as an integer times a power of two.
struct Scaled {
  std::int64_t digits;
  int exponent;
};
template <class T>
__device__ inline Scaled ScaledOf(T x) {
  using E = ExactElement<T>;
  const unsigned pattern = E::PatternOf(x);
  const unsigned field = pattern >> E::kFieldAt;
  const unsigned fraction = pattern & ((1u << E::kFieldAt) - 1);
  const auto magnitude = static_cast<std::int64_t>(field == 0 ? fraction : fraction | 1u << E::kFieldAt);
  return {ToDouble(x) < 0 ? -magnitude : magnitude, static_cast<int>(field == 0 ? 1 : field) - E::kBias - E::kFieldAt};
}

template <class T>
__global__ void __launch_bounds__(kThreads) LargestKernel(KeyTablesLaunch launch) {
  const auto* const data = static_cast<const T*>(launch.data);
  unsigned largest = 0;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < launch.rows;
       i += kAtOnce * std::int64_t{gridDim.x} * kThreads) {
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const std::int64_t row = i + k * std::int64_t{gridDim.x} * kThreads;
      if (row >= launch.rows) continue;
      const T x = data[row];
      if (IsFinite(x)) largest = max(largest, ExactElement<T>::PatternOf(x));
    }
  }
  largest = WarpExtremum<true>(largest);
  if (threadIdx.x % kWarpSize == 0) atomicMax(&launch.header->largest, largest);
}

// The exponent of the unit: such that `rows` elements of the largest magnitude add up to less than 2^62 of it.
template <class T>
__device__ inline int UnitFor(unsigned largest, std::int64_t rows) {
  using E = ExactElement<T>;
  const int field = max(1, static_cast<int>(largest >> E::kFieldAt));
  const int top = field - E::kBias + 1;  // all are below 2^top
  return top - 62 + (64 - __clzll(rows));
}

// Words of a block's copies: the lower and upper halves of sums, and counts.
template <class T>
__global__ void __launch_bounds__(kThreads) KeyTablesKernel(KeyTablesLaunch launch, int copies) {
  extern __shared__ unsigned words[];
  const auto groups = static_cast<unsigned>(launch.groups);
  const unsigned places = groups * static_cast<unsigned>(copies);
  unsigned* const low = words;
  unsigned* const high = words + places;
  unsigned* const counts = words + 2 * places;
  for (unsigned i = threadIdx.x; i < 3 * places; i += kThreads) words[i] = 0;
  __syncthreads();
  const std::int64_t share = (launch.rows + gridDim.x - 1) / gridDim.x;  // a block's rows, at most
  int unit = 0;
  if constexpr (kIsFloat<T>) unit = UnitFor<T>(launch.header->largest, share);
  const std::int64_t begin = blockIdx.x * share;
  const std::int64_t end = min(launch.rows, begin + share);
  const unsigned copy = threadIdx.x % static_cast<unsigned>(copies);
  const auto* const data = static_cast<const T*>(launch.data);
  for (std::int64_t first = begin + threadIdx.x; first < end; first += kAtOnce * kThreads) {
    T x[kAtOnce];
    unsigned id[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const std::int64_t row = first + k * kThreads;
      id[k] = groups;
      if (row >= end) continue;
      id[k] = launch.ids[row];
      x[k] = data[row];
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (id[k] >= groups) continue;
      std::int64_t value = 0;
      if constexpr (kIsFloat<T>) {
        const Scaled scaled = ScaledOf(x[k]);
        const int shift = scaled.exponent - unit;
        // A number of zero bits at the end may be shifted out.
        const bool fits = shift >= 0 || (shift > -32 && (scaled.digits & ((std::int64_t{1} << -shift) - 1)) == 0);
        if (!IsFinite(x[k]) || ExactElement<T>::IsNegativeZero(x[k]) || (!fits && scaled.digits != 0)) {
          const unsigned at = atomicAdd(&launch.header->listed, 1u);
          if (at < KeyTablesLaunch::kMostListed) launch.listed[at] = {ToDouble(x[k]), id[k]};
          continue;
        }
        value = scaled.digits == 0 ? 0 : shift >= 0 ? scaled.digits << shift : scaled.digits >> -shift;
      } else {
        value = static_cast<std::int64_t>(ToInteger(x[k]));
      }
      const unsigned place = id[k] * static_cast<unsigned>(copies) + copy;
      const auto lower = static_cast<unsigned>(value);
      auto upper = static_cast<unsigned>(value >> 32);
      if (atomicAdd(low + place, lower) > ~lower) ++upper;
      if (upper != 0) atomicAdd(high + place, upper);
      atomicAdd(counts + place, 1u);
    }
  }
  __syncthreads();
  for (unsigned group = threadIdx.x; group < groups; group += kThreads) {
    unsigned long long lower = 0, count = 0;
    long long upper = 0;
    for (unsigned i = group * copies; i < (group + 1) * copies; ++i) {
      lower += low[i];
      upper += static_cast<int>(high[i]);
      count += counts[i];
    }
    if (count == 0) continue;
    atomicAdd(&launch.sums[group].low, lower);
    atomicAdd(reinterpret_cast<unsigned long long*>(&launch.sums[group].high), static_cast<unsigned long long>(upper));
    atomicAdd(&launch.sums[group].count, count);
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) launch.header->unit = unit;
}

template <class T>
cudaError_t Launch(const KeyTablesLaunch& launch) {
  cudaError_t error = cudaMemsetAsync(launch.header, 0, sizeof(KeyTablesHeader), launch.stream);
  if (error != cudaSuccess) return error;
  error = cudaMemsetAsync(launch.sums, 0, launch.groups * sizeof(KeySum), launch.stream);
  if (error != cudaSuccess) return error;
  const auto blocks = static_cast<unsigned>(
      std::clamp<std::int64_t>(launch.rows / (kAtOnce * kThreads), 1, std::int64_t{kBlocks} * launch.multiprocessors));
  if constexpr (kIsFloat<T>) {
    LargestKernel<T><<<blocks, kThreads, 0, launch.stream>>>(launch);
    error = cudaGetLastError();
    if (error != cudaSuccess) return error;
  }
  const auto room = static_cast<unsigned>(KeyTablesLaunch::kMostGroups / launch.groups);
  const int copies = std::min<int>(kMostCopies, static_cast<int>(std::bit_floor(room)));
  const std::size_t bytes = 3 * sizeof(unsigned) * static_cast<std::size_t>(launch.groups) * copies;
  KeyTablesKernel<T><<<blocks, kThreads, bytes, launch.stream>>>(launch, copies);
  return cudaGetLastError();
}

}  // namespace

bool HasKeyTables(DType dtype) {
  return VisitDType(dtype, []<class T>(std::type_identity<T>) { return kHasTables<T>; });
}

cudaError_t LaunchKeyTables(const KeyTablesLaunch& launch) {
  return VisitDType(launch.dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (kHasTables<T>) {
      return Launch<T>(launch);
    } else {
      return cudaErrorInvalidValue;
    }
  });
}

}  // namespace reduced
