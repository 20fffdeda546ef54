// warp_sync: `shared_atomic`, whose last 6 steps are one warp's, with __syncwarp between them.
//
// Why it is faster: a barrier of the warp costs next to nothing, one of the block makes 15 other warps wait to do
// nothing. It also orders the warp's accesses to shared memory, which since Volta nothing else does.
//
// Source: NVIDIA, "Using CUDA Warp-Level Primitives".
#include "kernels/ladder/rung.cuh"

namespace reduced {
namespace {

template <class M>
__global__ void __launch_bounds__(kMaxBlockSize)
    WarpSyncKernel(const typename M::Element* data, std::int64_t count, typename M::V::Value* results) {
  using V = typename M::V;
  typename V::Value* const values = SharedValues<V>();
  const int thread = static_cast<int>(threadIdx.x);
  values[thread] = ValueAt<M>(data, FirstIndex(), count);
  __syncthreads();
  const auto block_size = static_cast<int>(blockDim.x);
  FoldHalves<V>(values, block_size, block_size / 2, 2 * kWarpSize);
  FoldLastWarp<V>(values, block_size);
  if (thread == 0) AtomicCombine(reinterpret_cast<AtomicValue<V>*>(results), values[0]);
}

struct WarpSyncRung : DirectTraits {
  static constexpr bool kAtomic = true;
  template <class M>
  static auto Kernel() {
    return &WarpSyncKernel<M>;
  }
};

}  // namespace

const CudaPipeline kWarpSync = Direct<WarpSyncRung>::kPipeline;

}  // namespace reduced
