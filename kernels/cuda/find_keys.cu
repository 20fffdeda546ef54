// Finds which keys there are, on a CUDA device: by a table that has a place for each key of the range or, where that
// would be too large, by sorting them. Keys may change between two passes: each pass checks that the place of a key is
// in the range before it uses it.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#include <cub/device/device_select.cuh>
#include <cub/version.cuh>
#include <limits>
#include <type_traits>

#include "kernels/algebra/dtype.h"
#include "kernels/cuda/device_reduce.cuh"
#include "kernels/cuda/each_item.cuh"
#include "kernels/cuda/find_groups.h"
#include "kernels/cuda/group_elements.cuh"

namespace reduced {
namespace {

// Keys as unsigned words of their size. XOR with `flip` makes numbers of them that have the order of the keys.
template <class Word>
struct KeysOf {
  const Word* words;
  Word flip;
  std::int64_t rows;
  GroupArray array;

  // The key of a row that is there.
  __device__ std::uint64_t Load(std::int64_t row) const { return words[row] ^ flip; }
};

// Calls f with the keys.
template <class Function>
cudaError_t VisitKeys(const KeysToFind& keys, Function f) {
  return VisitDType(keys.dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      using Word = std::make_unsigned_t<T>;
      constexpr Word kFlip = std::is_signed_v<T> ? Word(Word{1} << (8 * sizeof(Word) - 1)) : Word{0};
      return f(KeysOf<Word>{static_cast<const Word*>(keys.keys), kFlip, keys.rows, keys.array});
    } else {
      return cudaErrorInvalidValue;
    }
  });
}

template <class Word>
__global__ void __launch_bounds__(kItemThreads) KeyRangeKernel(KeysOf<Word> keys, KeyRange* range) {
  unsigned long long least = ~0ULL, greatest = 0;
  ForEachItem(keys.rows, [&](std::int64_t row) {
    if (!KeepsAny(keys.array, row)) return;
    const unsigned long long key = keys.Load(row);
    least = min(least, key);
    greatest = max(greatest, key);
  });
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    least = min(least, __shfl_xor_sync(~0U, least, distance));
    greatest = max(greatest, __shfl_xor_sync(~0U, greatest, distance));
  }
  if (threadIdx.x % kWarpSize != 0 || least > greatest) return;
  atomicMin(reinterpret_cast<unsigned long long*>(&range->least), least);
  atomicMax(reinterpret_cast<unsigned long long*>(&range->greatest), greatest);
}

// A place for each key of a range: 1 where there is one, and then how many there are before it.
struct KeyTable {
  std::uint32_t* places;  // span + 2
  std::uint64_t least;
  std::uint64_t span;

  __device__ bool Has(std::uint64_t place) const { return places[place] != places[place + 1]; }
};

template <class Word>
__global__ void __launch_bounds__(kItemThreads) MarkKeysKernel(KeysOf<Word> keys, KeyTable table) {
  ForEachItem(keys.rows, [&](std::int64_t row) {
    const std::uint64_t place = keys.Load(row) - table.least;
    if (place <= table.span && table.places[place] == 0 && KeepsAny(keys.array, row)) table.places[place] = 1;
  });
}

template <class Word>
__global__ void __launch_bounds__(kItemThreads)
    StoreMarkedKeysKernel(KeyTable table, Word flip, Word* found, std::int64_t* groups) {
  ForEachItem(static_cast<std::int64_t>(table.span + 1), [&](std::int64_t place) {
    if (table.Has(place)) found[table.places[place]] = static_cast<Word>(table.least + place) ^ flip;
  });
  if (blockIdx.x == 0 && threadIdx.x == 0) *groups = table.places[table.span + 1];
}

template <class Word>
__global__ void __launch_bounds__(kItemThreads)
    NumberMarkedKeysKernel(KeysOf<Word> keys, KeyTable table, std::uint32_t* ids) {
  ForEachItem(keys.rows, [&](std::int64_t row) {
    const std::uint64_t place = keys.Load(row) - table.least;
    const bool there = place <= table.span && table.Has(place) && KeepsAny(keys.array, row);
    ids[row] = there ? table.places[place] : kNoKey;
  });
}

// Stores how far each key is beyond the least one. Rows that the mask leaves out, and keys that have left the range,
// get the distance of the greatest key, which is among the keys anyway.
template <class Distance, class Word>
__global__ void __launch_bounds__(kItemThreads)
    StoreDistancesKernel(KeysOf<Word> keys, KeyRange range, Distance* distances) {
  ForEachItem(keys.rows, [&](std::int64_t row) {
    const std::uint64_t distance = keys.Load(row) - range.least;
    const bool there = distance <= range.span() && KeepsAny(keys.array, row);
    distances[row] = static_cast<Distance>(there ? distance : range.span());
  });
}

template <class Distance, class Word>
__global__ void __launch_bounds__(kItemThreads)
    StoreSortedKeysKernel(const Distance* sorted, const std::int64_t* groups, std::uint64_t least, Word flip,
                          Word* found) {
  ForEachItem(*groups, [&](std::int64_t i) { found[i] = static_cast<Word>(least + sorted[i]) ^ flip; });
}

template <class Distance, class Word>
__global__ void __launch_bounds__(kItemThreads)
    NumberSortedKeysKernel(KeysOf<Word> keys, const Distance* sorted, const std::int64_t* groups, KeyRange range,
                           std::uint32_t* ids) {
  const std::int64_t count = *groups;
  ForEachItem(keys.rows, [&](std::int64_t row) {
    const std::uint64_t distance = keys.Load(row) - range.least;
    const std::int64_t at = LowerBound(sorted, count, distance);
    const bool there = at < count && sorted[at] == distance && KeepsAny(keys.array, row);
    ids[row] = there ? static_cast<std::uint32_t>(at) : kNoKey;
  });
}

// CUB before 2.8 counts items in an int.
constexpr std::int64_t kMostItemsOfCub =
    CUB_VERSION < 200800 ? std::numeric_limits<int>::max() : std::numeric_limits<std::int64_t>::max();

bool HasTable(const FindKeysLaunch& launch) {
  constexpr std::uint64_t kPlacesOfRow = 4, kPlaces = 1 << 16;  // what a table takes less time for than sorting
  const std::uint64_t most = kPlacesOfRow * static_cast<std::uint64_t>(launch.keys.rows) + kPlaces;
  return launch.range.span() < std::min<std::uint64_t>(most, kMostItemsOfCub - 1);
}

// Where things are in the scratch memory: `first` and `second`, and then what CUB needs.
struct Scratch {
  static constexpr std::size_t kAlignment = 256;

  std::byte* first = nullptr;
  std::byte* second = nullptr;
  std::byte* cub = nullptr;
  std::size_t cub_bytes = 0;
  std::size_t bytes = 0;

  Scratch(void* memory, std::size_t first_bytes, std::size_t second_bytes, std::size_t of_cub) : cub_bytes(of_cub) {
    const auto place = [&](std::size_t size) {
      std::byte* const at = memory == nullptr ? nullptr : static_cast<std::byte*>(memory) + bytes;
      bytes += (size + kAlignment - 1) / kAlignment * kAlignment;
      return at;
    };
    first = place(first_bytes);
    second = place(second_bytes);
    cub = place(of_cub);
  }
};

std::int64_t PlacesOf(const FindKeysLaunch& launch) { return static_cast<std::int64_t>(launch.range.span()) + 2; }

cudaError_t Count(const FindKeysLaunch& launch, std::uint32_t* places, void* cub, std::size_t* bytes) {
  return cub::DeviceScan::ExclusiveSum(cub, *bytes, places, places, PlacesOf(launch), launch.stream);
}

// Whether 32 bits hold the distance of every key from the least one.
bool IsNear(const FindKeysLaunch& launch) { return launch.range.span() <= std::numeric_limits<std::uint32_t>::max(); }

// distances.Current() gets the sorted ones, by way of distances.Alternate().
template <class Distance>
cudaError_t Sort(const FindKeysLaunch& launch, cub::DoubleBuffer<Distance>& distances, void* cub, std::size_t* bytes) {
  return cub::DeviceRadixSort::SortKeys(cub, *bytes, distances, launch.keys.rows, 0,
                                        static_cast<int>(std::bit_width(launch.range.span())), launch.stream);
}

template <class Distance>
cudaError_t KeepOneOfEach(const FindKeysLaunch& launch, const Distance* sorted, Distance* unique, void* cub,
                          std::size_t* bytes) {
  return cub::DeviceSelect::Unique(cub, *bytes, sorted, unique, launch.groups, launch.keys.rows, launch.stream);
}

template <class Distance>
cudaError_t SortingScratchOf(const FindKeysLaunch& launch, void* memory, Scratch* scratch) {
  std::size_t bytes = 0, more = 0;
  cub::DoubleBuffer<Distance> distances;
  cudaError_t error = Sort(launch, distances, nullptr, &bytes);
  const Distance* const none = nullptr;
  if (error == cudaSuccess) error = KeepOneOfEach<Distance>(launch, none, nullptr, nullptr, &more);
  const std::size_t distance_bytes = static_cast<std::size_t>(launch.keys.rows) * sizeof(Distance);
  *scratch = Scratch(memory, distance_bytes, distance_bytes, std::max(bytes, more));
  return error;
}

// Divides the scratch memory up; if `memory` is null, only its size is set.
cudaError_t ScratchOf(const FindKeysLaunch& launch, void* memory, Scratch* scratch) {
  if (HasTable(launch)) {
    std::size_t bytes = 0;
    const cudaError_t error = Count(launch, nullptr, nullptr, &bytes);
    *scratch = Scratch(memory, static_cast<std::size_t>(PlacesOf(launch)) * sizeof(std::uint32_t), 0, bytes);
    return error;
  }
  return IsNear(launch) ? SortingScratchOf<std::uint32_t>(launch, memory, scratch)
                        : SortingScratchOf<std::uint64_t>(launch, memory, scratch);
}

template <class Word>
cudaError_t FindByTable(const FindKeysLaunch& launch, const KeysOf<Word>& keys, Scratch& scratch) {
  auto* const places = reinterpret_cast<std::uint32_t*>(scratch.first);
  const std::size_t bytes = static_cast<std::size_t>(PlacesOf(launch)) * sizeof(std::uint32_t);
  cudaError_t error = cudaMemsetAsync(places, 0, bytes, launch.stream);
  if (error != cudaSuccess) return error;
  const KeyTable table{places, launch.range.least, launch.range.span()};
  const unsigned blocks = BlocksForItems(keys.rows);
  MarkKeysKernel<<<blocks, kItemThreads, 0, launch.stream>>>(keys, table);
  error = Count(launch, places, scratch.cub, &scratch.cub_bytes);
  if (error != cudaSuccess) return error;
  StoreMarkedKeysKernel<<<BlocksForItems(PlacesOf(launch)), kItemThreads, 0, launch.stream>>>(
      table, keys.flip, static_cast<Word*>(launch.found), launch.groups);
  NumberMarkedKeysKernel<<<blocks, kItemThreads, 0, launch.stream>>>(keys, table, launch.ids);
  return cudaGetLastError();
}

template <class Distance, class Word>
cudaError_t FindBySorting(const FindKeysLaunch& launch, const KeysOf<Word>& keys, Scratch& scratch) {
  cub::DoubleBuffer<Distance> all(reinterpret_cast<Distance*>(scratch.first),
                                  reinterpret_cast<Distance*>(scratch.second));
  const unsigned blocks = BlocksForItems(keys.rows);
  StoreDistancesKernel<<<blocks, kItemThreads, 0, launch.stream>>>(keys, launch.range, all.Current());
  cudaError_t error = Sort(launch, all, scratch.cub, &scratch.cub_bytes);
  if (error == cudaSuccess) {
    error = KeepOneOfEach<Distance>(launch, all.Current(), all.Alternate(), scratch.cub, &scratch.cub_bytes);
  }
  if (error != cudaSuccess) return error;
  const Distance* const found = all.Alternate();
  StoreSortedKeysKernel<<<blocks, kItemThreads, 0, launch.stream>>>(found, launch.groups, launch.range.least, keys.flip,
                                                                    static_cast<Word*>(launch.found));
  NumberSortedKeysKernel<<<blocks, kItemThreads, 0, launch.stream>>>(keys, found, launch.groups, launch.range,
                                                                     launch.ids);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchKeyRange(const KeyRangeLaunch& launch) {
  cudaError_t error = cudaMemsetAsync(&launch.range->least, 0xff, sizeof(launch.range->least), launch.stream);
  if (error == cudaSuccess) {
    error = cudaMemsetAsync(&launch.range->greatest, 0, sizeof(launch.range->greatest), launch.stream);
  }
  if (error != cudaSuccess) return error;
  constexpr unsigned kMostBlocks = 2048;  // few, since every warp of theirs updates the range
  return VisitKeys(launch.keys, [&](const auto& keys) {
    const unsigned blocks = std::min(kMostBlocks, BlocksForItems(keys.rows));
    KeyRangeKernel<<<blocks, kItemThreads, 0, launch.stream>>>(keys, launch.range);
    return cudaGetLastError();
  });
}

bool CanFindKeys(const FindKeysLaunch& launch) { return HasTable(launch) || launch.keys.rows <= kMostItemsOfCub; }

cudaError_t FindKeysScratch(const FindKeysLaunch& launch, std::size_t* bytes) {
  Scratch scratch(nullptr, 0, 0, 0);
  const cudaError_t error = ScratchOf(launch, nullptr, &scratch);
  *bytes = scratch.bytes;
  return error;
}

cudaError_t LaunchFindKeys(const FindKeysLaunch& launch) {
  Scratch scratch(nullptr, 0, 0, 0);
  if (const cudaError_t error = ScratchOf(launch, launch.scratch, &scratch); error != cudaSuccess) return error;
  return VisitKeys(launch.keys, [&]<class Word>(const KeysOf<Word>& keys) {
    if (HasTable(launch)) return FindByTable(launch, keys, scratch);
    if constexpr (sizeof(Word) == 8) {
      if (!IsNear(launch)) return FindBySorting<std::uint64_t>(launch, keys, scratch);
    }
    return FindBySorting<std::uint32_t>(launch, keys, scratch);
  });
}

}  // namespace reduced
