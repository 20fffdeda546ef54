// unroll_warps2, unroll_warps8: unroll2 and unroll8, whose last 6 steps are one warp's.
//
// Why they are faster: from stride 32 on a single warp works, so the barriers of the whole block are for nothing; a
// barrier of the warp is nearly free. The source leaves out even that one and declares the memory volatile, which
// counted on a warp running in step; since Volta warps don't.
//
// Source: "Professional CUDA C Programming", chapter 3.
#include "kernels/ladder/rung.cuh"

namespace reduced {
namespace {

template <class V, int kDataBlocks>
__global__ void __launch_bounds__(kMaxBlockSize)
    UnrollWarpsKernel(typename V::Value* array, std::int64_t count, typename V::Value* results) {
  const auto [values, size] = GatherBlocks<V, kDataBlocks>(array, count);
  FoldHalves<V>(values, size, static_cast<int>(blockDim.x) / 2, 2 * kWarpSize);
  FoldLastWarp<V>(values, size);
  if (threadIdx.x == 0) results[blockIdx.x] = values[0];
}

template <int kBlocks>
struct UnrollWarpsRung {
  static constexpr int kDataBlocks = kBlocks;
  template <class V>
  static auto Kernel(int) {
    return &UnrollWarpsKernel<V, kBlocks>;
  }
};

}  // namespace

const CudaPipeline kUnrollWarps2 = InPlace<UnrollWarpsRung<2>>::kPipeline;
const CudaPipeline kUnrollWarps8 = InPlace<UnrollWarpsRung<8>>::kPipeline;

}  // namespace reduced
