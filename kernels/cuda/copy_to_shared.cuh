// Copies from device to shared memory that need no registers: asynchronous (cp.async) since compute capability 8.0.
//
// Source: CUDA C++ Programming Guide, "Asynchronous Data Copies"; PTX ISA, "cp.async".
#ifndef REDUCED_KERNELS_CUDA_COPY_TO_SHARED_CUH_
#define REDUCED_KERNELS_CUDA_COPY_TO_SHARED_CUH_

#include <cstdint>

namespace reduced {

// Copies `valid` of kBytes bytes to shared memory and sets the others to zero. kBytes: 4, 8 or 16.
template <int kBytes>
__device__ inline void CopyToShared(void* to, const void* from, int valid) {
#if __CUDA_ARCH__ >= 800
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(valid) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(from), "n"(kBytes), "r"(valid)
                 : "memory");
  }
#else
  auto* const words = static_cast<unsigned*>(to);
  const auto* const source = static_cast<const unsigned*>(from);
#pragma unroll
  for (int i = 0; i < kBytes / 4; ++i) words[i] = 4 * i < valid ? source[i] : 0u;
#endif
}

// Ends a group of copies; waits until at most kLeft groups are under way.
__device__ inline void EndCopies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int kLeft>
__device__ inline void AwaitCopies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
#endif
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_COPY_TO_SHARED_CUH_
