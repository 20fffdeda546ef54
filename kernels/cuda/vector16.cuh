// Loads of 16 bytes, the widest of a thread.
#ifndef REDUCED_KERNELS_CUDA_VECTOR16_CUH_
#define REDUCED_KERNELS_CUDA_VECTOR16_CUH_

#include <cstring>

namespace reduced {

// 16 bytes of elements.
template <class T>
struct Vector16 {
  static constexpr int kElements = 16 / sizeof(T);
  T element[kElements];

  // The same bytes as 32-bit words, for the instructions that work on packed elements.
  struct Packed {
    unsigned word[4];
  };
  __device__ Packed Words() const {
    Packed packed;
    memcpy(&packed, element, sizeof(packed));
    return packed;
  }
};

// Loads 16 aligned bytes that are read once: through the read-only path, not kept in the L1 cache.
template <class T>
__device__ inline Vector16<T> LoadOnce(const uint4* address) {
  uint4 raw;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(raw.x), "=r"(raw.y), "=r"(raw.z), "=r"(raw.w)
      : "l"(address));
  Vector16<T> vector;
  memcpy(&vector, &raw, sizeof(raw));
  return vector;
}

// Has the compiler forget what it knows of a tile, so that it doesn't keep in registers what is quickly computed again.
template <class T, int kVectors>
__device__ __forceinline__ void Forget(Vector16<T> (&tile)[kVectors]) {
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    auto packed = tile[v].Words();
#pragma unroll
    for (int w = 0; w < 4; ++w) asm volatile("" : "+r"(packed.word[w]));
    memcpy(tile[v].element, &packed, sizeof(packed));
  }
}

// Calls again(tile) with a forgotten copy of the tile: for what is seldom done.
template <class T, int kVectors, class Function>
__device__ __forceinline__ auto Again(const Vector16<T> (&tile)[kVectors], Function again) {
  Vector16<T> copy[kVectors];
  memcpy(copy, tile, sizeof(copy));
  Forget(copy);
  return again(copy);
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_VECTOR16_CUH_
