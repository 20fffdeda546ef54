// grid_stride_two_pass: at most 10240 blocks, whose threads each combine the elements that lie a grid apart, in a
// register; then the block, by shuffles; then one block combines the blocks' results.
//
// Why it is so much faster than one element a thread: nearly all the work is a load and an addition, with no barrier
// and no exchange between threads; these come once for a thread's many elements. Loads stay adjacent within each warp.
//
// Source: M. Harris, "Optimizing Parallel Reduction in CUDA", version 7, and "CUDA Pro Tip: Write Flexible Kernels with
// Grid-Stride Loops".
#include "kernels/ladder/rung.cuh"

namespace reduced {
namespace {

template <class M>
__global__ void __launch_bounds__(kMaxBlockSize)
    GridStrideKernel(const typename M::Element* data, std::int64_t count, typename M::V::Value* results) {
  using V = typename M::V;
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  typename V::Value value = V::Identity();
#pragma unroll 4
  for (std::int64_t i = FirstIndex(); i < count; i += threads) value = V::Combine(value, M::Lift(data[i]));
  value = BlockCombine<V>(value);
  if (threadIdx.x == 0) results[blockIdx.x] = value;
}

struct GridStrideRung : DirectTraits {
  static constexpr std::int64_t kMaxBlocks = 10240;
  template <class M>
  static auto Kernel() {
    return &GridStrideKernel<M>;
  }
};

}  // namespace

const CudaPipeline kGridStrideTwoPass = Direct<GridStrideRung>::kPipeline;

}  // namespace reduced
