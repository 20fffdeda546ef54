// How all threads of a grid see the elements of an array once.
#ifndef REDUCED_KERNELS_CUDA_VISIT_ELEMENTS_CUH_
#define REDUCED_KERNELS_CUDA_VISIT_ELEMENTS_CUH_

#include <cstdint>

#include "kernels/cuda/vector16.cuh"

namespace reduced {

template <class T>
inline constexpr int kVisitVectors = sizeof(T) < 2 ? 2 : 4;  // many narrow elements take registers
// How many elements a warp sees between two calls of after_round.
template <class T>
inline constexpr int kVisitedElements = 32 * kVisitVectors<T>* Vector16<T>::kElements;

struct NothingAfterRound {
  __device__ void operator()() const {}
};

// Calls visit(element, is_there, index) by whole warps: the lanes of a warp call it as often, some of them without an
// element. `data`: aligned to the element's size. Of `stretch` neighbouring pieces of 128 bytes only the first is seen.
// after_round(): is called by whole warps now and then, and at last.
template <class T, class Visit, class AfterRound = NothingAfterRound>
__device__ __forceinline__ void VisitElements(const T* data, std::int64_t count, std::int64_t stretch,
                                              const Visit& visit, const AfterRound& after_round = {}) {
  constexpr int kElements = Vector16<T>::kElements;
  constexpr int kInFlight = kVisitVectors<T>;
  constexpr int kPiece = 128 / 16;  // vectors
  const auto beyond = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(data) % 16 / sizeof(T));
  const std::int64_t before = beyond == 0 ? 0 : kElements - beyond;
  const std::int64_t head = before < count ? before : count;
  const std::int64_t vectors = (count - head) / kElements;
  const auto* const body = reinterpret_cast<const uint4*>(data + head);
  const int lane = threadIdx.x % 32;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x * stretch;
  // Of this lane, of a round of vectors that are `step` apart; and of the last lane that of the last one.
  std::int64_t v = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x - lane) * stretch;
  const std::int64_t last = 31 / kPiece * kPiece * (stretch - 1) + 31 + (kInFlight - 1) * step;
  const std::int64_t within = lane / kPiece * kPiece * (stretch - 1) + lane;
  const uint4* next = body + v + within;
  for (; v + last < vectors; v += kInFlight * step) {
    Vector16<T> loaded[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) loaded[i] = LoadOnce<T>(next + i * step);
    const std::int64_t index = head + (v + within) * kElements;
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
#pragma unroll
      for (int e = 0; e < kElements; ++e) visit(loaded[i].element[e], true, index + i * step * kElements + e);
    }
    next += kInFlight * step;
    after_round();
  }
  for (; v < vectors; v += step, next += step) {
    const bool is_there = v + within < vectors;
    Vector16<T> loaded;
    if (is_there) loaded = LoadOnce<T>(next);
#pragma unroll
    for (int e = 0; e < kElements; ++e) visit(loaded.element[e], is_there, head + (v + within) * kElements + e);
    after_round();
  }
  if (blockIdx.x != 0 || threadIdx.x >= 32) return after_round();
  const std::int64_t edges = count - vectors * kElements;  // fewer than 32
  const std::int64_t index = lane < head ? lane : lane + vectors * kElements;
  const bool is_there = lane < edges;
  visit(is_there ? data[index] : T{}, is_there, index);
  after_round();
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_VISIT_ELEMENTS_CUH_
