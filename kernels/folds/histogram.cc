// The fold of histogram: a count for each bin.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/folds/elements.h"
#include "kernels/folds/folds.h"
#include "kernels/folds/histogram_bins.h"

namespace reduced {
namespace {

template <class T>
class HistogramFold final : public DistributionFold {
 public:
  explicit HistogramFold(std::shared_ptr<const HistogramBins<T>> bins)
      : bins_(std::move(bins)), counts_(static_cast<std::size_t>(bins_->bins()) + 1) {}

  void Begin(std::int64_t /*count*/) override { counts_.assign(counts_.size(), 0); }
  std::unique_ptr<DistributionFold> Part() const override { return std::make_unique<HistogramFold>(bins_); }

  absl::Status Add(const void* elements, std::int64_t /*first*/, std::int64_t count) override {
    bins_->Count(elements, count, counts_.data());
    return absl::OkStatus();
  }

  absl::Status Merge(DistributionFold& part) override {
    const std::vector<std::uint64_t>& more = static_cast<HistogramFold&>(part).counts_;
    for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += more[i];
    return absl::OkStatus();
  }

  absl::Status Finish(absl::FunctionRef<std::int64_t(std::int64_t)> /*index_of*/, std::byte* answers) override {
    for (std::int64_t bin = 0; bin < bins_->bins(); ++bin) StoreAt(bins_->In(bin, counts_.data()), bin, answers);
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<const HistogramBins<T>> bins_;  // of all parts
  std::vector<std::uint64_t> counts_;
};

}  // namespace

std::unique_ptr<DistributionFold> MakeHistogramFold(const OpCall& call, const ReduceSpec& spec) {
  return VisitDType(spec.dtype, [&]<class T>(std::type_identity<T>) -> std::unique_ptr<DistributionFold> {
    return std::make_unique<HistogramFold<T>>(std::make_shared<const HistogramBins<T>>(call.given().edges));
  });
}

}  // namespace reduced
