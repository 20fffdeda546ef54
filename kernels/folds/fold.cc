#include "kernels/folds/fold.h"

#include <algorithm>
#include <iterator>

#include "kernels/exact/terms.h"
#include "kernels/folds/compare.h"
#include "kernels/folds/folds.h"
#include "kernels/folds/sketch.h"

namespace reduced {
namespace {

struct FoldRow {
  Op op;
  MakeFold* make;
};
constexpr FoldRow kFolds[] = {
    {Op::kMedian, &MakeQuantileFold},
    {Op::kQuantile, &MakeQuantileFold},
    {Op::kWeightedMedian, &MakeWeightedQuantileFold},
    {Op::kWeightedQuantile, &MakeWeightedQuantileFold},
    {Op::kHistogram, &MakeHistogramFold},
    {Op::kTopK, &MakeTopFold},
    {Op::kBottomK, &MakeTopFold},
    {Op::kArgTopK, &MakeTopFold},
    {Op::kArgBottomK, &MakeTopFold},
    {Op::kDistinct, &MakeDistinctFold},
    {Op::kDistinctExact, &MakeDistinctFold},
    {Op::kMode, &MakeModeFold},
    {Op::kCovMatrix, &MakeMatrixFold},
    {Op::kCorrMatrix, &MakeMatrixFold},
    {Op::kCompare, &MakeCompareFold},
    {Op::kFingerprint, &MakeFingerprintFold},
    {Op::kDistanceMax, &MakeLargestDistanceFold},
};

}  // namespace

absl::Status DistributionFold::Finish(IndexOf /*index_of*/, std::byte* /*answers*/) {
  return absl::InternalError("a fold of states answers nothing");
}
absl::Status DistributionFold::Save(IndexOf /*index_of*/, Entries* /*to*/) {
  return absl::InternalError("a fold that has no state was asked for one");
}
absl::Status DistributionFold::Load(const Entries& /*from*/) {
  return absl::InternalError("a fold that has no state was given one");
}

std::unique_ptr<DistributionFold> MakeDistributionFold(const OpCall& call, const ReduceSpec& spec,
                                                       const FoldLimits& limits) {
  const FoldRow* const row = std::ranges::find(kFolds, call.op, &FoldRow::op);
  return (row == std::end(kFolds) ? &MakeTermSumsFold : row->make)(call, spec, limits);  // others have sums of terms
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
