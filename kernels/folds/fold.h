// Folds of the ops about the distribution of elements, and about pairs of elements. A fold has what one op needs to
// know of the elements of one output that were added so far. It knows neither partitions nor threads; the driver that
// adds the elements knows no op (cpu/distributions.h).
//
// What a fold answers does not depend on how the elements were cut, nor on the order in which parts were merged: it
// counts, finds maxima, and selects by order keys. A fold may ask for the elements again, with what it has learned.
// Parts of an array in several processes merge by the entries of their states (algebra/entries.h).
#ifndef REDUCED_KERNELS_FOLDS_FOLD_H_
#define REDUCED_KERNELS_FOLDS_FOLD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/algebra/entries.h"
#include "kernels/algebra/op_call.h"
#include "kernels/algebra/spec.h"

namespace reduced {

// What folds ask for memory (fold_array.h), and whether their answers are still wanted. Thread-safe.
struct FoldLimits {
  std::function<absl::Status(std::int64_t bytes)> take;  // RESOURCE_EXHAUSTED, with figures: there is not so much
  std::function<void(std::int64_t bytes)> give;
  std::function<absl::Status()> why_stop;  // OK, while the answer is wanted
};

// What answers call the index of an element, by its rank; ascends with it.
using IndexOf = absl::FunctionRef<std::int64_t(std::int64_t rank)>;

// RESOURCE_EXHAUSTED of any function: there is no memory. Other errors of functions that return none of their own are
// those of FoldLimits::why_stop, which is asked by whatever may take more than a few milliseconds.
class DistributionFold {
 public:
  virtual ~DistributionFold() = default;

  // Forgets everything, and begins an output of `count` elements, NaNs included.
  virtual absl::Status Begin(std::int64_t count) = 0;

  // How many elements, from all over the output, this fold wants to see before the first pass; 0: none. Sample gets
  // them all at once, at any address. A driver may leave this out: passes are more, and answers the same.
  virtual std::int64_t SampleElements() const { return 0; }
  virtual absl::Status Sample(const void* /*elements*/, std::int64_t /*count*/) { return absl::OkStatus(); }

  // A fold that has no element yet, for this pass over this output. It does not outlive this fold. May be called while
  // elements are added to this fold or to other parts. A pass goes on without a part for which there is no memory.
  virtual absl::StatusOr<std::unique_ptr<DistributionFold>> Part() = 0;

  // Adds the elements at ranks [first, first + count) of the output, which lie at any address. Ranks ascend from call
  // to call. Different parts may be added to at the same time. `others`: as many elements of the op's other operand, of
  // dtype OpParameters.other; null if the op has none. Of fingerprint: the positions of the elements, as i64, where
  // they are not their ranks.
  virtual absl::Status Add(const void* elements, const void* others, std::int64_t first, std::int64_t count) = 0;

  // Adds what a part has. `part` has the same type, and is of no use afterwards.
  virtual absl::Status Merge(DistributionFold& part) = 0;

  // After all elements were added: whether they are to be added once more.
  virtual absl::StatusOr<bool> NextPass() { return false; }

  // Writes AnswerElements(call) elements of ResultDType(call) to any address. INVALID_ARGUMENT: the output has too few
  // elements. OUT_OF_RANGE: an integer that its type does not hold, by the overflow policy.
  // Of a fold of MakeDistributionFold.
  virtual absl::Status Finish(IndexOf index_of, std::byte* answers);

  // After the last pass: adds what it has to entries of a state, which have none. Of a fold of MakeStateFold.
  virtual absl::Status Save(IndexOf index_of, Entries* to);

  // Forgets everything, and has what the state of an output has; only Finish follows. Ranks are then the indexes of the
  // state. Of a fold of MakeDistributionFold.
  virtual absl::Status Load(const Entries& from);
};

// The fold that answers an op of the distribution. `spec`: its dtype and policies. The limits outlive the fold.
std::unique_ptr<DistributionFold> MakeDistributionFold(const OpCall& call, const ReduceSpec& spec,
                                                       const FoldLimits& limits);
// The fold that has the state of an op: of a quantile another one.
std::unique_ptr<DistributionFold> MakeStateFold(const OpCall& call, const ReduceSpec& spec, const FoldLimits& limits);

// How many entries the state of an output has at most, however many elements it has. Absent: as many as the elements
// have values, or highest bits; or the op has no state.
std::optional<std::int64_t> MostEntries(const OpCall& call, DType dtype);

// Writes what the state of an output answers, as Finish. INVALID_ARGUMENT also: the state of a quantile has only the
// highest bits of the elements. `fold`: any of MakeDistributionFold, of the same call.
absl::Status AnswerFromState(const Entries& state, DistributionFold& fold, std::byte* answers);

}  // namespace reduced

#endif  // REDUCED_KERNELS_FOLDS_FOLD_H_
