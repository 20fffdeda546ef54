// How kernels read rows with keys: four neighbours at a time, the elements and the keys by loads of up to 16 bytes
// where they are aligned. A key is read once, since others may change it, and checked before it is used.
#ifndef REDUCED_KERNELS_CUDA_KEYED_ROWS_CUH_
#define REDUCED_KERNELS_CUDA_KEYED_ROWS_CUH_

#include <algorithm>
#include <cstdint>
#include <type_traits>

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

// Where the compiler does not see that an address is in global memory.
__device__ inline void AddInGlobal(std::uint64_t* address, std::int64_t value) {
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}
__device__ inline void RaiseInGlobal(std::uint64_t* address, std::uint64_t value) {
  asm volatile("red.relaxed.gpu.global.max.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}

// Lets a kernel have all shared memory that a block can have: other threads launch it with more or less.
template <class Kernel>
cudaError_t AllowShared(const KeyTablesLaunch& launch, Kernel kernel) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(launch.most_shared_bytes));
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
  int begin = 0;  // the first quad to take
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

// What is seldom needed is not inlined, so that what always is fits the cache of instructions: rows beyond the first or
// the last one, elements and keys that are not aligned, narrow keys, masks, and keys outside.
template <int kBytes>
__device__ __noinline__ FourElements<kBytes> LoadPartly(const std::byte* at, int first, int rows) {
  FourElements<kBytes> four;
#pragma unroll
  for (unsigned& word : four.word) word = 0;
#pragma unroll
  for (int k = 0; k < kQuadRows; ++k) {
    if (first + k >= 0 && first + k < rows) four.LoadOne(at + k * kBytes, k);
  }
  return four;
}
template <int kBytes>
__device__ __forceinline__ FourElements<kBytes> LoadFour(const void* array, int first, int rows, bool whole) {
  const auto* const at = static_cast<const std::byte*>(array) + std::int64_t{first} * kBytes;
  FourElements<kBytes> four;
  if (whole) {
    four.LoadAll(at);
  } else {
    four = LoadPartly<kBytes>(at, first, rows);
  }
  return four;
}

// Keys as numbers of 32 bits: a negative one is beyond all groups, and so is kNoGroup, which stands for larger ones.
struct FourKeys {
  std::uint32_t key[kQuadRows];
};
template <int kBytes>
__device__ __forceinline__ FourKeys KeysFrom(const FourElements<kBytes>& four, bool is_signed) {
  FourKeys keys;
#pragma unroll
  for (int k = 0; k < kQuadRows; ++k) {
    const auto key = four.At(k);
    if constexpr (kBytes == 8) {
      keys.key[k] = key >> 32 == 0 ? static_cast<std::uint32_t>(key) : kNoGroup;
    } else {
      using Signed = std::make_signed_t<WordOfBytes<kBytes>>;
      keys.key[k] = is_signed ? static_cast<std::uint32_t>(std::int32_t{static_cast<Signed>(key)}) : key;
    }
  }
  return keys;
}
__device__ __noinline__ inline FourKeys LoadNarrowKeys(const void* keys, int bytes, bool is_signed, int first, int rows,
                                                       bool whole) {
  if (bytes == 1) return KeysFrom(LoadFour<1>(keys, first, rows, whole), is_signed);
  return KeysFrom(LoadFour<2>(keys, first, rows, whole), is_signed);
}

__device__ __noinline__ inline FourKeys GroupsOneByOne(const KeyTablesLaunch& launch, FourKeys keys, int first) {
  const auto rows = static_cast<int>(launch.rows);
  for (int k = 0; k < kQuadRows; ++k) {
    const int row = first + k;
    const bool there = row >= 0 && row < rows && Keeps(launch.array, row);
    if (there && keys.key[k] < static_cast<std::uint32_t>(launch.table.groups)) continue;
    keys.key[k] = kNoGroup;
    if (!there || launch.drop) continue;
    const auto from_end = static_cast<std::uint64_t>(rows - row);
    std::uint64_t* const bad = &launch.header->bad;
    if (LoadRelaxed(reinterpret_cast<unsigned long long*>(bad)) < from_end) RaiseInGlobal(bad, from_end);
  }
  return keys;
}

template <int kBytes>
struct Quad {
  int first = 0;  // row
  FourElements<kBytes> elements;
  FourKeys keys;

  __device__ __forceinline__ void Load(const KeyTablesLaunch& launch, const QuadPlan& plan, int number) {
    first = kQuadRows * number - plan.head;
    const bool whole = first >= 0 && first + kQuadRows <= plan.rows;
    elements = LoadFour<kBytes>(launch.array.data, first, plan.rows, whole);
    const bool whole_keys = whole && plan.aligned_keys;
    if (plan.key_bytes == 4) {
      keys = KeysFrom(LoadFour<4>(launch.keys, first, plan.rows, whole_keys), /*is_signed=*/false);
    } else if (plan.key_bytes == 8) {
      keys = KeysFrom(LoadFour<8>(launch.keys, first, plan.rows, whole_keys), /*is_signed=*/false);
    } else {
      keys = LoadNarrowKeys(launch.keys, plan.key_bytes, plan.signed_keys, first, plan.rows, whole_keys);
    }
  }

  // The groups of the rows. kNoGroup: none, as the row is masked or not there, or its key is outside, which is noted
  // unless such rows are dropped.
  __device__ __forceinline__ FourKeys Groups(const KeyTablesLaunch& launch, const QuadPlan& plan) const {
    const auto groups = static_cast<std::uint32_t>(launch.table.groups);
    bool all = launch.array.mask == nullptr && first >= 0 && first + kQuadRows <= plan.rows;
#pragma unroll
    for (int k = 0; k < kQuadRows; ++k) all = all && keys.key[k] < groups;
    return all ? keys : GroupsOneByOne(launch, keys, first);
  }
};

// Calls f with all quads, of which each thread of the grid loads a few before the first is taken. stop(): none is
// taken any more.
template <int kBytes, int kAtOnce, class Stop, class Function>
__device__ __forceinline__ void ForEachQuad(const KeyTablesLaunch& launch, const QuadPlan& plan, Stop stop,
                                            Function f) {
  const int step = static_cast<int>(gridDim.x * blockDim.x);
  for (int at = plan.begin + static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); at < plan.quads;
       at += kAtOnce * step) {
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
      FourKeys groups = quad[i].Groups(launch, plan);
      f(quad[i], groups.key);
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
