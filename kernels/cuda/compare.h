// Comparisons of two arrays on a CUDA device: the launch that finds the figures of all pairs in one read of both
// arrays.
#ifndef REDUCED_KERNELS_CUDA_COMPARE_H_
#define REDUCED_KERNELS_CUDA_COMPARE_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/algebra/dtype.h"
#include "kernels/cuda/pair_figures.h"

namespace reduced {

struct CompareLaunch {
  DType dtype = DType::kF32;  // of both arrays: one that has kernels
  const void* x = nullptr;    // device memory, aligned to the size of an element, as y
  const void* y = nullptr;
  std::int64_t count = 0;  // pairs, > 0
  PairRules rules{};
  int blocks = 1;                // >= 2
  ComparedPairs* out = nullptr;  // device memory, `blocks` of them: each has the pairs of a block
  // Device memory: pairs of floats whose squared distances are to be added up, in no order. Those beyond the room are
  // lost, and *gathered, zero before, is greater than it.
  unsigned long long* gathered = nullptr;
  void* gathered_x = nullptr;
  void* gathered_y = nullptr;
  unsigned room = 0;
  cudaStream_t stream = nullptr;
};

// How many blocks a launch is to have.
int CompareBlocks(DType dtype, std::int64_t count, int multiprocessors);

// Asynchronous; returns the first error of its launches.
cudaError_t LaunchCompare(const CompareLaunch& launch);

// Calls visit(T{}) with the type of PairFigures for elements of a dtype that has kernels.
template <class Visit>
auto VisitPairType(DType dtype, const Visit& visit) {
  switch (dtype) {
    case DType::kF16:
      return visit(Half{});
    case DType::kBF16:
      return visit(BFloat16{});
    case DType::kF32:
      return visit(float{});
    case DType::kF64:
      return visit(double{});
    default:
      break;
  }
  switch (RowOf(dtype).bytes) {
    case 1:
      return visit(std::uint8_t{});
    case 2:
      return visit(std::uint16_t{});
    case 4:
      return visit(std::uint32_t{});
    default:
      return visit(std::uint64_t{});
  }
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_COMPARE_H_
