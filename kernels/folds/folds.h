// The folds, each in the file of its name; MakeDistributionFold chooses among them.
#ifndef REDUCED_KERNELS_FOLDS_FOLDS_H_
#define REDUCED_KERNELS_FOLDS_FOLDS_H_

#include <memory>

#include "kernels/folds/fold.h"

namespace reduced {

std::unique_ptr<DistributionFold> MakeHistogramFold(const OpCall& call, const ReduceSpec& spec);
std::unique_ptr<DistributionFold> MakeQuantileFold(const OpCall& call, const ReduceSpec& spec,
                                                   const FoldMemory& memory);
std::unique_ptr<DistributionFold> MakeTopFold(const OpCall& call, const ReduceSpec& spec);
std::unique_ptr<DistributionFold> MakeDistinctFold(const OpCall& call, const ReduceSpec& spec,
                                                   const FoldMemory& memory);
std::unique_ptr<DistributionFold> MakeModeFold(const OpCall& call, const ReduceSpec& spec);

}  // namespace reduced

#endif  // REDUCED_KERNELS_FOLDS_FOLDS_H_
