// cooperative_groups: every warp is reduced by the library's reduce() over a tile of 32 threads, and the warps' results
// by the first one in the same way.
//
// Why: groups are objects, so that the code says who takes part and the compiler knows; where the hardware reduces a
// warp in one instruction (32-bit integers, since Ampere) the library uses it. Two barriers at most, whatever the
// block's size.
//
// Source: CUDA C++ Programming Guide, "Cooperative Groups".
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include "kernels/ladder/rung.cuh"

namespace reduced {
namespace {

template <class M>
__global__ void __launch_bounds__(kMaxBlockSize)
    CooperativeGroupsKernel(const typename M::Element* data, std::int64_t count, typename M::V::Value* results) {
  using V = typename M::V;
  namespace cg = cooperative_groups;
  using Value = typename V::Value;
  Value* const of_tile = SharedValues<V>();
  const cg::thread_block block = cg::this_thread_block();
  const auto tile = cg::tiled_partition<kWarpSize>(block);
  const auto combine = [](const Value& a, const Value& b) { return V::Combine(a, b); };
  Value value = cg::reduce(tile, ValueAt<M>(data, FirstIndex(), count), combine);
  if (tile.thread_rank() == 0) of_tile[tile.meta_group_rank()] = value;
  block.sync();
  if (tile.meta_group_rank() != 0) return;  // no barrier of the block follows
  value = tile.thread_rank() < tile.meta_group_size() ? of_tile[tile.thread_rank()] : V::Identity();
  value = cg::reduce(tile, value, combine);
  if (tile.thread_rank() == 0) AtomicCombine(reinterpret_cast<AtomicValue<V>*>(results), value);
}

struct CooperativeGroupsRung : DirectTraits {
  static constexpr bool kAtomic = true;
  template <class M>
  static auto Kernel() {
    return &CooperativeGroupsKernel<M>;
  }
};

}  // namespace

const CudaPipeline kCooperativeGroups = Direct<CooperativeGroupsRung>::kPipeline;

}  // namespace reduced
