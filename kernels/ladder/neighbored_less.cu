// neighbored_less: the additions of `neighbored`, done by the first threads of the block instead of every second,
// fourth...
//
// Why it is faster: in each step the working threads fill whole warps, and warps that have nothing to do are done at
// once instead of running with a few threads active. Memory is read in the same pattern: neighbours that drift apart.
//
// Source: "Professional CUDA C Programming", chapter 3.
#include "kernels/ladder/rung.cuh"

namespace reduced {
namespace {

template <class V>
__global__ void __launch_bounds__(kMaxBlockSize)
    NeighboredLessKernel(typename V::Value* array, std::int64_t count, typename V::Value* results) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.x;
  typename V::Value* const values = array + first;
  const auto size = static_cast<int>(min(static_cast<std::int64_t>(blockDim.x), count - first));
  const int thread = static_cast<int>(threadIdx.x);
  for (int stride = 1; stride < blockDim.x; stride *= 2) {
    const int index = 2 * stride * thread;
    if (index + stride < size) values[index] = V::Combine(values[index], values[index + stride]);
    __syncthreads();
  }
  if (thread == 0) results[blockIdx.x] = values[0];
}

struct NeighboredLessRung {
  static constexpr int kDataBlocks = 1;
  template <class V>
  static auto Kernel(int) {
    return &NeighboredLessKernel<V>;
  }
};

}  // namespace

const CudaPipeline kNeighboredLess = InPlace<NeighboredLessRung>::kPipeline;

}  // namespace reduced
