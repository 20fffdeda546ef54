// two_level_shuffle: shuffles in every warp, then shared memory for one value a warp, then shuffles in the first warp.
//
// Why it is faster than a tree in shared memory: one barrier instead of one for each step, and 32 times less shared
// memory.
//
// Source: J. Luitjens, "Faster Parallel Reductions on Kepler".
#include "kernels/ladder/rung.cuh"

namespace reduced {
namespace {

template <class M>
__global__ void __launch_bounds__(kMaxBlockSize)
    TwoLevelShuffleKernel(const typename M::Element* data, std::int64_t count, typename M::V::Value* results) {
  using V = typename M::V;
  const typename V::Value value = BlockCombine<V>(ValueAt<M>(data, FirstIndex(), count));
  if (threadIdx.x == 0) results[blockIdx.x] = value;
}

struct TwoLevelShuffleRung : DirectTraits {
  template <class M>
  static auto Kernel() {
    return &TwoLevelShuffleKernel<M>;
  }
};

}  // namespace

const CudaPipeline kTwoLevelShuffle = Direct<TwoLevelShuffleRung>::kPipeline;

}  // namespace reduced
