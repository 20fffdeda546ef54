// shared_neighbored: `neighbored` in shared memory. Each thread loads one element; the steps never leave the
// multiprocessor.
//
// Why it is faster than the rungs in place: global memory is read once and written once a block, instead of in every
// step; and the array needs no copy. What remains slow is the divergence: threads that are a multiple of 2, 4, 8...
// work.
//
// Source: M. Harris, "Optimizing Parallel Reduction in CUDA", version 1.
#include "kernels/ladder/rung.cuh"

namespace reduced {
namespace {

template <class M>
__global__ void __launch_bounds__(kMaxBlockSize)
    SharedNeighboredKernel(const typename M::Element* data, std::int64_t count, typename M::V::Value* results) {
  using V = typename M::V;
  typename V::Value* const values = SharedValues<V>();
  const int thread = static_cast<int>(threadIdx.x);
  values[thread] = ValueAt<M>(data, FirstIndex(), count);
  __syncthreads();
  for (int stride = 1; stride < blockDim.x; stride *= 2) {
    if (thread % (2 * stride) == 0) values[thread] = V::Combine(values[thread], values[thread + stride]);
    __syncthreads();
  }
  if (thread == 0) results[blockIdx.x] = values[0];
}

struct SharedNeighboredRung : DirectTraits {
  template <class M>
  static auto Kernel() {
    return &SharedNeighboredKernel<M>;
  }
};

}  // namespace

const CudaPipeline kSharedNeighbored = Direct<SharedNeighboredRung>::kPipeline;

}  // namespace reduced
