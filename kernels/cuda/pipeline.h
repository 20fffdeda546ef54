// A CUDA pipeline: one way to reduce an array that lies in device memory. The pipelines are in kernels/ladder and
// kernels/cuda, one technique a file; pipelines.h lists them.
#ifndef REDUCED_KERNELS_CUDA_PIPELINE_H_
#define REDUCED_KERNELS_CUDA_PIPELINE_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/op.h"
#include "kernels/algebra/partial.h"
#include "kernels/engine/occupancy.h"

namespace reduced {

// When a launch ran, by the device's own clock: host memory mapped for the device, zeros before.
struct KernelTimes {
  unsigned long long begin_ns;
  unsigned long long end_ns;  // once it isn't 0, all else that the launch writes can be read
};

// Launches of so many bytes may keep their time themselves: events around them would take longer than they do.
inline constexpr std::int64_t kMaxTimedBytes = std::int64_t{4} << 20;

// One reduction on a stream.
struct Launch {
  DType dtype = DType::kF32;
  Op op = Op::kSum;                 // rungs of the ladder: one that RungSupports()
  AccumulatorSet accumulators = 0;  // the others
  bool omit_nan = false;
  const void* data = nullptr;   // device memory, aligned to the element's size
  std::int64_t count = 0;       // elements, > 0, at most kMaxLaunchElements
  std::int64_t base_index = 0;  // of the first element in the whole array
  // Device memory used by one launch at a time: scratch_bytes of it, aligned to 256 bytes, anything in it; where the
  // pipeline doesn't say how many, kScratchBytes, zeroed once.
  void* scratch = nullptr;
  Partial* out = nullptr;  // device memory, or host memory mapped for the device; the identity before the launch
  int multiprocessors = 0;
  int block_size = 0;   // 0: the pipeline's own choice
  int grid_blocks = 0;  // likewise; for benchmarks
  cudaStream_t stream = nullptr;
  KernelTimes* times = nullptr;  // null: not wanted; see CudaPipeline::keeps_time
};

// Enough for every pipeline that doesn't say how many bytes it needs.
inline constexpr std::size_t kScratchBytes = std::size_t{2} << 20;

// As many values of 32 bits can be added up in 64.
inline constexpr std::int64_t kMaxLaunchElements = std::int64_t{1} << 31;

// Everything is asynchronous and returns the first error of its launches. Null: nothing to do, nothing to say.
struct CudaPipeline {
  std::size_t (*scratch_bytes)(const Launch& launch);
  cudaError_t (*prepare)(const Launch& launch);  // before each launch: fills the scratch memory
  cudaError_t (*launch)(const Launch& launch);
  cudaError_t (*occupancy)(const Launch& launch, Occupancy* occupancy);  // of the first kernel; synchronous
  // Of the copy of the array that `prepare` makes, which the launch reads in the array's place; null: it makes none.
  std::size_t (*copy_bytes)(const Launch& launch) = nullptr;
  bool (*keeps_time)(const Launch& launch) = nullptr;  // whether it writes Launch::times; not with `prepare`
};

extern const CudaPipeline kNeighbored, kNeighboredLess, kInterleaved;
extern const CudaPipeline kUnroll2, kUnroll4, kUnroll8, kUnrollWarps2, kUnrollWarps8, kCompleteUnroll8,
    kTemplateUnroll8;
extern const CudaPipeline kSharedNeighbored, kSharedNeighboredLess, kSharedInterleaved, kSharedFirstAdd,
    kSharedUnrollWarp;
extern const CudaPipeline kSharedAtomic, kWarpSync, kWarpShuffle, kCooperativeGroupsTree, kCooperativeGroups;
extern const CudaPipeline kTwoLevelShuffle, kGridStrideTwoPass, kDivergentMap, kUniformMap, kCub, kSinglePass;

// Reads `bytes` of device memory, a multiple of 16, and keeps nothing: the yardstick. In cuda/read_all.cu.
cudaError_t LaunchReadAll(const void* data, std::int64_t bytes, int multiprocessors, cudaStream_t stream);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_PIPELINE_H_
