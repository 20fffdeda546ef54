// The polynomials of fingerprints (folds/fingerprint_tiles.h), by the tensor cores' products of bytes.
//
// A word is a sum of bytes, and a power of a base modulo p has 8 limbs of 8 bits, so that a polynomial is a sum of
// products of bytes: byte k of a stretch times limb l of 2^(8 (k % word)) a^(k / word), which a matrix multiplication
// adds up for all limbs of both bases. Only the limbs differ by the size of words. A warp takes a tile of kSteps
// vectors of 512 bytes: each thread loads 16 bytes of a vector, and each four threads have two rows of the matrix, of
// 32 bytes. Every step of a tile has limbs of its own, which stay in registers, so that sums of limbs become residues
// once in a tile. Tiles are taken from the last one to the first, by Horner's rule.
//
// Operations: 512 bytes take two multiplications of 16 x 32 by 32 x 8 bytes, and a thread 4 products modulo p for each
// 128 bytes, some 3 instructions for each 4 bytes. An H200 issues about 25 of them in the time that 4 bytes come from
// memory.
#include <algorithm>

#include "kernels/cuda/fingerprint.h"
#include "kernels/cuda/vector16.cuh"

namespace reduced {
namespace {

constexpr unsigned kFullWarp = ~0U;
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kBlocks = 2;  // of a multiprocessor, as many as have the registers
constexpr int kSteps = 8;
constexpr int kStepBytes = 32 * 16;
constexpr int kWarpTileBytes = kSteps * kStepBytes;
static_assert(kWarps * kWarpTileBytes == kFingerprintTileBytes);
constexpr int kBases = static_cast<int>(kPolynomialBases.size());
constexpr int kRowBytes = 8;  // between the two rows of a thread, whose bytes alternate

// The second factors of a tile, as each lane has them: four limbs of neighbouring bytes in a word.
struct Limbs {
  unsigned word[kSteps][kBases][2][32];
};

constexpr Limbs LimbsFor(int word_bytes) {
  Limbs limbs{};
  Residues step{1, 1};  // the power of the first byte of a vector
  for (int s = 0; s < kSteps; ++s) {
    Residues power = step;
    for (int byte = 0; byte < kStepBytes; ++byte) {
      const int bit = 8 * (byte % word_bytes);
      const int quarter = byte / 16, half = byte / 4 % 4;
      for (int b = 0; byte < 64 && half < 2 && b < kBases; ++b) {
        const std::uint64_t weight = ResidueOfProduct(power[static_cast<std::size_t>(b)], std::uint64_t{1} << bit);
        for (int limb = 0; limb < 8; ++limb) {
          limbs.word[s][b][half][4 * limb + quarter] |= static_cast<unsigned>(weight >> (8 * limb) & 0xff)
                                                        << (8 * (byte % 4));
        }
      }
      if (byte % word_bytes == word_bytes - 1) power = MultipliedAndAdded(power, kPolynomialBases, {});
    }
    step = power;
  }
  return limbs;
}

__device__ constexpr Limbs kLimbs[] = {LimbsFor(1), LimbsFor(2), LimbsFor(4)};

// Powers by which sums are joined.
struct JoinPowers {
  Residues row;      // of kRowBytes
  Residues rows[3];  // of 64, 128 and 256 bytes
  Residues warp;     // of a warp's tile
  Residues stride;   // of the tiles of all blocks
};

// Numbers below 2^62 with the same residue.
__device__ inline std::uint64_t Folded(std::uint64_t x) { return (x & kPrime) + (x >> kPrimeBits); }
// x < 2^62, power < p; some more, below 2^34, is added.
__device__ inline std::uint64_t FoldedProduct(std::uint64_t x, std::uint64_t power, std::uint64_t more) {
  const std::uint64_t low = x * power, high = __umul64hi(x, power);
  return Folded((low & kPrime) + (high << (64 - kPrimeBits) | low >> kPrimeBits) + more);
}

// 16 bytes of which only those from `begin` and before `end` are there; zeros for the others.
__device__ __noinline__ uint4 LoadEdge(const std::byte* from, std::int64_t at, std::int64_t begin, std::int64_t end) {
  unsigned word[4] = {};
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    if (at + i >= begin && at + i < end) word[i / 4] |= static_cast<unsigned>(from[at + i]) << (8 * (i % 4));
  }
  return {word[0], word[1], word[2], word[3]};
}

__device__ inline void MultiplyAndAdd(const Vector16<unsigned>& rows, const unsigned (&limbs)[2], int (&sums)[4]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
      : "r"(rows.element[0]), "r"(rows.element[2]), "r"(rows.element[1]), "r"(rows.element[3]), "r"(limbs[0]),
        "r"(limbs[1]));
}

// Words that blocks have together, of which this one takes every so-many-th tile.
struct Words {
  const std::byte* data;
  std::int64_t bytes;
  unsigned block;
  unsigned blocks;
};

template <bool kMany>
__global__ void __launch_bounds__(kThreads, kBlocks)
    FingerprintKernel(const __grid_constant__ FingerprintLaunch launch, const __grid_constant__ JoinPowers powers) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const Limbs& of_size = kLimbs[launch.word_bytes / 2];
  unsigned limbs[kSteps][kBases][2];
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
#pragma unroll
    for (int b = 0; b < kBases; ++b) {
      for (int h = 0; h < 2; ++h) limbs[s][b][h] = of_size.word[s][b][h][lane];
    }
  }
  const auto add = [&](const Words& words, Residues* left) {
    const auto begin = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(words.data) % 16);
    const std::byte* const from = words.data - begin;
    const std::int64_t end = begin + words.bytes;
    std::uint64_t sum[kBases][2] = {};  // of two rows, and two limbs of each
    const std::int64_t tiles = (end + kWarpTileBytes - 1) / kWarpTileBytes;
    const std::int64_t first = static_cast<std::int64_t>(words.block) * kWarps + warp;
    const std::int64_t stride = static_cast<std::int64_t>(words.blocks) * kWarps;
    for (std::int64_t tile = first + (tiles - 1 - first) / stride * stride; tile >= first && first < tiles;
         tile -= stride) {
      const std::int64_t at = tile * kWarpTileBytes + lane * 16;
      Vector16<unsigned> vectors[kSteps];
      if (tile * kWarpTileBytes >= begin && (tile + 1) * kWarpTileBytes <= end) {
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
          vectors[s] = LoadOnce<unsigned>(reinterpret_cast<const uint4*>(from + at + s * kStepBytes));
        }
      } else {
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
          const uint4 edge = LoadEdge(from, at + s * kStepBytes, begin, end);
          vectors[s] = {edge.x, edge.y, edge.z, edge.w};
        }
      }
      int sums[kBases][4] = {};
      static_assert(std::int64_t{kSteps} * 32 * 255 * 255 < INT32_MAX);
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
#pragma unroll
        for (int b = 0; b < kBases; ++b) MultiplyAndAdd(vectors[s], limbs[s][b], sums[b]);
      }
#pragma unroll
      for (int b = 0; b < kBases; ++b) {
#pragma unroll
        for (int row = 0; row < 2; ++row) {
          const auto low = static_cast<unsigned>(sums[b][2 * row]), high = static_cast<unsigned>(sums[b][2 * row + 1]);
          sum[b][row] = FoldedProduct(sum[b][row], powers.stride[b], low + (static_cast<std::uint64_t>(high) << 8));
        }
      }
    }
    __shared__ std::uint64_t of_warp[kBases][kWarps];
#pragma unroll
    for (int b = 0; b < kBases; ++b) {
      std::uint64_t all = sum[b][0] + FoldedProduct(sum[b][1], powers.row[b], 0);
      all = FoldedProduct(Folded(all), std::uint64_t{1} << (16 * (lane % 4)), 0);  // limbs 2 (lane % 4) and one more
      for (int lanes = 1; lanes < 4; lanes *= 2) all = Folded(all + __shfl_xor_sync(kFullWarp, all, lanes));
      for (int i = 0; i < 3; ++i) {
        const std::uint64_t behind = __shfl_down_sync(kFullWarp, all, 4 << i);
        all = Folded(all + FoldedProduct(behind, powers.rows[i][b], 0));
      }
      if (lane == 0) of_warp[b][warp] = all;
    }
    __syncthreads();
    if (threadIdx.x < kBases) {
      const auto b = static_cast<int>(threadIdx.x);
      std::uint64_t all = 0;
      for (int w = kWarps - 1; w >= 0; --w) all = Folded(FoldedProduct(all, powers.warp[b], 0) + of_warp[b][w]);
      reinterpret_cast<std::uint64_t*>(left)[b] = Residue(all);
    }
  };
  if constexpr (kMany) {
    for (unsigned at = launch.table.first[blockIdx.x]; at < launch.table.first[blockIdx.x + 1]; ++at) {
      const ManyPiece piece = launch.table.pieces[at];
      add({static_cast<const std::byte*>(piece.data), piece.count * launch.word_bytes, 0, 1}, launch.sums + at);
      __syncthreads();  // the sums of warps have been read
    }
  } else {
    add({launch.data + blockIdx.y * launch.bytes, launch.bytes, blockIdx.x, gridDim.x},
        launch.sums + static_cast<std::int64_t>(blockIdx.y) * gridDim.x + blockIdx.x);
  }
}

}  // namespace

int FingerprintBlocks(std::int64_t bytes, std::int64_t stretches, int multiprocessors) {
  const std::int64_t tiles = bytes / kFingerprintTileBytes + 1;
  const std::int64_t most = std::int64_t{kBlocks} * multiprocessors;
  return static_cast<int>(std::clamp<std::int64_t>((most + stretches - 1) / stretches, 1, std::min(tiles, most)));
}

cudaError_t LaunchFingerprint(const FingerprintLaunch& launch) {
  const auto power = [&](std::int64_t bytes) {
    return PowersOfBases(static_cast<std::uint64_t>(bytes / launch.word_bytes));
  };
  const JoinPowers powers = {.row = power(kRowBytes),
                             .rows = {power(64), power(128), power(256)},
                             .warp = power(kWarpTileBytes),
                             .stride = power(std::int64_t{launch.blocks} * kFingerprintTileBytes)};
  if (launch.table.blocks > 0) {
    FingerprintKernel<true><<<static_cast<unsigned>(launch.table.blocks), kThreads, 0, launch.stream>>>(launch, powers);
  } else {
    const dim3 grid(static_cast<unsigned>(launch.blocks), static_cast<unsigned>(launch.stretches));
    FingerprintKernel<false><<<grid, kThreads, 0, launch.stream>>>(launch, powers);
  }
  return cudaGetLastError();
}

}  // namespace reduced
