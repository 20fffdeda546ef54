// The folds, each in the file of its name; MakeDistributionFold chooses among them.
#ifndef REDUCED_KERNELS_FOLDS_FOLDS_H_
#define REDUCED_KERNELS_FOLDS_FOLDS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/folds/fold.h"

namespace reduced {

// A part whose pass begins as an output does, if there is memory for it.
inline absl::StatusOr<std::unique_ptr<DistributionFold>> Begun(std::unique_ptr<DistributionFold> part) {
  if (absl::Status status = part->Begin(0); !status.ok()) return status;
  return part;
}

std::unique_ptr<DistributionFold> MakeHistogramFold(const OpCall& call, const ReduceSpec& spec,
                                                    const FoldLimits& limits);
std::unique_ptr<DistributionFold> MakeQuantileFold(const OpCall& call, const ReduceSpec& spec,
                                                   const FoldLimits& limits);
std::unique_ptr<DistributionFold> MakeWeightedQuantileFold(const OpCall& call, const ReduceSpec& spec,
                                                           const FoldLimits& limits);
std::unique_ptr<DistributionFold> MakeKeyCountsFold(const OpCall& call, const ReduceSpec& spec,
                                                    const FoldLimits& limits);
std::unique_ptr<DistributionFold> MakeTopFold(const OpCall& call, const ReduceSpec& spec, const FoldLimits& limits);
std::unique_ptr<DistributionFold> MakeDistinctFold(const OpCall& call, const ReduceSpec& spec,
                                                   const FoldLimits& limits);
std::unique_ptr<DistributionFold> MakeModeFold(const OpCall& call, const ReduceSpec& spec, const FoldLimits& limits);
std::unique_ptr<DistributionFold> MakeShapeFold(const OpCall& call, const ReduceSpec& spec, const FoldLimits& limits);
std::unique_ptr<DistributionFold> MakePairSumsFold(const OpCall& call, const ReduceSpec& spec,
                                                   const FoldLimits& limits);
std::unique_ptr<DistributionFold> MakeMatrixFold(const OpCall& call, const ReduceSpec& spec, const FoldLimits& limits);
std::unique_ptr<DistributionFold> MakeFingerprintFold(const OpCall& call, const ReduceSpec& spec,
                                                      const FoldLimits& limits);
std::unique_ptr<DistributionFold> MakeCompareFold(const OpCall& call, const ReduceSpec& spec, const FoldLimits& limits);

}  // namespace reduced

#endif  // REDUCED_KERNELS_FOLDS_FOLDS_H_
