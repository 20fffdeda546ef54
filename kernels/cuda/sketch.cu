#include <algorithm>

#include "kernels/cuda/sketch.h"
#include "kernels/cuda/visit_elements.cuh"
#include "kernels/folds/sketch.h"

namespace reduced {
namespace {

constexpr int kThreads = 512;
constexpr int kBlocks = 2;  // of a multiprocessor
constexpr int kSharedBytes = kRegisters * 4;

template <class Word, bool kFloat>
__global__ void __launch_bounds__(kThreads, kBlocks) Sketch(const __grid_constant__ SketchLaunch launch) {
  extern __shared__ std::uint32_t registers[];
  KeyFormat format = Plain(launch.format);
  format.is_float = format.zeros_join = kFloat;
  format.omit_nan = kFloat && launch.format.omit_nan;
  for (int i = threadIdx.x; i < kRegisters; i += kThreads) registers[i] = 0;
  __syncthreads();
  VisitElements(static_cast<const Word*>(launch.data), launch.count, 1, [&](Word raw, bool is_there, std::int64_t) {
    const std::uint64_t hash = HashOf(KeyOf(raw, format, &is_there));
    if (!is_there) return;
    std::uint32_t* const most = &registers[RegisterOf(hash)];
    const std::uint32_t zeros = ZerosOf(hash);
    if (zeros > *most) atomicMax(most, zeros);  // seldom, after the first thousands
  });
  __syncthreads();
  for (int i = threadIdx.x; i < kRegisters; i += kThreads) {
    if (registers[i] > __ldcg(&launch.registers[i])) atomicMax(&launch.registers[i], registers[i]);
  }
}

template <class Word, bool kFloat>
cudaError_t Launch(const SketchLaunch& launch) {
  const cudaError_t error =
      cudaFuncSetAttribute(Sketch<Word, kFloat>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;
  constexpr std::int64_t kElements = std::int64_t{64} * kThreads;  // of a block, at least: it has registers to merge
  const auto blocks = static_cast<int>(
      std::clamp<std::int64_t>(launch.count / kElements, 1, std::int64_t{kBlocks} * launch.multiprocessors));
  Sketch<Word, kFloat><<<blocks, kThreads, kSharedBytes, launch.stream>>>(launch);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchSketch(const SketchLaunch& launch) {
  if (launch.format.bytes == 8) {
    return launch.format.is_float ? Launch<std::uint64_t, true>(launch) : Launch<std::uint64_t, false>(launch);
  }
  return launch.format.is_float ? Launch<std::uint32_t, true>(launch) : Launch<std::uint32_t, false>(launch);
}

}  // namespace reduced
