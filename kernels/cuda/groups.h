// Reductions of segments, by keys and under masks on a CUDA device: the launches that CudaLane::ReduceGroups is made
// of.
#ifndef REDUCED_KERNELS_CUDA_GROUPS_H_
#define REDUCED_KERNELS_CUDA_GROUPS_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/op.h"
#include "kernels/algebra/partial.h"
#include "kernels/cuda/quick_folds.h"
#include "kernels/cuda/quick_kinds.h"
#include "kernels/cuda/slices.h"
#include "kernels/exact/digits.h"

namespace reduced {

// An array in device memory, how the positions of an output lie in it, and which of its elements count.
struct GroupArray {
  const void* data = nullptr;  // aligned to the element's size
  // With keys: position p of an output is row rows[start + p], of `columns` elements. Else null.
  const std::uint32_t* rows = nullptr;
  std::int64_t columns = 1;
  // Else: how far position p lies behind the first one.
  SliceDimensions reduced;
  // Which elements count; null: all of them. Bytes, or bits of which `first_bit` is that of element 0.
  const std::uint8_t* mask = nullptr;
  bool mask_bits = false;
  std::int64_t first_bit = 0;
};

// How positions lie in the array.
enum class Lie : std::uint8_t {
  kNeighbours,        // one after the other, and no mask leaves any of them out
  kMaskedNeighbours,  // likewise, with a mask
  kAny,
};

inline Lie LieOf(const GroupArray& array) {
  const bool neighbours =
      array.rows == nullptr && (array.reduced.count == 0 || (array.reduced.count == 1 && array.reduced.stride[0] == 1));
  if (!neighbours) return Lie::kAny;
  return array.mask == nullptr ? Lie::kNeighbours : Lie::kMaskedNeighbours;
}

// Positions [begin, end) of one output.
struct GroupPart {
  std::int64_t start = 0;   // with keys: of the output's rows; else the index of its position 0 in the array
  std::int64_t column = 0;  // with keys
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Folds parts of outputs to states, whatever the accumulators.
struct GroupStatesLaunch {
  DType dtype = DType::kF32;
  AccumulatorSet accumulators = 0;
  AccumulatorSet exact_accumulators = 0;  // of ExactDigits, of floats
  bool omit_nan = false;
  GroupArray array;
  const GroupPart* parts = nullptr;  // device memory
  int count = 0;                     // of parts, > 0
  Partial* partials = nullptr;       // device memory, one of each part; `count`: its elements that count
  ExactDigits* digits = nullptr;     // likewise; null: no exact accumulators
  cudaStream_t stream = nullptr;
};
cudaError_t LaunchGroupStates(const GroupStatesLaunch& launch);

// Where the positions of many outputs are.
struct GroupOutputs {
  // Device memory: output o, of group o / columns, has positions bounds[o / columns] to bounds[o / columns + 1] - 1 of
  // dimension 0 or, with keys, of the rows. Null: all have `elements` positions, the first as `kept` says.
  const std::int64_t* bounds = nullptr;
  std::int64_t columns = 1;
  std::int64_t elements = 0;
  SliceDimensions kept{};
};

// Answers the ops of one kind, by a few threads for each output: folds of quick_folds.h, in registers. Not those of
// more than `longest` positions, which is less than EndOfQuickElements().
struct QuickGroupsLaunch {
  QuickElements elements;  // without their count, which each output has its own of
  QuickKind kind = QuickKind::kSums;
  GroupArray array;
  GroupOutputs outputs{};
  std::int64_t first = 0;    // the number of an output, whose answers are the first
  std::int64_t count = 0;    // of outputs, > 0
  int width = 32;            // threads for each: a power of two, at most 32
  std::int64_t longest = 0;  // positions that these take
  // Positions that a warp takes, at least as many, and fewer than EndOfQuickElements().
  std::int64_t longest_of_warp = 0;
  QuickAnswer answers[kMostQuickOps] = {};
  int ops = 0;
  std::uint8_t* left = nullptr;  // of each output: kAnswered and so on
  bool after = false;            // another launch for the same outputs has set `left`
  cudaStream_t stream = nullptr;
};
inline constexpr std::uint8_t kAnswered = 0;
inline constexpr std::uint8_t kNotKnown = 1;  // it has no element, or the fold does not know its answer
inline constexpr std::uint8_t kTooLong = 2;   // it was not looked at
cudaError_t LaunchQuickGroups(const QuickGroupsLaunch& launch);

// What a part is folded to.
struct GroupPartFold {
  alignas(8) std::byte fold[kQuickFoldBytes];
  std::int64_t count = 0;  // elements that the mask leaves
};

// Folds parts, of outputs with fewer positions than EndOfQuickElements(), to the folds of one kind.
struct QuickPartsLaunch {
  QuickElements elements{};  // without their count
  QuickKind kind = QuickKind::kSums;
  GroupArray array;
  const GroupPart* parts = nullptr;  // device memory
  std::int64_t count = 0;            // of parts, > 0
  int threads = 256;                 // of a part: a warp's or a block's
  GroupPartFold* folds = nullptr;    // device memory, one of each part
  cudaStream_t stream = nullptr;
};
cudaError_t LaunchQuickParts(const QuickPartsLaunch& launch);

// Where outputs are, by their numbers.
struct LocateLaunch {
  GroupOutputs outputs{};  // with bounds
  GroupArray array{};
  const std::int64_t* numbers = nullptr;  // device memory
  std::int64_t count = 0;                 // of them, > 0
  GroupPart* wholes = nullptr;            // device memory: each output as one part
  cudaStream_t stream = nullptr;
};
cudaError_t LaunchLocate(const LocateLaunch& launch);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_GROUPS_H_
