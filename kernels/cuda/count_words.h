// How many elements of 16 bits have each of the 65,536 values, of an array on a CUDA device.
#ifndef REDUCED_KERNELS_CUDA_COUNT_WORDS_H_
#define REDUCED_KERNELS_CUDA_COUNT_WORDS_H_

#include <cuda_runtime.h>

#include <cstdint>

namespace reduced {

inline constexpr int kWordValues = 1 << 16;

// A plain struct, which kernels add to.
struct WordCounts {
  unsigned long long counts[kWordValues] = {};  // by the bits of an element
  unsigned long long counted = 0;               // elements
  unsigned first = 0;                           // the value that the counters of the first pass begin with
};

struct CountWordsLaunch {
  const void* data = nullptr;          // elements, aligned to their size
  std::int64_t count = 0;              // of them, > 0
  WordCounts* out = nullptr;           // device memory, zeros
  std::int64_t most_shared_bytes = 0;  // that a block can have
  int multiprocessors = 0;
  cudaStream_t stream = nullptr;
};
// Asynchronous; returns the first error of its launches.
cudaError_t LaunchCountWords(const CountWordsLaunch& launch);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_COUNT_WORDS_H_
