// divergent_map and uniform_map: what a branch costs. Each element is mapped by one of two branches before the block
// adds it: its bits are turned all the way round, to the left or to the right, one at a time, which leaves it as it
// was. The rungs differ in nothing but who goes left: every second thread, or every second warp.
//
// Why it is slower when threads of a warp take both ways: the warp executes both, one after the other, each for half of
// its threads.
//
// Source: "Professional CUDA C Programming", chapter 3: mathKernel1 and mathKernel2, whose two ways store a constant.
#include <bit>
#include <cstdint>

#include "kernels/ladder/rung.cuh"

namespace reduced {
namespace {

template <class Word>
__device__ Word TurnLeft(Word word) {
#pragma unroll 1
  for (int bit = 0; bit < 8 * static_cast<int>(sizeof(Word)); ++bit) word = word << 1 | word >> (8 * sizeof(Word) - 1);
  return word;
}

template <class Word>
__device__ Word TurnRight(Word word) {
#pragma unroll 1
  for (int bit = 0; bit < 8 * static_cast<int>(sizeof(Word)); ++bit) word = word >> 1 | word << (8 * sizeof(Word) - 1);
  return word;
}

// `kGroup`: so many adjacent threads go the same way.
template <class M, int kGroup>
__global__ void __launch_bounds__(kMaxBlockSize)
    BranchMapKernel(const typename M::Element* data, std::int64_t count, typename M::V::Value* results) {
  using V = typename M::V;
  using Element = typename M::Element;
  using Word = std::conditional_t<sizeof(Element) == 4, std::uint32_t, std::uint64_t>;
  const std::int64_t index = FirstIndex();
  typename V::Value value = V::Identity();
  if (index < count) {
    auto word = std::bit_cast<Word>(data[index]);
    if (threadIdx.x / kGroup % 2 == 0) {
      word = TurnLeft(word);
    } else {
      word = TurnRight(word);
    }
    value = M::Lift(std::bit_cast<Element>(word));
  }
  value = BlockCombine<V>(value);
  if (threadIdx.x == 0) results[blockIdx.x] = value;
}

template <int kGroup>
struct BranchMapRung : DirectTraits {
  template <class M>
  static auto Kernel() {
    return &BranchMapKernel<M, kGroup>;
  }
};

}  // namespace

const CudaPipeline kDivergentMap = Direct<BranchMapRung<1>>::kPipeline;
const CudaPipeline kUniformMap = Direct<BranchMapRung<kWarpSize>>::kPipeline;

}  // namespace reduced
