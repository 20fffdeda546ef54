#include "kernels/folds/fold.h"

#include <iterator>

#include "kernels/exact/terms.h"
#include "kernels/folds/compare.h"
#include "kernels/folds/folds.h"
#include "kernels/folds/sketch.h"

namespace reduced {

std::unique_ptr<DistributionFold> MakeDistributionFold(const OpCall& call, const ReduceSpec& spec,
                                                       const FoldLimits& limits) {
  switch (call.op) {
    case Op::kMedian:
    case Op::kQuantile:
      return MakeQuantileFold(call, spec, limits);
    case Op::kWeightedMedian:
    case Op::kWeightedQuantile:
      return MakeWeightedQuantileFold(call, spec, limits);
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
    case Op::kSkew:
    case Op::kKurtosis:
      return MakeShapeFold(call, spec, limits);
    case Op::kCovMatrix:
    case Op::kCorrMatrix:
      return MakeMatrixFold(call, spec, limits);
    case Op::kCompare:
      return MakeCompareFold(call, spec, limits);
    case Op::kFingerprint:
      return MakeFingerprintFold(call, spec, limits);
    case Op::kDot:
    case Op::kWeightedSum:
    case Op::kWeightedMean:
    case Op::kWeightedVar:
    case Op::kWeightedStd:
    case Op::kCov:
    case Op::kCorr:
    case Op::kSlope:
    case Op::kIntercept:
    case Op::kDistanceL1:
    case Op::kDistanceL2:
    case Op::kDistanceMax:
    case Op::kCosine:
      return MakePairSumsFold(call, spec, limits);
    default:
      __builtin_unreachable();  // a State's accumulators answer it
  }
}

std::unique_ptr<DistributionFold> MakeStateFold(const OpCall& call, const ReduceSpec& spec, const FoldLimits& limits) {
  return IsQuantile(call.op) ? MakeKeyCountsFold(call, spec, limits) : MakeDistributionFold(call, spec, limits);
}

std::optional<std::int64_t> MostEntries(const OpCall& call, DType dtype) {
  const OpParameters& given = call.given();
  if (IsWeightedQuantile(call.op)) return std::nullopt;
  if (call.op == Op::kHistogram) return static_cast<std::int64_t>(given.edges.size()) - 1;
  const Entries none = NoEntries(call, dtype);
  if (none.rule == EntriesRule::kFirst) return given.k;
  if (none.rule == EntriesRule::kIntegers) {
    constexpr std::int64_t kOthers = kTermCounts + kComparisonIntegers + kComparisonRecords * kRecordWords;
    const std::int64_t most = std::ssize(TermsOf(call.op)) * none.most + kOthers;
    return IsMatrix(call.op) ? PairsOfColumns(given.columns) * most : most;
  }
  if (call.op == Op::kDistanceMax) return 1;
  if (none.rule == EntriesRule::kPolynomial) return kFingerprintWords;
  if (RowOf(dtype).bytes <= 2) return std::int64_t{1} << (8 * RowOf(dtype).bytes);
  if (call.op == Op::kDistinct) return std::int64_t{1} << kSketchBits;
  return std::nullopt;
}

absl::Status AnswerFromState(const Entries& state, DistributionFold& fold, std::byte* answers) {
  if (absl::Status status = fold.Load(state); !status.ok()) return status;
  return fold.Finish([](std::int64_t rank) { return rank; }, answers);
}

}  // namespace reduced
