// The folds, each in the file of its name; fold.cc chooses among them.
#ifndef REDUCED_KERNELS_FOLDS_FOLDS_H_
#define REDUCED_KERNELS_FOLDS_FOLDS_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/folds/fold.h"

namespace reduced {

// What all folds are made from. A part is made from the same, and begins as an output does, if there is memory for it.
template <class Fold>
class FoldOf : public DistributionFold {
 public:
  FoldOf(const OpCall& call, const ReduceSpec& spec, const FoldLimits& limits)
      : call_(call), spec_(spec), limits_(limits) {}

  absl::StatusOr<std::unique_ptr<DistributionFold>> Part() override {
    auto part = std::make_unique<Fold>(call_, spec_, limits_);
    if (absl::Status status = part->Begin(0); !status.ok()) return status;
    return part;
  }

 protected:
  bool omits_nans() const { return spec_.nan_policy == NanPolicy::kOmit; }

  const OpCall call_;
  const ReduceSpec spec_;
  const FoldLimits& limits_;
};

// Makes a Fold<T> for the dtype T.
template <template <class T> class Fold>
std::unique_ptr<DistributionFold> MakeFoldOf(const OpCall& call, const ReduceSpec& spec, const FoldLimits& limits) {
  return VisitDType(spec.dtype, [&]<class T>(std::type_identity<T>) -> std::unique_ptr<DistributionFold> {
    return std::make_unique<Fold<T>>(call, spec, limits);
  });
}

using MakeFold = std::unique_ptr<DistributionFold>(const OpCall& call, const ReduceSpec& spec,
                                                   const FoldLimits& limits);
MakeFold MakeHistogramFold, MakeQuantileFold, MakeWeightedQuantileFold, MakeKeyCountsFold, MakeTopFold,
    MakeDistinctFold, MakeModeFold, MakeTermSumsFold, MakeLargestDistanceFold, MakeMatrixFold, MakeFingerprintFold,
    MakeCompareFold;

}  // namespace reduced

#endif  // REDUCED_KERNELS_FOLDS_FOLDS_H_
