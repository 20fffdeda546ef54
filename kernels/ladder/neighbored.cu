// neighbored: the starting point. In step s every thread whose number is a multiple of 2s adds the value s places on,
// so that after log2(block) steps the block's first value has everything.
//
// Source: "Professional CUDA C Programming", chapter 3. Its slowness is instructive: in each step the working threads
// are spread over all warps, so each warp runs for the sake of ever fewer of its threads, and every step goes to global
// memory.
#include "kernels/ladder/rung.cuh"

namespace reduced {
namespace {

template <class V>
__global__ void __launch_bounds__(kMaxBlockSize)
    NeighboredKernel(typename V::Value* array, std::int64_t count, typename V::Value* results) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.x;
  typename V::Value* const values = array + first;
  const auto size = static_cast<int>(min(static_cast<std::int64_t>(blockDim.x), count - first));
  const int thread = static_cast<int>(threadIdx.x);
  for (int stride = 1; stride < blockDim.x; stride *= 2) {
    if (thread % (2 * stride) == 0 && thread + stride < size) {
      values[thread] = V::Combine(values[thread], values[thread + stride]);
    }
    __syncthreads();
  }
  if (thread == 0) results[blockIdx.x] = values[0];
}

struct NeighboredRung {
  static constexpr int kDataBlocks = 1;
  template <class V>
  static auto Kernel(int) {
    return &NeighboredKernel<V>;
  }
};

}  // namespace

const CudaPipeline kNeighbored = InPlace<NeighboredRung>::kPipeline;

}  // namespace reduced
