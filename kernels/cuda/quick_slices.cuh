// The kernels of quick_slices.h, for any fold.
#ifndef REDUCED_KERNELS_CUDA_QUICK_SLICES_CUH_
#define REDUCED_KERNELS_CUDA_QUICK_SLICES_CUH_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/copy_to_shared.cuh"
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
template <class Fold>
inline constexpr bool kOfFloats = requires {
  typename Fold::Float;
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

// As many times as a pack has elements.
template <class Word>
inline constexpr std::uint64_t kEachOfPack = sizeof(Word) == 1   ? 0x01010101
                                             : sizeof(Word) == 2 ? 0x00010001
                                                                 : 1;

// PreparedWord of each. Folds of floats take them as they are.
template <class Fold, class Word, int kElements>
__device__ __forceinline__ void Prepare(const QuickElements& of, QuickTile<Word, kElements>* tile) {
  if constexpr (!kOfFloats<Fold>) {
#pragma unroll
    for (auto& pack : tile->pack) {
      pack ^= static_cast<std::remove_reference_t<decltype(pack)>>(of.flip * kEachOfPack<Word>);
      if (sizeof(Word) == 1 && of.is_bool) pack = __vminu4(pack, 0x01010101U);
    }
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

// Adds kLoads loads of kElements each, of which the first `n` elements are there: in tiles.
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

// Blocks of a multiprocessor that registers are to be enough for.
template <class Fold>
inline constexpr int kRowBlocks = sizeof(Fold) > 32 ? 2 : 3;

// The pack, of whose elements the first `n` are there; those after them are as in `absent`.
template <class Tile>
__device__ __forceinline__ typename Tile::Pack FirstOfPack(typename Tile::Pack pack, int n,
                                                           typename Tile::Pack absent) {
  if (n >= Tile::kPacked) return pack;
  const auto there = n <= 0 ? 0 : (typename Tile::Pack{1} << (n * Tile::kBits)) - 1;
  return (pack & there) | (absent & ~there);
}

// Adds the loads at, at + step, ... < loads of a run to a fold, kLoads of them at once. All of those are loaded, so
// that no load waits for another: where there is no more, the first again. load(i): the i-th of the run, of whose last
// one `missing` elements are not there. first: the position of the run's first element.
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
#pragma unroll
  for (int i = 0; i < kLoads; ++i) Prepare<Fold>(of, &loaded[i]);
  if (n < kLoads * kElements) {
    using Tile = QuickTile<Word, kElements>;
    const auto absent = static_cast<typename Tile::Pack>(Fold::Absent(loaded[0][0], of) * kEachOfPack<Word>);
    // Loads of a pack may be there in part.
    constexpr bool kOnePack = kElements > 1 && kElements == Tile::kPacked;
#pragma unroll
    for (int i = kOnePack ? 0 : 1; i < kLoads; ++i) {
#pragma unroll
      for (auto& pack : loaded[i].pack) {
        if constexpr (kOnePack) {
          pack = FirstOfPack<Tile>(pack, n - i * kElements, absent);
        } else {
          pack = i * kElements < n ? pack : absent;
        }
      }
    }
  }
  AddLoads(loaded, n, QuickPositions<kElements>{first + at * kElements, step * kElements}, of, fold);
}

// Blocks of a multiprocessor that stage rows, which registers are to be enough for.
template <class Fold>
inline constexpr int kStagedRowBlocks = kTakesManyRegisters<Fold> ? 5 : 6;

// The elements that begin at a byte of shared memory, which is a multiple of their size: as many as 4 bytes have. Up to
// 4 bytes after them are read, too.
template <class Word>
__device__ __forceinline__ auto LoadPack(const unsigned* shared, unsigned byte) {
  QuickTile<Word, 4 / sizeof(Word)> tile;
  const unsigned at = byte / 4;
  tile.pack[0] = __funnelshift_r(shared[at], shared[at + 1], byte % 4 * 8);
  return tile;
}

// Short rows that lie end to end: a warp copies tiles of whole rows to shared memory, the next one while it folds one,
// and its lanes share rows there. kElements: of a load, which are 16 bytes if rows are multiples of that; or one, or as
// many as 4 bytes have.
template <class Fold, int kElements, int kLoads>
__global__ void __launch_bounds__(kStagedRowThreads, kStagedRowBlocks<Fold>)
    StagedRowsKernel(const __grid_constant__ QuickLaunch launch) {
  using Word = typename Fold::Word;
  constexpr int kWarps = kStagedRowThreads / kWarpSize;
  constexpr unsigned kChunk = 16;    // bytes of a copy
  extern __shared__ uint4 staged[];  // two tiles of each warp
  const QuickPlan& plan = launch.plan;
  const int tile_chunks = plan.tile_bytes / static_cast<int>(kChunk);
  const int in_warp_lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int lanes = plan.lanes, lane = in_warp_lane & (lanes - 1);  // a power of 2, so that nothing is divided
  const int lanes_log = __ffs(lanes) - 1, rows_at_once = kWarpSize >> lanes_log;
  const std::int64_t outputs = launch.array.outputs;
  const auto run_bytes = static_cast<int>(plan.run * sizeof(Word));
  const int rows_bytes = plan.tile_rows * run_bytes;
  const int pitch = static_cast<int>(plan.run) + plan.padding * static_cast<int>(kChunk / sizeof(Word));
  constexpr bool kPacks = sizeof(Word) < 4 && kElements * sizeof(Word) == 4;
  const auto loads = static_cast<unsigned>((plan.run + kElements - 1) / kElements);
  const int missing = kPacks ? static_cast<int>(loads * kElements - plan.run) : 0;
  const std::int64_t all_bytes = outputs * run_bytes;
  // Of a tile that begins at that byte, those before it in its first chunk: tiles are copied in whole ones.
  const auto skipped = [](std::int64_t begin) { return static_cast<unsigned>(begin) % kChunk; };
  const auto copy = [&](std::int64_t begin, uint4* to) {
    if (begin < all_bytes) {
      const unsigned skip = skipped(begin);
      const std::int64_t left = all_bytes - begin + skip;
      const unsigned wanted = (rows_bytes + skip + kChunk - 1) / kChunk * kChunk;
      const unsigned bytes = left < wanted ? static_cast<unsigned>(left) : wanted, whole = bytes / kChunk * kChunk;
      const auto* const from = static_cast<const unsigned char*>(launch.array.data) + (begin - skip);
      const auto place = [&](unsigned at) {  // where a chunk of the tile goes
        const unsigned chunk = at / kChunk;
        return to + chunk + __umulhi(chunk, plan.row_reciprocal) * plan.padding;
      };
#pragma unroll 2
      for (unsigned at = in_warp_lane * kChunk; at < whole; at += kWarpSize * kChunk) {
        CopyToShared<kChunk>(place(at), from + at, kChunk);
      }
      // The array's last elements, if they are no whole chunk.
      const unsigned last = whole + in_warp_lane * static_cast<unsigned>(sizeof(Word));
      if (last < bytes) {
        reinterpret_cast<Word*>(place(whole))[in_warp_lane] = *reinterpret_cast<const Word*>(from + last);
      }
    }
    EndCopies();
  };
  const std::int64_t warp = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpSize;
  const std::int64_t warps = std::int64_t{gridDim.x} * kWarps;
  std::int64_t begin = warp * rows_bytes;
  uint4* buffer = staged + threadIdx.x / kWarpSize * 2 * tile_chunks;
  uint4* next = buffer + tile_chunks;
  copy(begin, buffer);
  for (std::int64_t first_output = warp * plan.tile_rows; first_output < outputs;
       first_output += warps * plan.tile_rows) {
    const unsigned first_byte = skipped(begin);
    begin += warps * rows_bytes;
    copy(begin, next);
    AwaitCopies<1>();
    __syncwarp();
    const auto rows_left = static_cast<int>(min(std::int64_t{plan.tile_rows}, outputs - first_output));
    const auto* const words = reinterpret_cast<const Word*>(buffer) + first_byte / sizeof(Word);
    for (int row = in_warp_lane >> lanes_log; row < plan.tile_rows; row += rows_at_once) {
      const bool mine = row < rows_left;
      Fold fold;
      if (mine) {
        const auto load = [&](unsigned i) {
          if constexpr (kPacks) {
            return LoadPack<Word>(reinterpret_cast<const unsigned*>(buffer), first_byte + row * run_bytes + i * 4);
          } else {
            return LoadTile<kElements>(words + row * pitch + i * kElements, ReadShared());
          }
        };
        for (auto at = static_cast<unsigned>(lane); at < loads; at += kLoads * lanes) {
          AddTile<kLoads, Fold, kElements>(at, lanes, loads, missing, 0, load, launch.elements, &fold);
        }
      }
      MergeLanes(lanes, &fold);
      if (mine && lane == 0) FinishOutput(launch, first_output + row, fold);
    }
    __syncwarp();
    uint4* const folded = buffer;
    buffer = next;
    next = folded;
  }
}

// Rows of which a warp merges the folds together.
template <class Fold>
inline constexpr int kMostRowsTogether = sizeof(Fold) > 32 ? 2 : 4;

// Rows, or parts of them, of runs of neighbours: `lanes` lanes each, kLoads loads of a lane at once. Lanes leave what
// they have of `together` rows in shared memory, which then as many times fewer lanes of each row merge.
template <class Fold, int kElements, int kLoads>
__global__ void __launch_bounds__(kQuickThreads, kRowBlocks<Fold>)
    RowsKernel(const __grid_constant__ QuickLaunch launch) {
  using Word = typename Fold::Word;
  constexpr int kTogether = kMostRowsTogether<Fold>;
  __shared__ alignas(16) unsigned char shared[kTogether * kQuickThreads * sizeof(Fold)];
  const QuickPlan& plan = launch.plan;
  const int lanes = plan.lanes, together = min(plan.together, kTogether);
  const int in_warp_lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int lanes_log = __ffs(lanes) - 1, in_warp = kWarpSize >> lanes_log;
  const int lane = in_warp_lane & (lanes - 1), group = in_warp_lane >> lanes_log;
  auto* const left = reinterpret_cast<Fold*>(shared) + threadIdx.x / kWarpSize * kTogether * kWarpSize;
  const std::int64_t warp = (std::int64_t{blockIdx.x} * kQuickThreads + threadIdx.x) / kWarpSize;
  const std::int64_t warps = std::int64_t{gridDim.x} * kQuickWarps;
  const std::int64_t units = launch.array.outputs * plan.parts;
  const auto loads = static_cast<unsigned>(plan.run / kElements);
  const auto step = static_cast<unsigned>(lanes);
  const unsigned run_tiles = (loads + kLoads * step - 1) / (kLoads * step);
  const auto runs = static_cast<unsigned>(launch.array.elements / plan.run);
  const std::int64_t tiles = std::int64_t{run_tiles} * runs;
  const std::int64_t part_tiles = (tiles + plan.parts - 1) / plan.parts;
  const auto fold_unit = [&](std::int64_t unit) {
    Fold fold;
    if (unit >= units) return fold;
    const std::int64_t output = plan.parts == 1 ? unit : unit / plan.parts;
    const std::int64_t part = unit - output * plan.parts;
    const auto* const data =
        static_cast<const Word*>(launch.array.data) + QuickOffsetOf(launch.array.kept, output, launch.array.kept.count);
    const std::int64_t end = min(tiles, (part + 1) * part_tiles);
    for (std::int64_t tile = part * part_tiles; tile < end; ++tile) {
      const unsigned run = runs == 1 ? 0 : static_cast<unsigned>(tile) / run_tiles;
      const unsigned at = (static_cast<unsigned>(tile) - run * run_tiles) * kLoads * step + lane;
      if (at >= loads) continue;
      const Word* from = data;
      if (runs != 1) from += QuickOffsetOf(launch.array.reduced, run, launch.array.reduced.count - 1);
      const auto load = [&](unsigned i) {
        return LoadTile<kElements>(from + std::int64_t{i} * kElements, ReadGlobal());
      };
      AddTile<kLoads, Fold, kElements>(at, step, loads, 0, run * static_cast<unsigned>(plan.run), load, launch.elements,
                                       &fold);
    }
    return fold;
  };
  const auto finish = [&](std::int64_t unit, const Fold& fold) {
    if (unit >= units) return;
    if (plan.parts == 1) {
      FinishOutput(launch, unit, fold);
    } else {
      reinterpret_cast<Fold*>(launch.folds)[unit] = fold;
    }
  };
  const std::int64_t at_once = std::int64_t{together} * in_warp;
  for (std::int64_t first = warp * at_once; first < units; first += warps * at_once) {
    if (together == 1) {
      Fold fold = fold_unit(first + group);
      MergeLanes(lanes, &fold);
      if (lane == 0) finish(first + group, fold);
      continue;
    }
    for (int i = 0; i < together; ++i) left[i * kWarpSize + in_warp_lane] = fold_unit(first + i * in_warp + group);
    __syncwarp();
    // Lane by lane: `merging` lanes a row, of which each has the folds of `together` lanes.
    const int merging = lanes / together, row = in_warp_lane / merging;
    const Fold* const mine = left + row * lanes + in_warp_lane % merging;
    Fold fold = mine[0];
    for (int i = 1; i < together; ++i) fold.Merge(mine[i * merging]);
    __syncwarp();
    MergeLanes(merging, &fold);
    if (in_warp_lane % merging == 0) finish(first + row, fold);
  }
}

// Blocks of a multiprocessor that have columns, which registers are to be enough for.
template <class Fold, int kLoads>
inline constexpr int kColumnBlocks = kLoads < QuickRowsAtOnce(sizeof(typename Fold::Word)) &&
                                             !kTakesManyRegisters<Fold> && !kOfFloats<Fold>
                                         ? 3
                                         : 2;

// Columns: kElements neighbouring ones of a thread, which walks down kLoads rows at once, as do the other row_warps - 1
// warps of the block that have the same columns. Threads have all columns of all positions of the outer kept
// dimensions, one after the other.
template <class Fold, int kElements, int kLoads>
__global__ void __launch_bounds__(kQuickThreads, kColumnBlocks<Fold, kLoads>)
    ColumnsKernel(const __grid_constant__ QuickLaunch launch) {
  using Word = typename Fold::Word;
  __shared__ alignas(16) unsigned char shared[kQuickThreads * sizeof(Fold)];
  auto* const left = reinterpret_cast<Fold*>(shared);
  const QuickPlan& plan = launch.plan;
  const SliceArray& array = launch.array;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int share = warp % plan.row_warps;
  const std::int64_t columns = plan.width * plan.fold, outer_count = array.outputs / plan.width;
  const std::int64_t loads = columns / kElements;
  const std::int64_t thread =
      (std::int64_t{blockIdx.x} * (kQuickWarps / plan.row_warps) + warp / plan.row_warps) * kWarpSize + lane;
  const bool mine = thread < loads * outer_count;
  const std::int64_t outer = outer_count == 1 ? 0 : thread / loads;
  const std::int64_t column = (thread - outer * loads) * kElements;
  const auto fold_rows = static_cast<unsigned>(plan.fold);
  const auto rows = static_cast<unsigned>(array.elements / plan.fold);  // whole ones
  const auto part_rows = (rows + gridDim.y - 1) / gridDim.y;
  const unsigned end = min(rows, (blockIdx.y + 1) * part_rows);
  Fold folds[kElements];
  if (mine) {
    const auto* const data =
        static_cast<const Word*>(array.data) + QuickOffsetOf(array.kept, outer, array.kept.count - 1) + column;
    // Of column e, which is one of every fold_rows-th row.
    const auto first_row = [&](int e) {
      return fold_rows == 1 ? 0U : static_cast<unsigned>((column + e) / plan.width);
    };
    const bool simple = fold_rows != 1 || array.reduced.count <= 1;
    const std::int64_t row_step = fold_rows != 1 ? columns : array.reduced.count == 1 ? array.reduced.stride[0] : 0;
    const auto step = static_cast<unsigned>(plan.row_warps);
    for (unsigned row = blockIdx.y * part_rows + share; row < end; row += kLoads * step) {
      // All rows are loaded, so that no load waits for another: where there are no more, the first again.
      const int n = row + (kLoads - 1) * step < end ? kLoads : static_cast<int>((end - row + step - 1) / step);
      std::int64_t offsets[kLoads];
      if (simple) {
#pragma unroll
        for (int i = 0; i < kLoads; ++i) offsets[i] = std::int64_t{i < n ? row + i * step : row} * row_step;
      } else {
        const SliceDimensions& reduced = array.reduced;
        const int inner = reduced.count - 1;
        const std::int64_t first = OffsetOfMany(reduced, row, reduced.count);
        const auto in_run = row % static_cast<unsigned>(reduced.size[inner]);
        if (in_run + (kLoads - 1) * step < static_cast<unsigned>(reduced.size[inner])) {  // all are in one run
#pragma unroll
          for (int i = 0; i < kLoads; ++i) offsets[i] = first + (i < n ? i * step : 0) * reduced.stride[inner];
        } else {
#pragma unroll
          for (int i = 0; i < kLoads; ++i) {
            offsets[i] = i > 0 && i < n ? OffsetOfMany(reduced, row + i * step, reduced.count) : first;
          }
        }
      }
      QuickTile<Word, kElements> loaded[kLoads];
#pragma unroll
      for (int i = 0; i < kLoads; ++i) loaded[i] = LoadTile<kElements>(data + offsets[i], ReadGlobal());
#pragma unroll
      for (int i = 0; i < kLoads; ++i) Prepare<Fold>(launch.elements, &loaded[i]);
      if (n < kLoads) {
        QuickTile<Word, kElements> absent{};
#pragma unroll
        for (int e = 0; e < kElements; ++e) absent.Set(e, Fold::Absent(loaded[0][e], launch.elements));
#pragma unroll
        for (int i = 1; i < kLoads; ++i) {
          if (i >= n) loaded[i] = absent;
        }
      }
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        const QuickPositions<1> position{row * fold_rows + first_row(e), step * fold_rows};
        folds[e].Add(TileAcross(loaded, e), n, position, launch.elements);
      }
    }
    // The rows after the last whole one.
    const std::int64_t rest = (array.elements - std::int64_t{rows} * fold_rows) * plan.width;
    if (column < rest && blockIdx.y == gridDim.y - 1 && share == 0) {
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        if (column + e >= rest) break;
        const QuickTile<Word, 1> x = {PreparedWord(data[rows * columns + e], launch.elements)};
        folds[e].Add(x, 1, QuickPositions<1>{rows * fold_rows + first_row(e)}, launch.elements);
      }
    }
  }
  for (int e = 0; plan.row_warps > 1 && e < kElements; ++e) {
    Fold fold;
#pragma unroll
    for (int i = 0; i < kElements; ++i) fold = i == e ? folds[i] : fold;
    if (share != 0) left[threadIdx.x] = fold;
    __syncthreads();
    if (share == 0) {
      for (int other = 1; other < plan.row_warps; ++other) fold.Merge(left[threadIdx.x + other * kWarpSize]);
    }
#pragma unroll
    for (int i = 0; i < kElements; ++i) folds[i] = i == e ? fold : folds[i];
    __syncthreads();
  }
  if (plan.block_folds > 0) {  // few columns: the block merges those of its folds that are of the same one
    if (share == 0) {
#pragma unroll
      for (int e = 0; e < kElements; ++e) left[lane * kElements + e] = folds[e];
    }
    __syncthreads();
    const auto width = static_cast<int>(plan.width);
    const std::int64_t first = std::int64_t{blockIdx.x} * kWarpSize * kElements;
    const auto count = static_cast<int>(min(columns - first, std::int64_t{kWarpSize * kElements}));
    if (static_cast<int>(threadIdx.x) < width) {
      Fold fold;
      const auto skip = static_cast<int>(first % width);
      const int begin = static_cast<int>(threadIdx.x) - skip + (static_cast<int>(threadIdx.x) < skip ? width : 0);
      for (int i = begin; i < count; i += width) fold.Merge(left[i]);
      reinterpret_cast<Fold*>(launch.folds)[(std::int64_t{blockIdx.y} * gridDim.x + blockIdx.x) * width + threadIdx.x] =
          fold;
    }
    return;
  }
  if (!mine || share != 0) return;
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    if (gridDim.y == 1 && plan.fold == 1) {
      FinishOutput(launch, outer * plan.width + column + e, folds[e]);
    } else {
      reinterpret_cast<Fold*>(launch.folds)[(blockIdx.y * outer_count + outer) * columns + column + e] = folds[e];
    }
  }
}

// Merges the folds of each output, by `lanes` lanes.
template <class Fold>
__global__ void __launch_bounds__(kQuickThreads) MergeKernel(const __grid_constant__ QuickLaunch launch, int lanes) {
  const QuickPlan& plan = launch.plan;
  const std::int64_t output = (std::int64_t{blockIdx.x} * kQuickThreads + threadIdx.x) / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const auto* const folds = reinterpret_cast<const Fold*>(launch.folds);
  Fold fold;
  if (output < launch.array.outputs) {
    const std::int64_t outer = output / plan.width, column = output % plan.width;
    for (std::int64_t i = lane; i < plan.folds(); i += lanes) {
      std::int64_t at = output * plan.parts + i;
      if (plan.block_folds > 0) {
        at = i * plan.width + column;
      } else if (plan.columns) {
        const std::int64_t part = i / plan.fold;
        at = (part * launch.array.outputs + outer * plan.width) * plan.fold + (i - part * plan.fold) * plan.width +
             column;
      }
      fold.Merge(folds[at]);
    }
  }
  MergeLanes(lanes, &fold);
  if (lane == 0 && output < launch.array.outputs) FinishOutput(launch, output, fold);
}

template <class Fold>
cudaError_t LaunchFold(const QuickLaunch& launch) {
  using Word = typename Fold::Word;
  constexpr int kVector = 16 / sizeof(Word);
  constexpr int kColumns = std::min(kVector, kMostColumnsAtOnce);
  constexpr std::int64_t kTurns = 4;  // of blocks that have rows
  const QuickPlan& plan = launch.plan;
  const bool vectors = plan.vector_elements > 1;
  const int together = std::min(plan.together, kMostRowsTogether<Fold>);
  const auto rows = [&](auto kernel, std::int64_t units, int at_once) {
    const std::int64_t in_block = std::int64_t{kQuickThreads} / plan.lanes * at_once;
    const std::int64_t blocks =
        std::min((units + in_block - 1) / in_block, kTurns * kRowBlocks<Fold> * launch.multiprocessors);
    kernel<<<static_cast<unsigned>(blocks), kQuickThreads, 0, launch.stream>>>(launch);
  };
  if (plan.columns) {
    const std::int64_t threads = launch.array.outputs * plan.fold / plan.vector_elements;
    const std::int64_t in_block = kQuickThreads / plan.row_warps;
    const dim3 grid(static_cast<unsigned>((threads + in_block - 1) / in_block), static_cast<unsigned>(plan.parts));
    constexpr int kRows = QuickRowsAtOnce(sizeof(Word));
    const bool few_rows = launch.array.elements / plan.fold <= kRows / 2;
    if (vectors && few_rows) {
      ColumnsKernel<Fold, kColumns, kRows / 2><<<grid, kQuickThreads, 0, launch.stream>>>(launch);
    } else if (vectors) {
      ColumnsKernel<Fold, kColumns, kRows><<<grid, kQuickThreads, 0, launch.stream>>>(launch);
    } else {
      ColumnsKernel<Fold, 1, kRows><<<grid, kQuickThreads, 0, launch.stream>>>(launch);
    }
  } else if (plan.tile_rows > 0) {
    const auto staged = [&](auto kernel) {
      constexpr int kWarps = kStagedRowThreads / kWarpSize;
      const std::int64_t tiles = (launch.array.outputs + plan.tile_rows - 1) / plan.tile_rows;
      const std::size_t shared_bytes = std::size_t{2} * kWarps * plan.tile_bytes;
      int resident = 1;  // blocks of a multiprocessor
      if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kStagedRowThreads, shared_bytes) !=
          cudaSuccess) {
        return;  // the error stays
      }
      const std::int64_t blocks = std::min<std::int64_t>((tiles + kWarps - 1) / kWarps,
                                                         std::int64_t{std::max(resident, 1)} * launch.multiprocessors);
      kernel<<<static_cast<unsigned>(blocks), kStagedRowThreads, shared_bytes, launch.stream>>>(launch);
    };
    constexpr int kPack = sizeof(Word) < 4 ? 4 / sizeof(Word) : 1;
    const std::int64_t lane_loads = plan.run / plan.vector_elements / plan.lanes;
    if (plan.vector_elements == kPack) {
      staged(lane_loads < 5 ? &StagedRowsKernel<Fold, kPack, 4> : &StagedRowsKernel<Fold, kPack, 8>);
    } else {
      staged(lane_loads < 3 ? &StagedRowsKernel<Fold, kVector, 1> : &StagedRowsKernel<Fold, kVector, 4>);
    }
  } else if (vectors) {
    rows(&RowsKernel<Fold, kVector, 4>, launch.array.outputs * plan.parts, together);
  } else {
    rows(&RowsKernel<Fold, 1, 8>, launch.array.outputs * plan.parts, together);
  }
  cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess || plan.folds() == 1) return error;
  int lanes = 1;
  while (lanes < kWarpSize && lanes * 4 < plan.folds()) lanes *= 2;
  const std::int64_t blocks = (launch.array.outputs * lanes + kQuickThreads - 1) / kQuickThreads;
  MergeKernel<Fold><<<static_cast<unsigned>(blocks), kQuickThreads, 0, launch.stream>>>(launch, lanes);
  return cudaGetLastError();
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_QUICK_SLICES_CUH_
