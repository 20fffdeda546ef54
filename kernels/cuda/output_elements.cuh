// How the elements of short outputs get from device memory to the threads that select their quantiles: see
// quantiles.cu.
#ifndef REDUCED_KERNELS_CUDA_OUTPUT_ELEMENTS_CUH_
#define REDUCED_KERNELS_CUDA_OUTPUT_ELEMENTS_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/copy_to_shared.cuh"
#include "kernels/cuda/group_elements.cuh"
#include "kernels/cuda/quantiles.h"

namespace reduced {

// How elements get from device memory to threads.
enum class ElementPath : std::uint8_t {
  kDirect,  // they are neighbours
  kSpan,    // a block copies the whole span of its outputs, which lie end to end, to shared memory
  kEach,    // a block copies each of them to shared memory
};

// Which outputs a launch selects from, and how.
struct OutputShare {
  std::int64_t shortest = -1;  // those of more positions
  std::int64_t longest = 0;    // and of at most so many
  int width = 1;               // threads of an output
  ElementPath path = ElementPath::kDirect;
  bool vectors = false;  // outputs begin and end at multiples of 16 bytes
  // Of ElementPath::kEach:
  bool in_order = false;  // elements lie at a constant distance, and none is masked
  bool masked = false;
  bool across = false;  // neighbouring threads copy elements of neighbouring outputs
  int copiers = 1;      // threads that copy those of one output
  int pitch = 0;        // places for the elements of an output in shared memory
};

// Where a thread finds the elements of its output: in the array, or in a copy in shared memory.
template <class Word>
struct ThreadElements {
  const Word* data = nullptr;
  const bool* there = nullptr;  // which elements count; null: all of them
  int end = 0;
  // Lanes begin at different elements, whose order is of no interest, so that they read different banks.
  int turn = 0;

  __device__ bool Load(int at, Word* raw) const {
    if (at >= end) return false;
    at += turn;
    if (at >= end) at -= end;
    *raw = data[at];
    return there == nullptr || there[at];
  }
  __device__ bool LoadVector(int at, uint4* raw) const {
    constexpr int kOfVector = 16 / sizeof(Word);
    const int vectors = end / kOfVector;
    if (at >= vectors) return false;
    at += turn;
    if (at >= vectors) at -= vectors;
    *raw = reinterpret_cast<const uint4*>(data)[at];
    return true;
  }
};

// Copies the `bytes` from `from` on to shared memory, and returns where the first of them is.
__device__ inline std::byte* CopySpan(const std::byte* from, std::int64_t bytes, std::byte* to) {
  const auto beyond = static_cast<int>(reinterpret_cast<std::uintptr_t>(from) % 16);
  const std::byte* const begin = from - beyond;  // of the same allocation, which begins at a multiple of more
  const auto all = static_cast<int>(bytes) + beyond;
  for (int i = 16 * static_cast<int>(threadIdx.x); i < all; i += 16 * static_cast<int>(blockDim.x)) {
    if (all - i >= 16) {
      CopyToShared<16>(to + i, begin + i, 16);
    } else {
      for (int at = i; at < all; ++at) to[at] = begin[at];
    }
  }
  EndCopies();
  AwaitCopies<0>();
  __syncthreads();
  return to + beyond;
}

// Copies the elements of the outputs of a block to shared memory. With masked elements, `there` says which count.
template <class Word>
__device__ void CopyEach(const QuantilesLaunch& launch, const OutputShare& share, const GroupPart* parts, int outputs,
                         Word* to, bool* there) {
  constexpr int kInFlight = 8;
  const int thread = static_cast<int>(threadIdx.x);
  const int first = share.across ? thread % outputs : thread / share.copiers;
  const int begin = share.across ? thread / outputs : thread % share.copiers;
  const GroupArray& array = launch.array;
  for (int output = first; output < outputs; output += static_cast<int>(blockDim.x) / share.copiers) {
    const GroupPart part = parts[output];
    const auto end = static_cast<int>(part.end);
    Word* const copy = to + output * share.pitch;
    if (share.in_order) {
      const std::int64_t stride = array.reduced.count == 0 ? 1 : array.reduced.stride[0];
      const Word* const from = static_cast<const Word*>(array.data) + part.start;
      for (int i = begin; i < end; i += kInFlight * share.copiers) {
        Word some[kInFlight];
#pragma unroll
        for (int f = 0; f < kInFlight; ++f) {
          const int at = i + f * share.copiers;
          if (at >= end) break;
          if constexpr (sizeof(Word) >= 4) {
            CopyToShared<sizeof(Word)>(copy + at, from + at * stride, sizeof(Word));
          } else {
            some[f] = from[at * stride];
          }
        }
#pragma unroll
        for (int f = 0; f < kInFlight && sizeof(Word) < 4; ++f) {
          const int at = i + f * share.copiers;
          if (at < end) copy[at] = some[f];
        }
      }
      continue;
    }
    const GroupWalk<Word> walk(array, part.start, part.column);
    for (int i = begin; i < end; i += share.copiers) {
      std::int64_t index;
      const bool is_there = walk.Load(i, &copy[i], &index);
      if (share.masked) there[output * share.pitch + i] = is_there;
    }
  }
  EndCopies();
  AwaitCopies<0>();
  __syncthreads();
}

// The elements of output `mine` of a block, which is `part`. `leads`: one thread of each output.
template <class Word>
__device__ ThreadElements<Word> ElementsOf(const QuantilesLaunch& launch, const OutputShare& share,
                                           const GroupPart& part, int mine, int outputs, bool leads,
                                           std::byte* memory) {
  ThreadElements<Word> elements{.data = static_cast<const Word*>(launch.array.data) + part.start,
                                .end = static_cast<int>(part.end)};
  if (share.path == ElementPath::kSpan) {
    const auto width = static_cast<std::int64_t>(sizeof(Word)), row = launch.positions * width;
    const std::int64_t first = std::int64_t{blockIdx.x} * outputs;
    const std::int64_t rows = min(std::int64_t{outputs}, launch.count - first);
    const auto* const from = static_cast<const std::byte*>(launch.array.data) + (launch.first + first) * row;
    elements.data = reinterpret_cast<const Word*>(CopySpan(from, rows * row, memory) + mine * row);
    const int units = elements.end / (share.vectors ? 16 / static_cast<int>(width) : 1);
    elements.turn = units == 0 ? 0 : mine % units;
  } else if (share.path == ElementPath::kEach) {
    auto* const parts = reinterpret_cast<GroupPart*>(memory);
    auto* const copies = reinterpret_cast<Word*>(parts + outputs);
    auto* const there = reinterpret_cast<bool*>(copies + outputs * share.pitch);
    if (leads) parts[mine] = part;
    __syncthreads();
    CopyEach(launch, share, parts, outputs, copies, there);
    elements.data = copies + mine * share.pitch;
    if (share.masked) elements.there = there + mine * share.pitch;
  }
  return elements;
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_OUTPUT_ELEMENTS_CUH_
