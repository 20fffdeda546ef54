// shared_unroll_warp: `shared_first_add` whose last 6 steps are one warp's.
//
// Why it is faster: these steps have no barriers of the whole block. (In the source they have no barrier at all, which
// is wrong since Volta.)
//
// Source: M. Harris, "Optimizing Parallel Reduction in CUDA", version 5.
#include "kernels/ladder/rung.cuh"

namespace reduced {
namespace {

template <class M>
__global__ void __launch_bounds__(kMaxBlockSize)
    SharedUnrollWarpKernel(const typename M::Element* data, std::int64_t count, typename M::V::Value* results) {
  using V = typename M::V;
  typename V::Value* const values = SharedValues<V>();
  const int thread = static_cast<int>(threadIdx.x);
  const auto block_size = static_cast<int>(blockDim.x);
  const std::int64_t index = FirstIndex(2);
  values[thread] = V::Combine(ValueAt<M>(data, index, count), ValueAt<M>(data, index + block_size, count));
  __syncthreads();
  FoldHalves<V>(values, block_size, block_size / 2, 2 * kWarpSize);
  FoldLastWarp<V>(values, block_size);
  if (thread == 0) results[blockIdx.x] = values[0];
}

struct SharedUnrollWarpRung : DirectTraits {
  static constexpr int kDataBlocks = 2;
  template <class M>
  static auto Kernel() {
    return &SharedUnrollWarpKernel<M>;
  }
};

}  // namespace

const CudaPipeline kSharedUnrollWarp = Direct<SharedUnrollWarpRung>::kPipeline;

}  // namespace reduced
