// The fold of histogram: a count for each bin.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/folds/elements.h"
#include "kernels/folds/fold_array.h"
#include "kernels/folds/folds.h"
#include "kernels/folds/histogram_bins.h"

namespace reduced {
namespace {

template <class T>
class HistogramFold final : public DistributionFold {
 public:
  HistogramFold(const OpCall& call, const FoldLimits& limits)
      : call_(call), limits_(limits), bins_memory_(limits), counts_(limits) {}

  absl::Status Begin(std::int64_t /*count*/) override {
    if (bins_ == nullptr) {
      const std::vector<double>& edges = call_.given().edges;
      absl::Status status = bins_memory_.Hold(HistogramBins<T>::BytesFor(std::ssize(edges)));
      if (!status.ok()) return status;
      bins_ = std::make_shared<const HistogramBins<T>>(edges);
    }
    return counts_.Zero(bins_->bins() + 1);
  }

  absl::StatusOr<std::unique_ptr<DistributionFold>> Part() override {
    auto part = std::make_unique<HistogramFold>(call_, limits_);
    part->bins_ = bins_;
    return Begun(std::move(part));
  }

  absl::Status Add(const void* elements, const void* /*others*/, std::int64_t /*first*/, std::int64_t count) override {
    bins_->Count(elements, count, counts_.data());
    return absl::OkStatus();
  }

  absl::Status Merge(DistributionFold& part) override {
    const FoldArray<std::uint64_t>& more = static_cast<HistogramFold&>(part).counts_;
    for (std::size_t i = 0; i < static_cast<std::size_t>(counts_.size()); ++i) counts_[i] += more[i];
    return absl::OkStatus();
  }

  absl::Status Finish(absl::FunctionRef<std::int64_t(std::int64_t)> /*index_of*/, std::byte* answers) override {
    for (std::int64_t bin = 0; bin < bins_->bins(); ++bin) StoreAt(bins_->In(bin, counts_.data()), bin, answers);
    return absl::OkStatus();
  }

  absl::Status Save(absl::FunctionRef<std::int64_t(std::int64_t)> /*index_of*/, Entries* to) override {
    for (std::int64_t bin = 0; bin < bins_->bins(); ++bin) {
      const std::uint64_t count = bins_->In(bin, counts_.data());
      if (count > 0) to->Add(static_cast<std::uint64_t>(bin), count);
    }
    return absl::OkStatus();
  }
  absl::Status Load(const Entries& from) override {
    if (absl::Status status = Begin(0); !status.ok()) return status;
    for (std::size_t i = 0; i < from.keys.size(); ++i) counts_[from.keys[i]] = from.values[i];
    return absl::OkStatus();
  }

 private:
  const OpCall call_;
  const FoldLimits& limits_;
  FoldLease bins_memory_;                         // of the fold that made the bins
  std::shared_ptr<const HistogramBins<T>> bins_;  // of all parts
  FoldArray<std::uint64_t> counts_;
};

}  // namespace

std::unique_ptr<DistributionFold> MakeHistogramFold(const OpCall& call, const ReduceSpec& spec,
                                                    const FoldLimits& limits) {
  return VisitDType(spec.dtype, [&]<class T>(std::type_identity<T>) -> std::unique_ptr<DistributionFold> {
    return std::make_unique<HistogramFold<T>>(call, limits);
  });
}

}  // namespace reduced
