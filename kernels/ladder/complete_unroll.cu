// complete_unroll8, template_unroll8: unroll_warps8 with the loop over strides written out.
//
// Why they are faster: a block has at most 1024 threads, so there are at most 5 steps before the last warp's, and
// written out they need no counter and no branch back. complete_unroll8 asks at run time which of them the block is
// large enough for; template_unroll8 is compiled for each block size and asks nothing.
//
// Source: "Professional CUDA C Programming", chapter 3; M. Harris, "Optimizing Parallel Reduction in CUDA", version 6.
#include "kernels/ladder/rung.cuh"

namespace reduced {
namespace {

// One step of a block that has at least twice `kStride` threads.
template <class V, int kStride>
__device__ inline void Step(typename V::Value* values, int size, int block_size) {
  if (block_size < 2 * kStride) return;  // all threads or none
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kStride && thread + kStride < size) {
    values[thread] = V::Combine(values[thread], values[thread + kStride]);
  }
  __syncthreads();
}

// kBlockSize: of the block; 0: it is only known at run time.
template <class V, int kDataBlocks, int kBlockSize>
__global__ void __launch_bounds__(kMaxBlockSize)
    CompleteUnrollKernel(typename V::Value* array, std::int64_t count, typename V::Value* results) {
  const auto [values, size] = GatherBlocks<V, kDataBlocks>(array, count);
  const int block_size = kBlockSize > 0 ? kBlockSize : static_cast<int>(blockDim.x);
  Step<V, 512>(values, size, block_size);
  Step<V, 256>(values, size, block_size);
  Step<V, 128>(values, size, block_size);
  Step<V, 64>(values, size, block_size);
  FoldLastWarp<V>(values, size);
  if (threadIdx.x == 0) results[blockIdx.x] = values[0];
}

struct CompleteUnrollRung {
  static constexpr int kDataBlocks = 8;
  template <class V>
  static auto Kernel(int) {
    return &CompleteUnrollKernel<V, kDataBlocks, 0>;
  }
};

struct TemplateUnrollRung {
  static constexpr int kDataBlocks = 8;
  template <class V>
  static auto Kernel(int block_size) {
    switch (block_size) {
      case 64:
        return &CompleteUnrollKernel<V, kDataBlocks, 64>;
      case 128:
        return &CompleteUnrollKernel<V, kDataBlocks, 128>;
      case 256:
        return &CompleteUnrollKernel<V, kDataBlocks, 256>;
      case 512:
        return &CompleteUnrollKernel<V, kDataBlocks, 512>;
      default:
        return &CompleteUnrollKernel<V, kDataBlocks, 1024>;
    }
  }
};

}  // namespace

const CudaPipeline kCompleteUnroll8 = InPlace<CompleteUnrollRung>::kPipeline;
const CudaPipeline kTemplateUnroll8 = InPlace<TemplateUnrollRung>::kPipeline;

}  // namespace reduced
