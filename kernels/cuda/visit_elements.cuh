// How all threads of a grid see the elements of an array once.
#ifndef REDUCED_KERNELS_CUDA_VISIT_ELEMENTS_CUH_
#define REDUCED_KERNELS_CUDA_VISIT_ELEMENTS_CUH_

#include <cstdint>

#include "kernels/cuda/vector16.cuh"

namespace reduced {

// Calls visit(element, is_there, index) by whole warps: the lanes of a warp call it as often, some of them without an
// element. `data`: aligned to the element's size. Of `stretch` neighbouring pieces of 512 bytes only the first is seen.
template <class T, class Visit>
__device__ __forceinline__ void VisitElements(const T* data, std::int64_t count, std::int64_t stretch,
                                              const Visit& visit) {
  constexpr int kElements = Vector16<T>::kElements;
  constexpr int kInFlight = kElements > 4 ? 2 : 4;  // many narrow elements take registers
  const auto beyond = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(data) % 16 / sizeof(T));
  const std::int64_t before = beyond == 0 ? 0 : kElements - beyond;
  const std::int64_t head = before < count ? before : count;
  const std::int64_t vectors = (count - head) / kElements;
  const auto* const body = reinterpret_cast<const uint4*>(data + head);
  const int lane = threadIdx.x % 32;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x * stretch;
  std::int64_t v = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x - lane) * stretch;
  for (; v < vectors; v += kInFlight * step) {
    Vector16<T> loaded[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const std::int64_t at = v + lane + i * step;
      if (at < vectors) loaded[i] = LoadOnce<T>(body + at);
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const std::int64_t at = v + lane + i * step;
      const std::int64_t index = head + at * kElements;
#pragma unroll
      for (int e = 0; e < kElements; ++e) visit(loaded[i].element[e], at < vectors, index + e);
    }
  }
  if (blockIdx.x != 0 || threadIdx.x >= 32) return;
  const std::int64_t edges = count - vectors * kElements;  // fewer than 32
  const std::int64_t index = lane < head ? lane : lane + vectors * kElements;
  const bool is_there = lane < edges;
  visit(is_there ? data[index] : T{}, is_there, index);
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_VISIT_ELEMENTS_CUH_
