// What the kernels of quick_slices.h, quick_groups.cu and quick_parts.cu share: how elements are read, added to folds
// in tiles, and how folds are merged and answered.
#ifndef REDUCED_KERNELS_CUDA_QUICK_TILES_CUH_
#define REDUCED_KERNELS_CUDA_QUICK_TILES_CUH_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/device_reduce.cuh"
#include "kernels/cuda/quick_slices.h"
#include "kernels/cuda/slice_layout.cuh"

namespace reduced {

inline constexpr int kQuickThreads = 256;
inline constexpr int kQuickWarps = kQuickThreads / kWarpSize;
inline constexpr unsigned kAllLanes = ~0U;
// Elements that a fold takes at once.
inline constexpr int kQuickTile = 16;
// What folds take of registers decides how many blocks a multiprocessor has.
template <class Fold>
inline constexpr bool kTakesManyRegisters = requires {
  Fold::kTakesManyRegisters;
};
// Whether Add counts padding as elements, so that Forget has to take it back.
template <class Fold>
inline constexpr bool kCountsPadding = requires {
  Fold::kCountsPadding;
};
template <class Fold>
inline constexpr bool kOfFloats = requires {
  typename Fold::Float;
};
// Whether a launch may ask for absolute values.
template <class Fold>
inline constexpr bool kTakesAbsolute = requires {
  Fold::kTakesAbsolute;
};

// How words are read from device memory, through the read-only path, and from shared memory.
struct ReadGlobal {
  template <class T>
  __device__ __forceinline__ T operator()(const T* address) const {
    return __ldg(address);
  }
};
struct ReadShared {
  template <class T>
  __device__ __forceinline__ T operator()(const T* address) const {
    return *address;
  }
};
// Elements as they are in memory: kElements neighbours, which are one element or 16 bytes, or 8, or 4.
template <int kElements, class Read, class Word>
__device__ __forceinline__ QuickTile<Word, kElements> LoadTile(const Word* address, Read read) {
  QuickTile<Word, kElements> tile;
  if constexpr (kElements == 1) {
    tile.pack[0] = read(address);
  } else {
    constexpr int kBytes = kElements * sizeof(Word);
    static_assert(kBytes == sizeof(tile) && (kBytes == 4 || kBytes == 8 || kBytes == 16));
    using Raw = std::conditional_t<kBytes == 16, uint4, std::conditional_t<kBytes == 8, uint2, unsigned>>;
    const Raw raw = read(reinterpret_cast<const Raw*>(address));
    memcpy(&tile, &raw, sizeof(tile));
  }
  return tile;
}

// PreparedWord of each element of kTiles tiles. What absolute values take is one branch for all of them, so that other
// launches do not pay for it.
template <class Fold, int kTiles = 1, class Word, int kElements>
__device__ __forceinline__ void Prepare(const QuickElements& of, QuickTile<Word, kElements>* tiles) {
  using Pack = typename QuickTile<Word, kElements>::Pack;
  const auto for_each = [&](auto change) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (Pack& pack : tiles[i].pack) pack = change(pack);
    }
  };
  if constexpr (kTakesAbsolute<Fold>) {
    constexpr auto kMagnitudes =
        static_cast<Pack>(((std::uint64_t{1} << (8 * sizeof(Word) - 1)) - 1) * kEachOfPack<Word>);
    if (of.absolute) {
      for_each([&](Pack pack) { return kOfFloats<Fold> ? pack & kMagnitudes : AbsoluteOf<Word>(pack); });
    }
  }
  if constexpr (!kOfFloats<Fold>) {
    for_each([&](Pack pack) {
      pack ^= static_cast<Pack>(of.flip * kEachOfPack<Word>);
      return sizeof(Word) == 1 && of.is_bool ? static_cast<Pack>(__vminu4(pack, 0x01010101U)) : pack;
    });
  }
}

// OffsetOf, whose divisions take no registers where there is one dimension.
__device__ __noinline__ inline std::int64_t OffsetOfMany(const SliceDimensions& dimensions, std::int64_t index,
                                                         int count) {
  return OffsetOf(dimensions, index, count);
}
__device__ __forceinline__ std::int64_t QuickOffsetOf(const SliceDimensions& dimensions, std::int64_t index,
                                                      int count) {
  if (count > 1) return OffsetOfMany(dimensions, index, count);
  return count == 1 ? index * dimensions.stride[0] : 0;
}

template <class Fold>
__device__ __forceinline__ Fold FoldOfLane(const Fold& fold, int distance) {
  static_assert(sizeof(Fold) % 4 == 0 && sizeof(Fold) <= kQuickFoldBytes);
  unsigned words[sizeof(Fold) / 4];
  memcpy(words, &fold, sizeof(fold));
#pragma unroll
  for (unsigned& word : words) word = __shfl_xor_sync(kAllLanes, word, distance);
  Fold other;
  memcpy(&other, words, sizeof(other));
  return other;
}

// Merges the folds of `lanes` neighbouring lanes, a power of 2, by whole warps.
template <class Fold>
__device__ __forceinline__ void MergeLanes(int lanes, Fold* fold) {
  for (int distance = lanes >> 1; distance > 0; distance >>= 1) {
    if constexpr (requires { fold->plain(); }) {  // nearly all sums are
      if (__all_sync(kAllLanes, fold->plain())) {
        fold->MergePlain([&](double member) { return __shfl_xor_sync(kAllLanes, member, distance); });
        continue;
      }
    }
    fold->Merge(FoldOfLane(*fold, distance));
  }
}

// Answers an output, or says that it is to be redone.
template <class Fold>
__device__ __forceinline__ void FinishOutput(const QuickLaunch& launch, std::int64_t output, const Fold& fold) {
  if (fold.Finish(launch.answers, launch.ops, output, launch.elements)) return;
  const unsigned bit = 1U << (output % 32);
  if ((atomicOr(launch.redo + output / 32, bit) & bit) == 0) atomicAdd(launch.redone, 1ULL);
}

// Element e of as many loads, from load i on, as a pack has elements.
template <class Word, int kElements, int kLoads>
__device__ __forceinline__ auto PackAcross(const QuickTile<Word, kElements> (&loaded)[kLoads], int i, int e) {
  constexpr int kPacked = QuickTile<Word, kElements>::kPacked;
  const auto pack = [&](int load) { return load < kLoads ? loaded[load].pack[e / kPacked] : 0; };
  if constexpr (kPacked == 4) {
    const unsigned pick = static_cast<unsigned>(e % 4 * 0x11 + 0x40);  // of each of two
    return __byte_perm(__byte_perm(pack(i), pack(i + 1), pick), __byte_perm(pack(i + 2), pack(i + 3), pick), 0x5410);
  } else if constexpr (kPacked == 2) {
    return __byte_perm(pack(i), pack(i + 1), e % 2 == 0 ? 0x5410 : 0x7632);
  } else {
    return pack(i);
  }
}

// Element e of each load.
template <class Word, int kElements, int kLoads>
__device__ __forceinline__ QuickTile<Word, kLoads> TileAcross(const QuickTile<Word, kElements> (&loaded)[kLoads],
                                                              int e) {
  QuickTile<Word, kLoads> tile;
#pragma unroll
  for (int i = 0; i < kLoads; i += tile.kPacked) tile.pack[i / tile.kPacked] = PackAcross(loaded, i, e);
  return tile;
}

// Adds kLoads loads of kElements each, in tiles. Elements after the first `n` are padding.
template <class Fold, int kElements, int kLoads>
__device__ __forceinline__ void AddLoads(const QuickTile<typename Fold::Word, kElements> (&loaded)[kLoads], int n,
                                         QuickPositions<kElements> position, const QuickElements& of, Fold* fold) {
  using Word = typename Fold::Word;
  if constexpr (kElements == 1) {
    static_assert(kLoads <= kQuickTile);
    fold->Add(TileAcross(loaded, 0), n, position, of);
  } else {
    constexpr int kAll = kElements * kLoads;
    constexpr int kTile = kAll < kQuickTile ? kAll : kQuickTile;
    static_assert(kAll % kTile == 0 && kTile % kElements == 0);
    constexpr int kPacks = sizeof(loaded[0].pack) / sizeof(loaded[0].pack[0]);
#pragma unroll
    for (int tile = 0; tile < kAll; tile += kTile) {
      if (tile >= n) break;
      QuickTile<Word, kTile> x;
#pragma unroll
      for (int i = 0; i < kTile / kElements * kPacks; ++i) {
        x.pack[i] = loaded[tile / kElements + i / kPacks].pack[i % kPacks];
      }
      fold->Add(x, n - tile < kTile ? n - tile : kTile, position, of);
      position.first += kTile / kElements * position.step;
    }
  }
}

// The pack with its elements after the first `n` replaced by those of `padding`.
template <class Tile>
__device__ __forceinline__ typename Tile::Pack FirstOfPack(typename Tile::Pack pack, int n,
                                                           typename Tile::Pack padding) {
  if (n >= Tile::kPacked) return pack;
  const auto there = n <= 0 ? 0 : (typename Tile::Pack{1} << (n * Tile::kBits)) - 1;
  return (pack & there) | (padding & ~there);
}

// Adds the loads at, at + step, ... < loads of a run to a fold, kLoads of them at once. All of those are loaded, so
// that no load waits for another; beyond the run the first one is loaded again. load(i): the i-th of the run, whose
// last one has `missing` elements of padding. first: the position of the run's first element.
template <int kLoads, class Fold, int kElements, class Load>
__device__ __forceinline__ void AddTile(unsigned at, unsigned step, unsigned loads, int missing, unsigned first,
                                        Load load, const QuickElements& of, Fold* fold) {
  using Word = typename Fold::Word;
  QuickTile<Word, kElements> loaded[kLoads];
  int n = 0;
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const unsigned index = at + i * step;
    loaded[i] = load(index < loads ? index : at);
    n += index < loads ? kElements : 0;
    n -= index == loads - 1 ? missing : 0;
  }
  Prepare<Fold, kLoads>(of, loaded);
  if (n < kLoads * kElements) {
    using Tile = QuickTile<Word, kElements>;
    const auto padding = static_cast<typename Tile::Pack>(Fold::Padding(loaded[0][0], of) * kEachOfPack<Word>);
    // A load of one pack may be padding in part.
    constexpr bool kOnePack = kElements > 1 && kElements == Tile::kPacked;
#pragma unroll
    for (int i = kOnePack ? 0 : 1; i < kLoads; ++i) {
#pragma unroll
      for (auto& pack : loaded[i].pack) {
        if constexpr (kOnePack) {
          pack = FirstOfPack<Tile>(pack, n - i * kElements, padding);
        } else {
          pack = i * kElements < n ? pack : padding;
        }
      }
    }
  }
  AddLoads(loaded, n, QuickPositions<kElements>{first + at * kElements, step * kElements}, of, fold);
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_QUICK_TILES_CUH_
