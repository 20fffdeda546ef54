// The kernel of quick_slices.h for short rows, for any fold.
#ifndef REDUCED_KERNELS_CUDA_QUICK_STAGED_ROWS_CUH_
#define REDUCED_KERNELS_CUDA_QUICK_STAGED_ROWS_CUH_

#include <cstdint>

#include "kernels/cuda/copy_to_shared.cuh"
#include "kernels/cuda/quick_tiles.cuh"

namespace reduced {

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

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_QUICK_STAGED_ROWS_CUH_
