// unroll2, unroll4, unroll8: `interleaved`, but a block first adds up 2, 4 or 8 blocks of values.
//
// Why they are faster: in `interleaved` half of the threads do nothing after the load. Here each thread begins with
// several independent loads, which are in flight together and hide each other's latency, and there are 2, 4 or 8 times
// fewer blocks and results.
//
// Source: "Professional CUDA C Programming", chapter 3.
#include "kernels/ladder/rung.cuh"

namespace reduced {
namespace {

template <class V, int kDataBlocks>
__global__ void __launch_bounds__(kMaxBlockSize)
    UnrollKernel(typename V::Value* array, std::int64_t count, typename V::Value* results) {
  const auto [values, size] = GatherBlocks<V, kDataBlocks>(array, count);
  FoldHalves<V>(values, size, static_cast<int>(blockDim.x) / 2, 1);
  if (threadIdx.x == 0) results[blockIdx.x] = values[0];
}

template <int kBlocks>
struct UnrollRung {
  static constexpr int kDataBlocks = kBlocks;
  template <class V>
  static auto Kernel(int) {
    return &UnrollKernel<V, kBlocks>;
  }
};

}  // namespace

const CudaPipeline kUnroll2 = InPlace<UnrollRung<2>>::kPipeline;
const CudaPipeline kUnroll4 = InPlace<UnrollRung<4>>::kPipeline;
const CudaPipeline kUnroll8 = InPlace<UnrollRung<8>>::kPipeline;

}  // namespace reduced
