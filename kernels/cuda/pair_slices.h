// Ops about two arrays along axes on a CUDA device: launches that answer all outputs where both arrays are, in one read
// of them, as quick_slices.h does of one array. What an output is folded to is in pair_folds.h. Outputs that are not
// known so are added up as integers by LaunchPairDigits.
//
// A few lanes of a warp share a row, with loads of 16 bytes of both arrays where they allow it; a column is given to a
// thread. Outputs that are too few for the device are cut into parts, whose folds a second kernel merges.
#ifndef REDUCED_KERNELS_CUDA_PAIR_SLICES_H_
#define REDUCED_KERNELS_CUDA_PAIR_SLICES_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kernels/algebra/layout.h"
#include "kernels/cuda/pair_folds.h"
#include "kernels/cuda/pair_sums.h"

namespace reduced {

// Dimensions of one kind, kept or reduced, from the outermost, as SliceDimensions; and how far the elements of the
// other array lie from each other along them: 0 where it has one for all.
struct PairDimensions {
  static constexpr int kMost = 16;
  int count = 0;
  std::int64_t size[kMost] = {};
  std::int64_t x[kMost] = {};
  std::int64_t y[kMost] = {};
};

// Two arrays in device memory, and how they fall apart. Has outputs, and outputs have elements.
struct PairArray {
  const void* x = nullptr;  // aligned to an element, as y
  const void* y = nullptr;
  std::int64_t outputs = 1;
  std::int64_t elements = 1;  // of each output
  PairDimensions kept{};
  PairDimensions reduced{};
};
// Without its arrays. `broadcast`: of OtherArray. Absent: it takes more than PairDimensions::kMost dimensions of a
// kind.
std::optional<PairArray> PairArrayOf(const Layout& layout, std::span<const Dimension> broadcast);

struct PairPlan {
  bool columns = false;    // else rows
  bool vectors = false;    // rows: loads of 16 bytes
  int lanes = 1;           // of a warp, that share a row: a power of 2
  std::int64_t run = 1;    // neighbouring elements of a row
  std::int64_t parts = 1;  // that an output is cut into
};
PairPlan PlanPairSlices(const PairArray& array, int element_bytes, int multiprocessors, std::int64_t most_folds);

inline constexpr int kMostPairOps = 8;          // of a launch
inline constexpr int kMostPairFoldBytes = 128;  // of a fold

struct PairSlicesLaunch {
  DType dtype = DType::kF32;  // of floats, of both arrays
  PairFamily family = PairFamily::kMeans;
  PairQuestion question{};
  PairArray array{};
  PairPlan plan{};
  Op op[kMostPairOps] = {};
  double* answers[kMostPairOps] = {};  // to each of these ops, of all outputs
  int ops = 0;
  std::byte* folds = nullptr;     // device memory for the folds of all parts, if outputs have more than one
  std::uint32_t* open = nullptr;  // a bit of each output: is set if an answer is not known
  int multiprocessors = 1;
  cudaStream_t stream = nullptr;
};
// Asynchronous; returns the first error of its launches.
cudaError_t LaunchPairSlices(const PairSlicesLaunch& launch);

// Adds up some outputs as LaunchPairSums does one. In pair_sums.cu.
struct PairDigitsLaunch {
  DType dtype = DType::kF32;
  std::span<const SumTerm> terms{};     // of Op::kCorr or Op::kDistanceL1
  PairArray array{};                    // of at most PairDigits::kMostPairs pairs an output
  const std::int64_t* which = nullptr;  // device memory: `count` outputs
  std::int64_t count = 0;               // > 0
  PairDigits* out = nullptr;            // device memory: the identity before, for each of these outputs
  int multiprocessors = 1;
  cudaStream_t stream = nullptr;
};
cudaError_t LaunchPairDigits(const PairDigitsLaunch& launch);

#ifdef __CUDACC__
// Where item `index` of a row-major walk through the first `count` dimensions lies in both arrays.
struct PairOffset {
  std::int64_t x = 0;
  std::int64_t y = 0;
};
// Not inline: its divisions would take registers where there is one dimension.
__device__ __noinline__ inline PairOffset PairOffsetOfMany(const PairDimensions& dimensions, std::int64_t index,
                                                           int count) {
  PairOffset offset;
  for (int i = count - 1; i >= 0; --i) {
    std::int64_t whole = 0;
    if (i > 0) {
      const bool narrow = (index | dimensions.size[i]) >> 32 == 0;  // which is divided in a quarter of the time
      whole = narrow ? static_cast<unsigned>(index) / static_cast<unsigned>(dimensions.size[i])
                     : index / dimensions.size[i];
    }
    const std::int64_t at = index - whole * dimensions.size[i];
    offset.x += at * dimensions.x[i];
    offset.y += at * dimensions.y[i];
    index = whole;
  }
  return offset;
}
__device__ __forceinline__ PairOffset PairOffsetOf(const PairDimensions& dimensions, std::int64_t index, int count) {
  if (count > 1) return PairOffsetOfMany(dimensions, index, count);
  return count == 1 ? PairOffset{index * dimensions.x[0], index * dimensions.y[0]} : PairOffset{};
}
#endif

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_PAIR_SLICES_H_
