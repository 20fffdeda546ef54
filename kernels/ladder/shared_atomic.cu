// shared_atomic: `shared_interleaved`, and each block adds its result to one place by an atomic.
//
// Why: the blocks' results need no pass of their own, and no memory. The price: as many atomics on one address as there
// are blocks, one after the other; and float sums whose last bits depend on which block came first. Values that no
// atomic instruction takes (128-bit sums, products) are combined under a lock.
//
// Source: M. Harris, "Optimizing Parallel Reduction in CUDA", for the tree; CUDA C++ Programming Guide, "Atomic
// Functions".
#include "kernels/ladder/rung.cuh"

namespace reduced {
namespace {

template <class M>
__global__ void __launch_bounds__(kMaxBlockSize)
    SharedAtomicKernel(const typename M::Element* data, std::int64_t count, typename M::V::Value* results) {
  using V = typename M::V;
  typename V::Value* const values = SharedValues<V>();
  const int thread = static_cast<int>(threadIdx.x);
  values[thread] = ValueAt<M>(data, FirstIndex(), count);
  __syncthreads();
  const auto block_size = static_cast<int>(blockDim.x);
  FoldHalves<V>(values, block_size, block_size / 2, 1);
  if (thread == 0) AtomicCombine(reinterpret_cast<AtomicValue<V>*>(results), values[0]);
}

struct SharedAtomicRung : DirectTraits {
  static constexpr bool kAtomic = true;
  template <class M>
  static auto Kernel() {
    return &SharedAtomicKernel<M>;
  }
};

}  // namespace

const CudaPipeline kSharedAtomic = Direct<SharedAtomicRung>::kPipeline;

}  // namespace reduced
