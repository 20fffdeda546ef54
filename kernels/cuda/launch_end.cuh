// How a launch ends: which block is its last one, and when it began and was over.
#ifndef REDUCED_KERNELS_CUDA_LAUNCH_END_CUH_
#define REDUCED_KERNELS_CUDA_LAUNCH_END_CUH_

#include "kernels/cuda/pipeline.h"

namespace reduced {

// Each block draws once: true for the last one, which resets the ticket. What the blocks wrote before they drew, the
// last one sees after; of a block, what its threads wrote before a barrier that the one who draws has passed.
__device__ inline bool DrawsLastTicket(unsigned* ticket) {
  unsigned drawn;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(drawn)
               : "l"(ticket), "r"(gridDim.x - 1)
               : "memory");
  return drawn == gridDim.x - 1;
}

__device__ inline unsigned long long NowNs() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// First of all, by all threads. Null: not wanted.
__device__ inline void SayBegun(KernelTimes* times) {
  if (times != nullptr && blockIdx.x == 0 && threadIdx.x == 0) times->begin_ns = NowNs();
}

// Last of all, by one thread: after what it and those of its block before a barrier have written to host memory.
__device__ inline void SayEnded(KernelTimes* times) {
  if (times == nullptr) return;
  const unsigned long long now = NowNs();
  asm volatile("st.release.sys.global.u64 [%0], %1;" : : "l"(&times->end_ns), "l"(now) : "memory");
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_LAUNCH_END_CUH_
