#include "kernels/folds/fold.h"

#include "kernels/folds/folds.h"

namespace reduced {

std::unique_ptr<DistributionFold> MakeDistributionFold(const OpCall& call, const ReduceSpec& spec,
                                                       const FoldLimits& limits) {
  switch (call.op) {
    case Op::kMedian:
    case Op::kQuantile:
      return MakeQuantileFold(call, spec, limits);
    case Op::kHistogram:
      return MakeHistogramFold(call, spec, limits);
    case Op::kTopK:
    case Op::kBottomK:
    case Op::kArgTopK:
    case Op::kArgBottomK:
      return MakeTopFold(call, spec, limits);
    case Op::kDistinct:
    case Op::kDistinctExact:
      return MakeDistinctFold(call, spec, limits);
    case Op::kMode:
      return MakeModeFold(call, spec, limits);
    default:
      __builtin_unreachable();  // has a state
  }
}

}  // namespace reduced
