// How kernels read rows with keys: four neighbours at a time, the elements and the keys by loads of up to 16 bytes
// where they are aligned. A key is read once, since others may change it, and checked before it is used.
#ifndef REDUCED_KERNELS_CUDA_KEYED_ROWS_CUH_
#define REDUCED_KERNELS_CUDA_KEYED_ROWS_CUH_

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/group_elements.cuh"
#include "kernels/cuda/key_tables.h"

namespace reduced {

// What other threads change by atomic operations meanwhile.
__device__ inline std::uint32_t LoadRelaxed(const std::uint32_t* address) {
  std::uint32_t value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}
__device__ inline unsigned long long LoadRelaxed(const unsigned long long* address) {
  unsigned long long value;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
  return value;
}

inline constexpr int kQuadRows = 4;
inline constexpr std::uint32_t kNoGroup = ~std::uint32_t{0};

// Quad q has rows 4 q - head and the three that follow, as far as there are such.
struct QuadPlan {
  int head = 0;  // such that the elements of a quad are aligned
  bool aligned_keys = false;
  int key_bytes = 4;
  bool signed_keys = false;
  int rows = 0;
  int quads = 0;
};
inline QuadPlan QuadsOf(const KeyTablesLaunch& launch) {
  const DTypeRow& element = RowOf(launch.elements.dtype);
  const DTypeRow& key = RowOf(launch.key_dtype);
  const auto behind = [](const void* at, std::int64_t bytes) {  // the last multiple of what a load takes
    return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(at) % std::min<std::uintptr_t>(16, 4 * bytes));
  };
  QuadPlan plan{.key_bytes = key.bytes, .signed_keys = key.is_signed, .rows = static_cast<int>(launch.rows)};
  plan.head = static_cast<int>(behind(launch.array.data, element.bytes)) / element.bytes;
  plan.aligned_keys = behind(static_cast<const std::byte*>(launch.keys) - plan.head * key.bytes, key.bytes) == 0;
  plan.quads = static_cast<int>((launch.rows + plan.head + kQuadRows - 1) / kQuadRows);
  return plan;
}

// Four elements of kBytes, as they lie in memory.
template <int kBytes>
struct FourElements {
  unsigned word[kBytes];

  __device__ void LoadAll(const std::byte* aligned) {
    if constexpr (kBytes == 1) {
      word[0] = __ldcs(reinterpret_cast<const unsigned*>(aligned));
    } else if constexpr (kBytes == 2) {
      const uint2 two = __ldcs(reinterpret_cast<const uint2*>(aligned));
      word[0] = two.x;
      word[1] = two.y;
    } else {
#pragma unroll
      for (int i = 0; i < kBytes; i += 4) {
        const uint4 four = __ldcs(reinterpret_cast<const uint4*>(aligned) + i / 4);
        word[i] = four.x;
        word[i + 1] = four.y;
        word[i + 2] = four.z;
        word[i + 3] = four.w;
      }
    }
  }
  // Element k, which is at `at`, beside others; words begin as zeros.
  __device__ void LoadOne(const std::byte* at, int k) {
    if constexpr (kBytes == 1) {
      word[0] |= unsigned{__ldcs(reinterpret_cast<const unsigned char*>(at))} << (8 * k);
    } else if constexpr (kBytes == 2) {
      word[k / 2] |= unsigned{__ldcs(reinterpret_cast<const unsigned short*>(at))} << (16 * (k % 2));
    } else if constexpr (kBytes == 4) {
      word[k] = __ldcs(reinterpret_cast<const unsigned*>(at));
    } else {
      const uint2 two = __ldcs(reinterpret_cast<const uint2*>(at));
      word[2 * k] = two.x;
      word[2 * k + 1] = two.y;
    }
  }
  __device__ WordOfBytes<kBytes> At(int k) const {
    if constexpr (kBytes == 8) {
      return std::uint64_t{word[2 * k + 1]} << 32 | word[2 * k];
    } else {
      return static_cast<WordOfBytes<kBytes>>(word[k * kBytes / 4] >> (8 * (k * kBytes % 4)));
    }
  }
};

template <int kBytes>
__device__ __forceinline__ void LoadFour(const void* array, int first, int rows, bool whole,
                                         FourElements<kBytes>* four) {
  const auto* const at = static_cast<const std::byte*>(array) + std::int64_t{first} * kBytes;
  if (whole) return four->LoadAll(at);
#pragma unroll
  for (unsigned& word : four->word) word = 0;
#pragma unroll
  for (int k = 0; k < kQuadRows; ++k) {
    if (first + k >= 0 && first + k < rows) four->LoadOne(at + k * kBytes, k);
  }
}

template <int kBytes>
struct Quad {
  int first = 0;  // row
  FourElements<kBytes> elements;
  unsigned keys[kQuadRows];  // those of 64 bits as 32, or kNoGroup

  __device__ __forceinline__ void Load(const KeyTablesLaunch& launch, const QuadPlan& plan, int number) {
    first = kQuadRows * number - plan.head;
    const bool whole = first >= 0 && first + kQuadRows <= plan.rows;
    LoadFour<kBytes>(launch.array.data, first, plan.rows, whole, &elements);
    const bool keys_whole = whole && plan.aligned_keys;
    switch (plan.key_bytes) {
      case 1:
        return LoadKeys<1>(launch.keys, plan.rows, keys_whole);
      case 2:
        return LoadKeys<2>(launch.keys, plan.rows, keys_whole);
      case 4:
        return LoadKeys<4>(launch.keys, plan.rows, keys_whole);
      default:
        return LoadKeys<8>(launch.keys, plan.rows, keys_whole);
    }
  }

  // The groups of the rows. kNoGroup: none, as the row is masked or not there, or its key is outside, which is noted
  // unless such rows are dropped.
  __device__ __forceinline__ void Groups(const KeyTablesLaunch& launch, const QuadPlan& plan,
                                         std::uint32_t (&group)[kQuadRows]) const {
#pragma unroll
    for (int k = 0; k < kQuadRows; ++k) {
      if (plan.key_bytes >= 4) {  // a negative key is beyond all groups
        group[k] = keys[k];
      } else if (plan.key_bytes == 2) {
        const unsigned key = keys[k / 2] >> (16 * (k % 2)) & 0xffff;
        group[k] = plan.signed_keys ? static_cast<unsigned>(static_cast<int>(static_cast<short>(key))) : key;
      } else {
        const unsigned key = keys[0] >> (8 * k) & 0xff;
        group[k] = plan.signed_keys ? static_cast<unsigned>(static_cast<int>(static_cast<signed char>(key))) : key;
      }
    }
    const auto groups = static_cast<std::uint32_t>(launch.table.groups);
    const bool anywhere = launch.array.mask == nullptr && first >= 0 && first + kQuadRows <= plan.rows;
#pragma unroll
    for (int k = 0; k < kQuadRows; ++k) {
      if (group[k] < groups && anywhere) continue;
      const int row = first + k;
      const bool there = row >= 0 && row < plan.rows && Keeps(launch.array, row);
      if (there && group[k] < groups) continue;
      group[k] = kNoGroup;
      if (there && !launch.drop) NoteBad(launch, row);
    }
  }

 private:
  template <int kKeyBytes>
  __device__ __forceinline__ void LoadKeys(const void* array, int rows, bool whole) {
    FourElements<kKeyBytes> four;
    LoadFour<kKeyBytes>(array, first, rows, whole, &four);
#pragma unroll
    for (int i = 0; i < (kKeyBytes < kQuadRows ? kKeyBytes : kQuadRows); ++i) {
      keys[i] = four.word[i];
      if constexpr (kKeyBytes == 8) keys[i] = four.word[2 * i + 1] == 0 ? four.word[2 * i] : kNoGroup;
    }
  }
  __device__ static void NoteBad(const KeyTablesLaunch& launch, int row) {
    const auto from_end = static_cast<unsigned long long>(launch.rows - row);
    auto* const bad = reinterpret_cast<unsigned long long*>(&launch.header->bad);
    if (LoadRelaxed(bad) < from_end) atomicMax(bad, from_end);
  }
};

// Calls f with all quads, of which each thread of the grid loads a few before the first is taken. stop(): none is
// taken any more.
template <int kBytes, int kAtOnce, class Stop, class Function>
__device__ __forceinline__ void ForEachQuad(const KeyTablesLaunch& launch, const QuadPlan& plan, Stop stop,
                                            Function f) {
  const int step = static_cast<int>(gridDim.x * blockDim.x);
  for (int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); at < plan.quads; at += kAtOnce * step) {
    const bool stops = stop();
    Quad<kBytes> quad[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (at + i * step < plan.quads) quad[i].Load(launch, plan, at + i * step);
    }
    if (stops) return;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (at + i * step >= plan.quads) continue;
      std::uint32_t group[kQuadRows];
      quad[i].Groups(launch, plan, group);
      f(quad[i], group);
    }
  }
}

// Sets a group's flag, which is seldom not set already.
__device__ inline void SetKeyFlag(const KeyTable& table, std::uint32_t group, std::uint32_t flag) {
  std::uint32_t* const word = table.flags + (group >> 2);
  const std::uint32_t bit = flag << (8 * (group & 3));
  if ((LoadRelaxed(word) & bit) == 0) atomicOr(word, bit);
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_KEYED_ROWS_CUH_
