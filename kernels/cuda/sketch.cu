#include <algorithm>
#include <utility>

#include "kernels/cuda/sketch.h"
#include "kernels/cuda/visit_elements.cuh"
#include "kernels/folds/sketch.h"

namespace reduced {
namespace {

constexpr int kThreads = 512;
constexpr int kBlocks = 2;  // of a multiprocessor
constexpr int kSharedBytes = kRegisters * 4;

// A register has the least of codes here, which tell zeros: those with fewer are less. Most elements are sorted out by
// the first bits behind those of the register, at the top of a word, which are not less than the code.
constexpr std::uint32_t kNone = ~std::uint32_t{0};
constexpr std::uint32_t kFirstBits = 32 - kSketchBits;
__device__ std::uint32_t FirstBits(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32) << kSketchBits; }
__device__ std::uint32_t CodeOf(std::uint32_t zeros) {
  if (zeros == 0) return kNone;
  return zeros <= kFirstBits ? std::uint32_t{1} << (32 - zeros) : 63 - zeros;
}
__device__ std::uint32_t ZerosOfCode(std::uint32_t code) {
  if (code == kNone) return 0;
  return code >= 64 ? static_cast<std::uint32_t>(__clz(static_cast<int>(code))) + 1 : 63 - code;
}
static_assert(kMostOfRegister < 63 && kSketchBits > 6);

template <class Word, bool kFloat>
__global__ void __launch_bounds__(kThreads, kBlocks) Sketch(const __grid_constant__ SketchLaunch launch) {
  extern __shared__ std::uint32_t registers[];
  KeyFormat format = Plain(launch.format);
  format.is_float = format.zeros_join = kFloat;
  format.omit_nan = kFloat && launch.format.omit_nan;
  for (int i = threadIdx.x; i < kRegisters; i += kThreads) registers[i] = CodeOf(__ldcg(&launch.registers[i]));
  __syncthreads();
  VisitElements(static_cast<const Word*>(launch.data), launch.count, 1, [&](Word raw, bool is_there, std::int64_t) {
    const std::uint64_t hash = HashOf(KeyOf(raw, format, &is_there));
    std::uint32_t* const least = &registers[RegisterOf(hash)];
    const bool is_less = FirstBits(hash) < *least;  // seldom, after the first thousands
    if (!is_there || !is_less) return;
    const std::uint32_t code = CodeOf(ZerosOf(hash));
    if (code < *least) atomicMin(least, code);
  });
  __syncthreads();
  for (int i = threadIdx.x; i < kRegisters; i += kThreads) {
    const std::uint32_t zeros = ZerosOfCode(registers[i]);
    if (zeros > __ldcg(&launch.registers[i])) atomicMax(&launch.registers[i], zeros);
  }
}

template <class Word, bool kFloat>
cudaError_t Launch(const SketchLaunch& launch) {
  const cudaError_t error =
      cudaFuncSetAttribute(Sketch<Word, kFloat>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;
  // Blocks begin with what is known from the first elements, so that they seldom find more.
  constexpr std::int64_t kMany = std::int64_t{1} << 22;
  const std::int64_t first = launch.count < kMany ? 0 : launch.count / 64;
  for (const auto& [begin, end] : {std::pair(std::int64_t{0}, first), std::pair(first, launch.count)}) {
    if (begin == end) continue;
    SketchLaunch some = launch;
    some.data = static_cast<const Word*>(launch.data) + begin;
    some.count = end - begin;
    constexpr std::int64_t kElements = std::int64_t{64} * kThreads;  // of a block, at least: it has registers to merge
    const auto blocks = static_cast<int>(
        std::clamp<std::int64_t>(some.count / kElements, 1, std::int64_t{kBlocks} * launch.multiprocessors));
    Sketch<Word, kFloat><<<blocks, kThreads, kSharedBytes, launch.stream>>>(some);
  }
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
