// How two arrays are compared at the rate of memory: most pairs are of equal bits, which takes an operation for each 32
// bits, and one or two more to see that they are finite. A thread looks at pairs one by one only in vectors of 16 bytes
// that have others. Compiled without contraction.
//
// Bytes and operations: a pair of f32 has 8 bytes, and an H200 issues about 50 instructions in the time that they come
// from memory; a pair that differs takes more than twice as many, and narrower ones no fewer.
#include <algorithm>

#include "kernels/cuda/compare.h"
#include "kernels/cuda/device_reduce.cuh"
#include "kernels/cuda/tile_extrema.cuh"
#include "kernels/cuda/vector16.cuh"

namespace reduced {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kBlocks = 3;    // of a multiprocessor
constexpr int kInFlight = 2;  // vectors of each array

// Words of elements, which are taken apart where they are looked at.
using Words = Vector16<unsigned>;

// 16 bytes at any address, of neighbours that are all there.
__device__ inline Words LoadAnywhere(const std::byte* from) {
  const auto beyond = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(from) % 16);
  const auto* const at = reinterpret_cast<const uint4*>(from - beyond);
  if (beyond == 0) return LoadOnce<unsigned>(at);
  const uint4 first = __ldg(at), second = __ldg(at + 1);
  const unsigned raw[8] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
  unsigned word[5];
#pragma unroll
  for (int i = 0; i < 5; ++i) {  // selected, so that they stay in registers
    const unsigned low = (beyond & 4) != 0 ? raw[i + 1] : raw[i], high = (beyond & 4) != 0 ? raw[i + 3] : raw[i + 2];
    word[i] = (beyond & 8) != 0 ? high : low;
  }
  Words words;
#pragma unroll
  for (int i = 0; i < 4; ++i) words.element[i] = __funnelshift_r(word[i], word[i + 1], 8 * (beyond % 4));
  return words;
}

// Whether all pairs are of finite elements with equal bits.
template <class T>
__device__ inline bool AreEqual(const Words& x, const Words& y) {
  unsigned differ = 0, largest = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const unsigned word = x.element[i];
    differ |= word ^ y.element[i];
    if constexpr (kIsFloat<T> && sizeof(T) == 2) largest = Max2<false>(largest, word & 0x7fff7fffu);
    if constexpr (kIsFloat<T> && sizeof(T) == 4) largest = max(largest, word & 0x7fffffffu);
    if constexpr (kIsFloat<T> && sizeof(T) == 8) largest = max(largest, i % 2 == 1 ? word & 0x7fffffffu : 0);
  }
  bool finite = true;
  if constexpr (kIsFloat<T>) {
    constexpr auto kInfinity = static_cast<unsigned>(FloatFormat<T>::kInfinity >> (sizeof(T) == 8 ? 32 : 0));
    finite = sizeof(T) == 2 ? (largest & 0xffffu) < kInfinity && largest >> 16 < kInfinity : largest < kInfinity;
  }
  return differ == 0 && finite;
}

__device__ inline bool Precedes(const ComparedPairs::Record& a, const ComparedPairs::Record& b) {
  return a.rank != b.rank ? a.rank < b.rank : a.index < b.index;
}

template <class T>
__device__ inline std::uint64_t BitsOf(T x) {
  std::uint64_t bits = 0;
  memcpy(&bits, &x, sizeof(x));
  return bits;
}

template <class T>
__global__ void __launch_bounds__(kThreads, kBlocks) CompareKernel(const __grid_constant__ CompareLaunch launch) {
  constexpr int kElements = Vector16<T>::kElements;
  const auto* const x = static_cast<const T*>(launch.x);
  const auto* const y = static_cast<const T*>(launch.y);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  PairFigures<T> figures;
  bool full = launch.room == 0;
  const auto add = [&](T a, T b, std::int64_t index) {
    if (!figures.Add(a, b, index, launch.rules) || full) return;
    const unsigned long long at = atomicAdd(launch.gathered, 1ULL);
    full = at >= launch.room;
    if (full) return;
    static_cast<T*>(launch.gathered_x)[at] = a;
    static_cast<T*>(launch.gathered_y)[at] = b;
  };
  // Vectors are those of x. If y has others, what is loaded for the first and the last one would be beyond it.
  const auto beyond = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(x) % 16 / sizeof(T));
  std::int64_t head = beyond == 0 ? 0 : kElements - beyond;
  const bool shifted = reinterpret_cast<std::uintptr_t>(y + head) % 16 != 0;
  head = min(launch.count, shifted ? head + kElements : head);
  const std::int64_t vectors = max(std::int64_t{0}, (launch.count - head) / kElements - (shifted ? 1 : 0));
  if (blockIdx.x + 1 < gridDim.x) {
    const std::int64_t step = std::int64_t{gridDim.x - 1} * kThreads;
    // The lanes of a warp go through the loop together: one that went on alone would wait for memory alone.
    const std::int64_t first = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
    for (std::int64_t v = first; v - lane < vectors; v += kInFlight * step) {
      Words of_x[kInFlight] = {}, of_y[kInFlight] = {};
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        if (v + i * step >= vectors) continue;
        const std::int64_t at = head + (v + i * step) * kElements;
        of_x[i] = LoadOnce<unsigned>(reinterpret_cast<const uint4*>(x + at));
        of_y[i] = LoadAnywhere(reinterpret_cast<const std::byte*>(y + at));
      }
      bool equal = true;
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) equal &= AreEqual<T>(of_x[i], of_y[i]);
      if (equal && v < vectors) figures.AddEqual(head + v * kElements);
#pragma unroll 1
      for (int i = 0; !equal && i < kInFlight && v + i * step < vectors; ++i) {
        Words pair[2] = {of_x[0], of_y[0]};
#pragma unroll
        for (int j = 1; j < kInFlight; ++j) {  // selected, so that they stay in registers
          if (j == i) pair[0] = of_x[j], pair[1] = of_y[j];
        }
        Forget(pair);
        Vector16<T> one, other;
        memcpy(&one, &pair[0], sizeof(one));
        memcpy(&other, &pair[1], sizeof(other));
        const std::int64_t at = head + (v + i * step) * kElements;
#pragma unroll
        for (int e = 0; e < kElements; ++e) add(one.element[e], other.element[e], at + e);
      }
      __syncwarp();
    }
  } else {  // what is no vector
    for (std::int64_t i = threadIdx.x; i < launch.count - vectors * kElements; i += kThreads) {
      const std::int64_t at = i < head ? i : i + vectors * kElements;
      add(x[at], y[at], at);
    }
  }

  __shared__ ComparedPairs block;
  __shared__ ComparedPairs::Record of_warp[kComparisonRecords][kWarps];
  if (threadIdx.x == 0) block = ComparedPairs{};
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kPairCounts; ++i) {
    const unsigned count = __reduce_add_sync(kFullWarp, figures.count[i]);
    if (lane == 0 && count != 0) atomicAdd(&block.count[i], static_cast<unsigned long long>(count));
  }
  if constexpr (!kIsFloat<T>) {
#pragma unroll
    for (int i = 0; i < figures.kDigits; ++i) {
      unsigned long long sum = figures.squares[i];
      for (int lanes = 1; lanes < kWarpSize; lanes *= 2) sum += __shfl_xor_sync(kFullWarp, sum, lanes);
      if (lane == 0 && sum != 0) atomicAdd(&block.squares[i], sum);
    }
  }
#pragma unroll
  for (int r = 0; r < static_cast<int>(kComparisonRecords); ++r) {
    ComparedPairs::Record record = figures.record(r);
    for (int lanes = 1; lanes < kWarpSize; lanes *= 2) {
      const ComparedPairs::Record other = {__shfl_xor_sync(kFullWarp, record.rank, lanes),
                                           __shfl_xor_sync(kFullWarp, record.index, lanes)};
      if (Precedes(other, record)) record = other;
    }
    if (lane == 0) of_warp[r][warp] = record;
  }
  __syncthreads();
  if (threadIdx.x < kComparisonRecords) {
    ComparedPairs::Record record = of_warp[threadIdx.x][0];
    for (int w = 1; w < kWarps; ++w) {
      if (Precedes(of_warp[threadIdx.x][w], record)) record = of_warp[threadIdx.x][w];
    }
    if (record.index != ComparedPairs::kNone) {
      record.x = BitsOf(x[record.index]);
      record.y = BitsOf(y[record.index]);
    }
    block.record[threadIdx.x] = record;
  }
  __syncthreads();
  if (threadIdx.x == 0) launch.out[blockIdx.x] = block;
}

}  // namespace

int CompareBlocks(DType dtype, std::int64_t count, int multiprocessors) {
  constexpr std::int64_t kLeastBytes = std::int64_t{8} * kThreads * 16;  // of a block, at least: it has figures to join
  const std::int64_t wanted = count * RowOf(dtype).bytes / kLeastBytes;
  return static_cast<int>(std::clamp<std::int64_t>(wanted, 1, std::int64_t{kBlocks} * multiprocessors)) + 1;
}

cudaError_t LaunchCompare(const CompareLaunch& launch) {
  return VisitPairType(launch.dtype, [&]<class T>(T) {
    CompareKernel<T><<<static_cast<unsigned>(launch.blocks), kThreads, 0, launch.stream>>>(launch);
    return cudaGetLastError();
  });
}

}  // namespace reduced
