// Reductions of many arrays in device memory by one launch: a table of pieces of them, of which each block takes some,
// one after the other, and reduces each alone. No block waits for another, and a launch costs what its bytes do.
#ifndef REDUCED_KERNELS_CUDA_MANY_ARRAYS_H_
#define REDUCED_KERNELS_CUDA_MANY_ARRAYS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/op.h"
#include "kernels/algebra/partial.h"
#include "kernels/exact/digits.h"

namespace reduced {

// Neighbouring elements of one array.
struct ManyPiece {
  const void* data = nullptr;   // device memory, aligned to the element's size
  std::int64_t count = 0;       // elements, > 0, at most kMaxLaunchElements
  std::int64_t base_index = 0;  // of the first one in its array
};

// Which pieces each block has.
struct ManyPieces {
  const ManyPiece* pieces = nullptr;  // device memory
  const unsigned* first = nullptr;    // likewise: block b has pieces first[b] to first[b + 1] - 1
  int blocks = 0;                     // > 0
};

struct ManyLaunch {
  DType dtype = DType::kF32;
  AccumulatorSet exact_accumulators = 0;
  AccumulatorSet others = 0;  // accumulators beside them
  bool omit_nan = false;      // of the others
  ManyPieces table{};
  Partial* partials = nullptr;    // memory that the device can write, one of each piece; all of it is written
  ExactDigits* digits = nullptr;  // likewise; null: no exact accumulators
  cudaStream_t stream = nullptr;
};

// Asynchronous; they return the first error of their launches.
cudaError_t LaunchManySums(const ManyLaunch& launch);   // with exact accumulators
cudaError_t LaunchManyFolds(const ManyLaunch& launch);  // without
// Whether these have kernels for such accumulators.
constexpr bool HaveManySums(AccumulatorSet exact_accumulators, AccumulatorSet others) {
  return (exact_accumulators & SetOf(Accumulator::kAbsSum)) == 0 &&
         (others & ~(SetOf(Accumulator::kExtrema) | SetOf(Accumulator::kCounts))) == 0;
}
constexpr bool HaveManyFolds(DType dtype, AccumulatorSet others) {
  const AccumulatorSet sums = SetOf(Accumulator::kSum) | SetOf(Accumulator::kSumSquares);
  return (others &
          ~(SetOf(Accumulator::kExtrema) | SetOf(Accumulator::kCounts) | (RowOf(dtype).is_float ? 0 : sums))) == 0;
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_MANY_ARRAYS_H_
