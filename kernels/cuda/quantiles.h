// Quantiles of many outputs at once on a CUDA device: the launch that CudaLane::GroupReduction::AnswerQuantiles is made
// of.
#ifndef REDUCED_KERNELS_CUDA_QUANTILES_H_
#define REDUCED_KERNELS_CUDA_QUANTILES_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/op_call.h"
#include "kernels/cuda/groups.h"

namespace reduced {

struct QuantilesLaunch {
  // The longest output that a launch takes: a block reads it several times, while nothing can stop it.
  static constexpr std::int64_t kMostPositions = std::int64_t{1} << 24;

  DType dtype = DType::kF32;
  bool omit_nan = false;
  bool is_median = false;
  QuantileMethod method = QuantileMethod::kLinear;
  const double* quantiles = nullptr;  // device memory
  int of_each = 1;                    // how many
  GroupArray array{};
  GroupOutputs outputs{};
  std::int64_t first = 0;              // the number of an output, whose answers are the first
  std::int64_t count = 0;              // of outputs, > 0
  std::int64_t positions = 0;          // of an output on average
  std::int64_t longest = 0;            // positions of outputs that are answered, at most kMostPositions
  std::int64_t most_shared_bytes = 0;  // that a block can have
  // Device memory, for each output: two keys for each quantile, an answer for each quantile, and kAnswered, kNotKnown
  // (it has no element; it is answered as under EmptyPolicy::kFill) or kTooLong.
  void* keys = nullptr;
  std::byte* answers = nullptr;
  std::uint8_t* left = nullptr;
  cudaStream_t stream = nullptr;
};
cudaError_t LaunchQuantiles(const QuantilesLaunch& launch);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_QUANTILES_H_
