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

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_VECTOR16_CUH_
