// Fingerprints on a CUDA device: the launch that evaluates the polynomials of stretches of words, at both bases.
#ifndef REDUCED_KERNELS_CUDA_FINGERPRINT_H_
#define REDUCED_KERNELS_CUDA_FINGERPRINT_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/algebra/polynomial.h"
#include "kernels/cuda/many_arrays.h"

namespace reduced {

// Blocks take turns at tiles of so many bytes, which are 16-byte aligned; the first one begins at or before a stretch.
inline constexpr int kFingerprintTileBytes = 32 << 10;

struct FingerprintLaunch {
  static constexpr std::int64_t kMostStretches = 65'535;

  const std::byte* data = nullptr;  // device memory, aligned to the size of a word
  int word_bytes = 4;               // 1, 2 or 4
  std::int64_t bytes = 0;           // of a stretch, > 0 and whole words; stretches lie end to end
  std::int64_t stretches = 1;       // 1 to kMostStretches
  int blocks = 1;                   // of a stretch, >= 1
  // If it has blocks: pieces of words, in the place of stretches, each as a stretch of one block.
  ManyPieces table{};
  // Memory that the device can write, `blocks` for each stretch. Number b of a stretch is, for each base a, the sum of
  // w_j a^(j - b T) over the words that block b had, where T are the words of a tile and j counts from the beginning of
  // the first tile.
  Residues* sums = nullptr;
  cudaStream_t stream = nullptr;
};

// What a launch found of the words at `data`, whose powers count from the beginning of their vector: as powers that
// count from them.
Residues FromFirstWord(const Residues& sum, const void* data, int word_bytes);

// How many blocks a stretch is to have, of `stretches` at once.
int FingerprintBlocks(std::int64_t bytes, std::int64_t stretches, int multiprocessors);

// Asynchronous; returns the first error of its launches.
cudaError_t LaunchFingerprint(const FingerprintLaunch& launch);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_FINGERPRINT_H_
