#include <algorithm>
#include <limits>
#include <type_traits>

#include "kernels/cuda/strided.h"

namespace reduced {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 8;  // of a multiprocessor

template <class Word>
__device__ Word Load(const std::byte* from, bool aligned) {
  if (aligned) return *reinterpret_cast<const Word*>(from);
  Word word = 0;
  for (unsigned i = 0; i < sizeof(Word); ++i) {
    word = static_cast<Word>(word | static_cast<Word>(static_cast<Word>(from[i]) << (8 * i)));
  }
  return word;
}

template <class Word>
__device__ Word Swapped(Word word) {
  Word swapped = 0;
  for (unsigned i = 0; i < sizeof(Word); ++i) {
    const auto byte = static_cast<Word>(word >> (8 * i) & 0xff);
    swapped = static_cast<Word>(swapped | static_cast<Word>(byte << (8 * (sizeof(Word) - 1 - i))));
  }
  return swapped;
}

// Index: divisions of 64 bits take several times as long.
template <class Word, class Index>
__global__ void __launch_bounds__(kThreads) Gather(const __grid_constant__ GatherLaunch launch, bool aligned) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < launch.count;
       i += threads) {
    auto rest = static_cast<Index>(launch.first + i);
    const std::byte* from = launch.data;
    for (int d = launch.dimensions - 1; d > 0; --d) {
      const auto size = static_cast<Index>(launch.sizes[d]);
      const Index next = rest / size;
      from += static_cast<std::int64_t>(rest - next * size) * launch.strides[d];
      rest = next;
    }
    from += static_cast<std::int64_t>(rest) * launch.strides[0];
    const Word word = Load<Word>(from, aligned);
    static_cast<Word*>(launch.to)[i] = launch.swaps ? Swapped(word) : word;
  }
}

template <class Word>
void Start(const GatherLaunch& launch) {
  auto bits = reinterpret_cast<std::uintptr_t>(launch.data);
  for (int d = 0; d < launch.dimensions; ++d) bits |= static_cast<std::uintptr_t>(launch.strides[d]);
  const bool aligned = bits % sizeof(Word) == 0;
  const std::int64_t blocks = std::min<std::int64_t>((launch.count + kThreads - 1) / kThreads,
                                                     static_cast<std::int64_t>(kBlocks) * launch.multiprocessors);
  const bool narrow = launch.first + launch.count <= std::numeric_limits<unsigned>::max();
  const auto kernel = narrow ? &Gather<Word, unsigned> : &Gather<Word, unsigned long long>;
  kernel<<<static_cast<unsigned>(blocks), kThreads, 0, launch.stream>>>(launch, aligned);
}

}  // namespace

cudaError_t LaunchGather(const GatherLaunch& launch) {
  switch (launch.width) {
    case 1:
      Start<std::uint8_t>(launch);
      break;
    case 2:
      Start<std::uint16_t>(launch);
      break;
    case 4:
      Start<std::uint32_t>(launch);
      break;
    default:
      Start<std::uint64_t>(launch);
  }
  return cudaGetLastError();
}

}  // namespace reduced
