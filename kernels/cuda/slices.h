// Reductions along axes on a CUDA device: the launches that CudaLane::ReduceSlices is made of.
//
// Requests whose ops are answered from a few accumulators (QuickSlices) have kernels that write the answers on the
// device, in registers until then. Sums are kept as two doubles with a test of whether anything was lost; the outputs
// that this is not enough for are put on a list. LaunchSliceStates folds those, and everything else, to the states
// that the host finalizes.
#ifndef REDUCED_KERNELS_CUDA_SLICES_H_
#define REDUCED_KERNELS_CUDA_SLICES_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/op.h"
#include "kernels/algebra/partial.h"
#include "kernels/exact/digits.h"

namespace reduced {

// Joined dimensions of one kind, kept or reduced, from the outermost. Arrays have at most 63 of size 2 or more, and
// neighbours are of different kinds.
struct SliceDimensions {
  static constexpr int kMost = 32;
  int count = 0;
  std::int64_t size[kMost] = {};
  std::int64_t stride[kMost] = {};  // in elements
};

// An array in device memory and how it falls apart, as Layout. Has outputs, and outputs have elements.
struct SliceArray {
  const void* data = nullptr;  // aligned to the element's size
  std::int64_t outputs = 1;
  std::int64_t elements = 1;  // of each output
  SliceDimensions kept;
  SliceDimensions reduced;
};

// Folds outputs to states, whatever the accumulators and the layout.
struct SliceStatesLaunch {
  DType dtype = DType::kF32;
  AccumulatorSet accumulators = 0;
  AccumulatorSet exact_accumulators = 0;  // of ExactDigits, of floats
  bool omit_nan = false;
  SliceArray array;
  const std::int64_t* list = nullptr;  // device memory: the outputs; null: from `first` on
  std::int64_t first = 0;
  int count = 0;                  // outputs, > 0
  int parts = 1;                  // that each output is cut into, at most 65535
  Partial* partials = nullptr;    // device memory, `parts` of each output; their `count` is not set
  ExactDigits* digits = nullptr;  // likewise; null: no exact accumulators
  cudaStream_t stream = nullptr;
};
cudaError_t LaunchSliceStates(const SliceStatesLaunch& launch);

// Which accumulators the kernels that answer on the device have.
enum class SliceBundle : std::uint8_t {
  kNone,         // those of no bundle: LaunchSliceStates
  kSums,         // sum, mean
  kExtrema,      // min, max, argmin, argmax, range
  kPowers,       // floats: those of kSums, and var, std, sum_squares, l2
  kDescription,  // floats: those of kPowers and kExtrema, the counts; leaves out NaNs
};
inline constexpr int kMaxSliceOps = 16;

// Answers outputs on the device. Sums of floats are exact.
struct QuickSlices {
  DType dtype = DType::kF32;
  SliceBundle bundle = SliceBundle::kSums;
  bool omit_nan = false;
  std::int64_t ddof = 0;
  int ops = 0;
  Op op[kMaxSliceOps] = {};
  void* answers[kMaxSliceOps] = {};  // device memory: of each op, an element of ResultDType() for each output
  std::uint64_t element_nan = 0;     // the bits of the NaN that is an extremum
  SliceArray array;                  // at most 2^31 elements an output
  // Device memory: the outputs that must be folded otherwise, in any order, and how many; the latter 0 before.
  std::int64_t* redo = nullptr;
  unsigned long long* redo_count = nullptr;
  void* states = nullptr;  // QuickSlicesPlan::states_bytes of device memory
  int multiprocessors = 0;
  cudaStream_t stream = nullptr;
};

// The bundle for these ops, kNone if there is none for them or for the dtype.
SliceBundle SliceBundleFor(DType dtype, const Op* ops, std::size_t count, bool omit_nan);

// How the launch cuts outputs into parts, whose states it merges with another kernel.
struct QuickSlicesPlan {
  std::size_t states_bytes = 0;
};
QuickSlicesPlan PlanOf(const QuickSlices& slices);
cudaError_t LaunchQuickSlices(const QuickSlices& slices);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_SLICES_H_
