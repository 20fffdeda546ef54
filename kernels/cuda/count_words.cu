// Counters of 32 bits in shared memory, which the device increments without waiting where lanes have the same one. A
// multiprocessor has room for some eighths of the values only, on an H200 for seven. A sample tells which neighbouring
// eighths have most elements, where the first follows the last: of floats mostly all, as few arrays have the largest
// and the smallest numbers of both signs. One more read counts the rest, if there is any.
#include <algorithm>

#include "kernels/cuda/count_words.h"
#include "kernels/cuda/visit_elements.cuh"

namespace reduced {
namespace {

constexpr int kThreads = 1024;
constexpr int kParts = 8;  // of the values
constexpr int kPart = kWordValues / kParts;
constexpr int kPartBytes = kPart * static_cast<int>(sizeof(unsigned));
constexpr int kSample = 8192;

// Chooses the first of `parts` neighbouring parts.
__global__ void __launch_bounds__(kThreads) ChooseFirst(const __grid_constant__ CountWordsLaunch launch, int parts) {
  __shared__ unsigned sampled[kParts];
  if (threadIdx.x < kParts) sampled[threadIdx.x] = 0;
  __syncthreads();
  const auto* const data = static_cast<const std::uint16_t*>(launch.data);
#pragma unroll
  for (int i = 0; i < kSample / kThreads; ++i) {
    const std::int64_t at = launch.count / kSample * (i * kThreads + static_cast<int>(threadIdx.x));
    atomicAdd(&sampled[data[at] / kPart], 1U);
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  unsigned most = 0;
  for (int first = 0; first < kParts; ++first) {
    unsigned sum = 0;
    for (int part = 0; part < parts; ++part) sum += sampled[(first + part) % kParts];
    if (sum <= most) continue;
    most = sum;
    launch.out->first = static_cast<unsigned>(first * kPart);
  }
}

// Counts the values from number `begin` of those from the first one on, in a circle. All of them have been counted
// where there are as many as elements.
__global__ void __launch_bounds__(kThreads, 1)
    CountWords(const __grid_constant__ CountWordsLaunch launch, unsigned begin, unsigned values) {
  extern __shared__ unsigned table[];
  WordCounts& out = *launch.out;
  __shared__ bool is_done;
  if (threadIdx.x == 0) is_done = begin > 0 && __ldcg(&out.counted) >= static_cast<unsigned long long>(launch.count);
  for (unsigned i = threadIdx.x; i < values; i += kThreads) table[i] = 0;
  __syncthreads();
  if (is_done) return;
  const unsigned first = out.first + begin;
  VisitElements(static_cast<const std::uint16_t*>(launch.data), launch.count, 1,
                [&](std::uint16_t value, bool is_there, std::int64_t) {
                  const unsigned at = (value - first) % kWordValues;
                  if (is_there && at < values) atomicAdd(&table[at], 1U);
                });
  __syncthreads();
  unsigned counted = 0;
  for (unsigned i = threadIdx.x; i < values; i += kThreads) {
    counted += table[i];
    if (table[i] > 0) atomicAdd(&out.counts[(first + i) % kWordValues], static_cast<unsigned long long>(table[i]));
  }
  counted = __reduce_add_sync(~0U, counted);
  __shared__ unsigned long long all;
  if (threadIdx.x == 0) all = 0;
  __syncthreads();
  if (threadIdx.x % 32 == 0) atomicAdd(&all, static_cast<unsigned long long>(counted));
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(&out.counted, all);
}

}  // namespace

cudaError_t LaunchCountWords(const CountWordsLaunch& launch) {
  constexpr std::int64_t kOwnBytes = 64;  // that the kernel has beside the table
  const int parts =
      static_cast<int>(std::clamp<std::int64_t>((launch.most_shared_bytes - kOwnBytes) / kPartBytes, 1, kParts));
  // All that a block can have: other threads launch it with more or less.
  cudaError_t error = cudaFuncSetAttribute(CountWords, cudaFuncAttributeMaxDynamicSharedMemorySize, parts * kPartBytes);
  if (error != cudaSuccess) return error;
  if (parts < kParts && launch.count >= kSample) ChooseFirst<<<1, kThreads, 0, launch.stream>>>(launch, parts);
  constexpr std::int64_t kElements = std::int64_t{64} * kThreads;  // of a block, at least: it has a table to add
  const auto blocks =
      static_cast<int>(std::clamp<std::int64_t>(launch.count / kElements, 1, std::int64_t{launch.multiprocessors}));
  for (int part = 0; part < kParts; part += parts) {
    const int some = std::min(parts, kParts - part);
    CountWords<<<blocks, kThreads, static_cast<std::size_t>(some * kPartBytes), launch.stream>>>(
        launch, static_cast<unsigned>(part * kPart), static_cast<unsigned>(some * kPart));
    error = cudaGetLastError();
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace reduced
