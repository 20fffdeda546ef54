// Elements of a part of an output, as a few threads add them to folds. Where positions are neighbours in the array,
// each thread has loads of 16 bytes, which begin at a multiple of that, and the bits or bytes of a mask for them; the
// elements before and after those are taken one by one. What the kernels of quick_groups.cu and quick_parts.cu share.
#ifndef REDUCED_KERNELS_CUDA_PART_ELEMENTS_CUH_
#define REDUCED_KERNELS_CUDA_PART_ELEMENTS_CUH_

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/few_elements.cuh"
#include "kernels/cuda/group_elements.cuh"
#include "kernels/cuda/groups.h"
#include "kernels/cuda/quick_tiles.cuh"

namespace reduced {

// Blocks of a multiprocessor that registers are to be enough for.
template <class Fold>
inline constexpr int kPartBlocks = sizeof(Fold) > 32 ? 3 : 4;
inline constexpr int kPartLoads = 4;  // of a thread, in flight

// Bit i: whether byte i of the word is not 0.
__device__ __forceinline__ unsigned BitsOfBytes(unsigned word) {
  constexpr unsigned kGather = 1U << 24 | 1U << 17 | 1U << 10 | 1U << 3;  // of byte i the lowest bit to bit 24 + i
  return __vsetne4(word, 0) * kGather >> 24 & 15;
}

// Bit i: whether the mask leaves the element at index + i.
template <int kCount>
__device__ __forceinline__ unsigned KeptOf(const GroupArray& array, std::int64_t index) {
  constexpr unsigned kAll = (1U << kCount) - 1;
  if (array.mask == nullptr) return kAll;
  unsigned kept = 0;
  if (array.mask_bits) {
    const std::int64_t bit = array.first_bit + index;
    const std::uint8_t* const bytes = array.mask + (bit >> 3);
    const int shift = static_cast<int>(bit & 7);
#pragma unroll
    for (int i = 0; i <= (kCount + 6) / 8; ++i) {
      if (8 * i < shift + kCount) kept |= static_cast<unsigned>(__ldg(bytes + i)) << (8 * i);
    }
    return kept >> shift & kAll;
  }
  const std::uint8_t* const bytes = array.mask + index;
  if (reinterpret_cast<std::uintptr_t>(bytes) % kCount == 0) {
    if constexpr (kCount == 2) return BitsOfBytes(__ldg(reinterpret_cast<const unsigned short*>(bytes)));
    if constexpr (kCount >= 4) {
      const auto tile = LoadTile<kCount>(bytes, ReadGlobal());
#pragma unroll
      for (int i = 0; i < kCount / 4; ++i) kept |= BitsOfBytes(tile.pack[i]) << (4 * i);
      return kept;
    }
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) kept |= __ldg(bytes + i) != 0 ? 1U << i : 0;
  return kept;
}

// All bits of the elements of a pack whose bits are set, the first the lowest.
template <class Tile>
__device__ __forceinline__ typename Tile::Pack WhereOfPack(unsigned bits) {
  using Pack = typename Tile::Pack;
  if constexpr (Tile::kPacked == 1) return (bits & 1) != 0 ? ~Pack{0} : Pack{0};
  if constexpr (Tile::kPacked == 2) return ((bits & 3) * 0x8001 & 0x00010001U) * 0xffff;
  return ((bits & 15) * 0x00204081U & 0x01010101U) * 0xff;
}

// The positions of a tile's elements, of which a mask leaves those whose bits are set in `there`. The others get the
// position of the first that it leaves.
template <class Position>
struct PositionsThere {
  Position position;
  unsigned there;

  __device__ std::uint32_t operator()(int i) const {
    return position((there >> i & 1) != 0 ? i : __ffs(static_cast<int>(there)) - 1);
  }
};

// Adds those elements of a tile as it is in memory whose bits are set.
template <class Fold, int kCount, class Position>
__device__ __forceinline__ void AddThere(QuickTile<typename Fold::Word, kCount> tile, unsigned there, Position position,
                                         const QuickElements& of, Fold* fold) {
  using Word = typename Fold::Word;
  using Tile = QuickTile<Word, kCount>;
  using Pack = typename Tile::Pack;
  constexpr int kPacks = sizeof(tile.pack) / sizeof(tile.pack[0]);
  constexpr unsigned kOfPack = (1U << Tile::kPacked) - 1;
  if (there == 0) return;
  Prepare<Fold>(of, &tile);
  Word first{};
  if constexpr (kCountsPadding<Fold>) {  // padding: the first element that the mask leaves
    Pack pack = tile.pack[0];
#pragma unroll
    for (int i = kPacks - 1; i >= 0; --i) pack = (there >> (i * Tile::kPacked) & kOfPack) != 0 ? tile.pack[i] : pack;
    first = static_cast<Word>(pack >> (Tile::kBits * ((__ffs(static_cast<int>(there)) - 1) % Tile::kPacked)));
  }
  const Word padding = Fold::Padding(first, of);
  const auto paddings = static_cast<Pack>(padding * kEachOfPack<Word>);
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const Pack where = WhereOfPack<Tile>(there >> (i * Tile::kPacked));
    tile.pack[i] = (tile.pack[i] & where) | (paddings & ~where);
  }
  fold->Add(tile, kCount, PositionsThere<Position>{position, there}, of);
  if constexpr (kCountsPadding<Fold>) {
    const int n = __popc(there);
    if (n < kCount) fold->Forget(kCount - n, padding, of);
  }
}

// Adds one thread's share, among `threads`, of the elements of a part that the mask leaves; returns how many it added.
template <class Fold, bool kMasked>
__device__ __forceinline__ std::int64_t AddNeighbours(const GroupArray& array, const GroupPart& part, int thread,
                                                      int threads, const QuickElements& of, Fold* fold) {
  using Word = typename Fold::Word;
  constexpr int kElements = 16 / sizeof(Word);
  using Positions = QuickPositions<kElements>;
  const Word* const data = static_cast<const Word*>(array.data) + part.start;
  // [begin, vectors): before the first load of 16 bytes; [rest, end): after the last.
  const auto past = static_cast<int>(reinterpret_cast<std::uintptr_t>(data + part.begin) % 16 / sizeof(Word));
  const std::int64_t vectors = min(part.end, part.begin + (past == 0 ? 0 : kElements - past));
  const auto loads = static_cast<unsigned>((part.end - vectors) / kElements);
  const std::int64_t rest = vectors + std::int64_t{loads} * kElements;
  const auto load = [&](unsigned i) {
    return LoadTile<kElements>(data + vectors + std::int64_t{i} * kElements, ReadGlobal());
  };
  const auto step = static_cast<unsigned>(threads);
  std::int64_t counted = 0;
  for (auto at = static_cast<unsigned>(thread); at < loads; at += kPartLoads * step) {
    if constexpr (!kMasked) {
      AddTile<kPartLoads, Fold, kElements>(at, step, loads, 0, static_cast<std::uint32_t>(vectors), load, of, fold);
    } else {
      constexpr int kTile = std::min(kQuickTile, kPartLoads * kElements);
      constexpr int kLoadsOfTile = kTile / kElements;
      QuickTile<Word, kElements> loaded[kPartLoads];
      unsigned there[kPartLoads];
#pragma unroll
      for (int i = 0; i < kPartLoads; ++i) {
        const unsigned index = at + i * step;
        loaded[i] = load(index < loads ? index : at);
        there[i] = index < loads ? KeptOf<kElements>(array, part.start + vectors + std::int64_t{index} * kElements) : 0;
      }
#pragma unroll
      for (int i = 0; i < kPartLoads; i += kLoadsOfTile) {
        QuickTile<Word, kTile> tile;
        unsigned of_tile = 0;
        constexpr int kPacks = sizeof(loaded[0].pack) / sizeof(loaded[0].pack[0]);
#pragma unroll
        for (int j = 0; j < kLoadsOfTile; ++j) {
          of_tile |= there[i + j] << (j * kElements);
#pragma unroll
          for (int k = 0; k < kPacks; ++k) tile.pack[j * kPacks + k] = loaded[i + j].pack[k];
        }
        counted += __popc(of_tile);
        const auto first = static_cast<std::uint32_t>(vectors) + (at + i * step) * kElements;
        AddThere(tile, of_tile, Positions{first, step * kElements}, of, fold);
      }
    }
  }
  // The ends, to a fold of their own: the others take the first of equal elements to be the first that is added.
  for (int which = thread; which < 2; which += threads) {
    const std::int64_t first = which == 0 ? part.begin : rest, end = which == 0 ? vectors : part.end;
    if (first == end) continue;
    QuickTile<Word, kElements> tile{};
    unsigned there = 0;
#pragma unroll
    for (int i = 0; i < kElements - 1; ++i) {
      if (first + i >= end || !Keeps(array, part.start + first + i)) continue;
      tile.Set(i, data[first + i]);
      there |= 1U << i;
    }
    if constexpr (kMasked) counted += __popc(there);
    Fold few;
    AddThere(tile, there, Positions{static_cast<std::uint32_t>(first), kElements}, of, &few);
    fold->Merge(few);
  }
  return counted;
}

// Likewise, of any part. The returned numbers of all threads add up to that of the elements that the mask leaves.
template <class Fold, Lie kLie>
__device__ __forceinline__ std::int64_t AddPart(const GroupArray& array, const GroupPart& part, int thread, int threads,
                                                const QuickElements& of, Fold* fold) {
  if constexpr (kLie == Lie::kAny) {
    return AddFew(array, part, thread, threads, of, fold);
  } else {
    constexpr bool kMasked = kLie == Lie::kMaskedNeighbours;
    const std::int64_t counted = AddNeighbours<Fold, kMasked>(array, part, thread, threads, of, fold);
    if constexpr (kMasked) return counted;
    return thread == 0 ? part.end - part.begin : 0;
  }
}

// The sum of what `lanes` neighbouring lanes have, a power of 2, by whole warps.
__device__ __forceinline__ std::int64_t SumOfLanes(int lanes, std::int64_t value) {
  for (int distance = lanes >> 1; distance > 0; distance >>= 1) {
    value += __shfl_xor_sync(kFullWarp, value, distance);
  }
  return value;
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_PART_ELEMENTS_CUH_
