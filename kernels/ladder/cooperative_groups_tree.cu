// cooperative_groups_tree: the source's reduceCG. The block's values are combined by halves in shared memory, with the
// group's sync() after each step, and those of the last warp by shuffles of a tile of 32 threads; one atomic a block.
//
// Why: the same steps as in `warp_shuffle`, but groups are objects, so that the code says who takes part. It still has
// a barrier for each step; `cooperative_groups` has two.
//
// Source: CUDA C++ Programming Guide, "Cooperative Groups".
#include <cooperative_groups.h>

#include "kernels/ladder/rung.cuh"

namespace reduced {
namespace {

template <class M>
__global__ void __launch_bounds__(kMaxBlockSize)
    CooperativeGroupsTreeKernel(const typename M::Element* data, std::int64_t count, typename M::V::Value* results) {
  using V = typename M::V;
  namespace cg = cooperative_groups;
  typename V::Value* const values = SharedValues<V>();
  const cg::thread_block block = cg::this_thread_block();
  const auto tile = cg::tiled_partition<kWarpSize>(block);
  const auto thread = static_cast<int>(block.thread_rank());
  values[thread] = ValueAt<M>(data, FirstIndex(), count);
  block.sync();
  for (int stride = static_cast<int>(block.size()) / 2; stride >= kWarpSize; stride /= 2) {
    if (thread < stride) values[thread] = V::Combine(values[thread], values[thread + stride]);
    block.sync();
  }
  if (tile.meta_group_rank() != 0) return;  // no barrier of the block follows
  typename V::Value value = values[thread];
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    value = V::Combine(value, tile.shfl_down(value, offset));
  }
  if (thread == 0) AtomicCombine(reinterpret_cast<AtomicValue<V>*>(results), value);
}

struct CooperativeGroupsTreeRung : DirectTraits {
  static constexpr bool kAtomic = true;
  template <class M>
  static auto Kernel() {
    return &CooperativeGroupsTreeKernel<M>;
  }
};

}  // namespace

const CudaPipeline kCooperativeGroupsTree = Direct<CooperativeGroupsTreeRung>::kPipeline;

}  // namespace reduced
