// shared_neighbored_less: the additions of `shared_neighbored` by the first threads of the block.
//
// Why it is faster: whole warps work or rest. But a warp's accesses are now 2, 4, 8... words apart, so that they fall
// into ever fewer of the 32 banks of shared memory and wait for each other.
//
// Source: M. Harris, "Optimizing Parallel Reduction in CUDA", version 2.
#include "kernels/ladder/rung.cuh"

namespace reduced {
namespace {

template <class M>
__global__ void __launch_bounds__(kMaxBlockSize)
    SharedNeighboredLessKernel(const typename M::Element* data, std::int64_t count, typename M::V::Value* results) {
  using V = typename M::V;
  typename V::Value* const values = SharedValues<V>();
  const int thread = static_cast<int>(threadIdx.x);
  values[thread] = ValueAt<M>(data, FirstIndex(), count);
  __syncthreads();
  for (int stride = 1; stride < blockDim.x; stride *= 2) {
    const int index = 2 * stride * thread;
    if (index + stride < blockDim.x) values[index] = V::Combine(values[index], values[index + stride]);
    __syncthreads();
  }
  if (thread == 0) results[blockIdx.x] = values[0];
}

struct SharedNeighboredLessRung : DirectTraits {
  template <class M>
  static auto Kernel() {
    return &SharedNeighboredLessKernel<M>;
  }
};

}  // namespace

const CudaPipeline kSharedNeighboredLess = Direct<SharedNeighboredLessRung>::kPipeline;

}  // namespace reduced
