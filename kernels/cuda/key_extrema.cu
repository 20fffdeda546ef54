// Extrema by key: see key_tables.h and key_entries.h. A thread first reads the entry of a group, and changes it only if
// its element is closer to the extremum, which is seldom so after some rows. So that it is seldom so for the blocks
// that have a table each, these begin with what all of them have found among the first rows.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/algebra/dtype.h"
#include "kernels/cuda/each_item.cuh"
#include "kernels/cuda/key_entries.h"
#include "kernels/cuda/key_tables.h"
#include "kernels/cuda/keyed_rows.cuh"
#include "kernels/cuda/sample_rows.cuh"

namespace reduced {
namespace {

constexpr int kSharedThreads = 1024;  // one block of each multiprocessor
constexpr int kGlobalThreads = 256;
constexpr int kGlobalBlocks = 4;  // of each multiprocessor, all of them there at once
constexpr int kQuadsAtOnce = 2;
constexpr int kFirstPart = 16;  // blocks tell each other what they found in one of so many parts of the rows
constexpr int kQuadsForParts = 1 << 20;

__device__ inline unsigned long long LoadRelaxedShared(const unsigned long long* address) {
  unsigned long long value;
  asm volatile("ld.relaxed.cta.shared.u64 %0, [%1];"
               : "=l"(value)
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(address)))
               : "memory");
  return value;
}

// What a thread adds to: in shared or in global memory.
template <bool kShared>
struct Extrema {
  unsigned long long* entries[2];
  unsigned* counts;
  unsigned* nans;

  __device__ static unsigned long long Load(const unsigned long long* entry) {
    if constexpr (kShared) return LoadRelaxedShared(entry);
    return LoadRelaxed(entry);
  }
  // Raises an entry that was `seen`. Shared memory has no maximum of 64 bits; this ends once another thread's is
  // greater.
  __device__ static void Raise(unsigned long long* entry, unsigned long long seen, unsigned long long value) {
    if constexpr (kShared) {
      while (value > seen) {
        const unsigned long long before = atomicCAS(entry, seen, value);
        if (before == seen) return;
        seen = before;
      }
    } else if (value > seen) {
      atomicMax(entry, value);
    }
  }

  // Few rows change an entry of their group after some: all others take as few instructions as that needs.
  template <int kBytes>
  __device__ __forceinline__ void Add(const KeyTablesLaunch& launch, const Quad<kBytes>& quad,
                                      const std::uint32_t (&group)[kQuadRows]) const {
    if (counts != nullptr || nans != nullptr) {
#pragma unroll
      for (int k = 0; k < kQuadRows; ++k) {
        if (group[k] == kNoGroup) continue;
        AddRow<kBytes>(*this, launch, quad.elements.At(k), static_cast<std::uint32_t>(quad.first + k), group[k]);
      }
      return;
    }
    typename QuickExtremum<kBytes>::Key key[kQuadRows];
    bool nan[kQuadRows], skips[kQuadRows];
#pragma unroll
    for (int k = 0; k < kQuadRows; ++k) {
      key[k] = KeyOf<kBytes>(quad.elements.At(k), launch.elements);
      nan[k] = IsNanKey<kBytes>(key[k], launch.elements);
      skips[k] = group[k] == kNoGroup || (nan[k] && launch.elements.omit_nan);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (entries[i] == nullptr) continue;
      // The entries of all are on their way before the first is looked at.
      unsigned long long before[kQuadRows];
#pragma unroll
      for (int k = 0; k < kQuadRows; ++k) before[k] = skips[k] ? ~0ULL : Load(entries[i] + group[k]);
#pragma unroll
      for (int k = 0; k < kQuadRows; ++k) {
        const auto row = static_cast<std::uint32_t>(quad.first + k);
        const std::uint64_t entry = EntryOf<kBytes>(key[k], nan[k], i == 1, row);
        if (kBytes == 8 && entry == 0 && !skips[k]) {
          SetKeyFlag(launch.table, group[k], i == 0 ? kKeyLowestIsZero : kKeyHighestIsZero);
        }
        Raise(entries[i] + group[k], before[k], entry);
      }
    }
  }

 private:
  // As PreparedWord() has it, of elements and not their absolute values.
  template <int kBytes>
  __device__ static typename QuickExtremum<kBytes>::Key KeyOf(WordOfBytes<kBytes> word, const QuickElements& of) {
    if constexpr (kBytes == 1) {
      word = PreparedWord(word, of);  // of bool, too
    } else {
      word ^= static_cast<WordOfBytes<kBytes>>(of.flip);
    }
    return QuickExtremum<kBytes>::KeyOf(word, of);
  }

  // Where NaNs or elements are counted. Not inlined, so that what nearly all rows take fits the cache of instructions.
  template <int kBytes>
  __device__ __noinline__ static void AddRow(const Extrema to, const KeyTablesLaunch& launch, WordOfBytes<kBytes> word,
                                             std::uint32_t row, std::uint32_t group) {
    const auto key = KeyOf<kBytes>(word, launch.elements);
    const bool nan = IsNanKey<kBytes>(key, launch.elements);
    if (nan && to.nans != nullptr) atomicAdd(to.nans + group, 1U);
    if (nan && launch.elements.omit_nan) return;
    if (to.counts != nullptr) atomicAdd(to.counts + group, 1U);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (to.entries[i] == nullptr) continue;
      const std::uint64_t entry = EntryOf<kBytes>(key, nan, i == 1, row);
      if (kBytes == 8 && entry == 0) {
        SetKeyFlag(launch.table, group, i == 0 ? kKeyLowestIsZero : kKeyHighestIsZero);
      }
      Raise(to.entries[i] + group, Load(to.entries[i] + group), entry);
    }
  }
};

template <int kBytes>
__global__ void __launch_bounds__(kSharedThreads)
    SharedExtremaKernel(const __grid_constant__ KeyTablesLaunch launch, const QuadPlan plan) {
  extern __shared__ unsigned long long entries[];
  const KeyTable& table = launch.table;
  const auto groups = static_cast<unsigned>(table.groups);
  Extrema<true> extrema{};
  unsigned long long* next = entries;
  for (int i = 0; i < 2; ++i) {
    if (table.extrema[i] == nullptr) continue;
    extrema.entries[i] = next;
    next += groups;
  }
  auto* words = reinterpret_cast<unsigned*>(next);
  if (table.counts != nullptr) {
    extrema.counts = words;
    words += groups;
  }
  if (table.nans != nullptr) {
    extrema.nans = words;
    words += groups;
  }
  for (auto* word = reinterpret_cast<unsigned*>(next) + threadIdx.x; word < words; word += kSharedThreads) *word = 0;
  // What a launch before has found.
  for (int i = 0; i < 2; ++i) {
    if (extrema.entries[i] == nullptr) continue;
    for (unsigned at = threadIdx.x; at < groups; at += kSharedThreads) {
      extrema.entries[i][at] = LoadRelaxed(reinterpret_cast<const unsigned long long*>(table.extrema[i]) + at);
    }
  }
  __syncthreads();
  ForEachQuad<kBytes, kQuadsAtOnce>(
      launch, plan, [] { return false; },
      [&](const Quad<kBytes>& quad, std::uint32_t(&group)[kQuadRows]) {
        extrema.template Add<kBytes>(launch, quad, group);
      });
  __syncthreads();
  const auto begin = static_cast<unsigned>(std::uint64_t{groups} * blockIdx.x / gridDim.x);  // another in each block
  for (unsigned at = threadIdx.x; at < groups; at += kSharedThreads) {
    const unsigned group = at + begin < groups ? at + begin : at + begin - groups;
    for (int i = 0; i < 2; ++i) {
      if (extrema.entries[i] == nullptr) continue;
      auto* const entry = reinterpret_cast<unsigned long long*>(table.extrema[i]) + group;
      if (LoadRelaxed(entry) < extrema.entries[i][group]) atomicMax(entry, extrema.entries[i][group]);
    }
    if (extrema.counts != nullptr && extrema.counts[group] != 0) {
      atomicAdd(table.counts + group, extrema.counts[group]);
    }
    if (extrema.nans != nullptr && extrema.nans[group] != 0) atomicAdd(table.nans + group, extrema.nans[group]);
  }
}

template <int kBytes>
__global__ void __launch_bounds__(kGlobalThreads, kGlobalBlocks)
    GlobalExtremaKernel(const __grid_constant__ KeyTablesLaunch launch, const QuadPlan plan) {
  const KeyTable& table = launch.table;
  if (IsSkewed(launch.header->pairs, table)) return;
  Extrema<false> extrema{};
  for (int i = 0; i < 2; ++i) extrema.entries[i] = reinterpret_cast<unsigned long long*>(table.extrema[i]);
  extrema.counts = table.counts;
  extrema.nans = table.nans;
  ForEachQuad<kBytes, kBytes == 8 ? 1 : kQuadsAtOnce>(
      launch, plan, [] { return false; },
      [&](const Quad<kBytes>& quad, std::uint32_t(&group)[kQuadRows]) {
        extrema.template Add<kBytes>(launch, quad, group);
      });
}

// Of elements of 64 bits: finds the first row that has the entry of its group.
__global__ void __launch_bounds__(kGlobalThreads, kGlobalBlocks)
    FindRowsKernel(const __grid_constant__ KeyTablesLaunch launch, const QuadPlan plan) {
  constexpr int kBytes = 8;
  const KeyTable& table = launch.table;
  if (!launch.shared && IsSkewed(launch.header->pairs, table)) return;
  ForEachQuad<kBytes, 1>(
      launch, plan, [] { return false; },
      [&](const Quad<kBytes>& quad, std::uint32_t(&group)[kQuadRows]) {
#pragma unroll
        for (int k = 0; k < kQuadRows; ++k) {
          if (group[k] == kNoGroup) continue;
          const auto key =
              QuickExtremum<kBytes>::KeyOf(PreparedWord(quad.elements.At(k), launch.elements), launch.elements);
          const bool nan = IsNanKey<kBytes>(key, launch.elements);
          if (nan && launch.elements.omit_nan) continue;
          const auto row = static_cast<std::uint32_t>(quad.first + k);
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            if (table.at[i] == nullptr || EntryOf<kBytes>(key, nan, i == 1, row) != table.extrema[i][group[k]])
              continue;
            if (row < LoadRelaxed(table.at[i] + group[k])) atomicMin(table.at[i] + group[k], row);
          }
        }
      });
}

unsigned GlobalBlocks(const KeyTablesLaunch& launch, const QuadPlan& plan) {
  return static_cast<unsigned>(
      std::clamp<std::int64_t>(plan.quads / kGlobalThreads, 1, std::int64_t{kGlobalBlocks} * launch.multiprocessors));
}

template <int kBytes>
cudaError_t Launch(const KeyTablesLaunch& launch) {
  const QuadPlan plan = QuadsOf(launch);
  cudaError_t error = cudaSuccess;
  if (launch.shared) {
    const auto bytes = static_cast<int>(SharedBytesOf(launch.table));
    error = AllowShared(launch, SharedExtremaKernel<kBytes>);
    if (error != cudaSuccess) return error;
    const auto blocks = static_cast<unsigned>(std::clamp<std::int64_t>(plan.quads / (kQuadsAtOnce * kSharedThreads), 1,
                                                                       std::int64_t{launch.multiprocessors}));
    QuadPlan part = plan;
    if (plan.quads >= kQuadsForParts) {
      part.quads = plan.quads / kFirstPart;
      SharedExtremaKernel<kBytes><<<blocks, kSharedThreads, bytes, launch.stream>>>(launch, part);
      part.begin = part.quads;
      part.quads = plan.quads;
    }
    SharedExtremaKernel<kBytes><<<blocks, kSharedThreads, bytes, launch.stream>>>(launch, part);
  } else {
    error = LaunchSampleRows(launch, KeyTablesLaunch::kSamples);
    if (error != cudaSuccess) return error;
    GlobalExtremaKernel<kBytes><<<GlobalBlocks(launch, plan), kGlobalThreads, 0, launch.stream>>>(launch, plan);
  }
  error = cudaGetLastError();
  const bool positions = launch.table.at[0] != nullptr || launch.table.at[1] != nullptr;
  if (error != cudaSuccess || kBytes != 8 || !positions) return error;
  FindRowsKernel<<<GlobalBlocks(launch, plan), kGlobalThreads, 0, launch.stream>>>(launch, plan);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchKeyExtrema(const KeyTablesLaunch& launch) {
  switch (RowOf(launch.elements.dtype).bytes) {
    case 1:
      return Launch<1>(launch);
    case 2:
      return Launch<2>(launch);
    case 4:
      return Launch<4>(launch);
    default:
      return Launch<8>(launch);
  }
}

}  // namespace reduced
