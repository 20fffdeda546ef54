// The fold of histogram: a count for each bin.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/folds/elements.h"
#include "kernels/folds/fold_array.h"
#include "kernels/folds/folds.h"
#include "kernels/folds/histogram_bins.h"
#include "kernels/folds/scan_tiles.h"

namespace reduced {
namespace {

template <class T>
class HistogramFold final : public FoldOf<HistogramFold<T>> {
 public:
  HistogramFold(const OpCall& call, const ReduceSpec& spec, const FoldLimits& limits)
      : FoldOf<HistogramFold>(call, spec, limits), bins_memory_(limits), counts_(limits) {}

  absl::Status Begin(std::int64_t /*count*/) override {
    if (bins_ == nullptr) {
      const std::vector<double>& edges = this->call_.given().edges;
      absl::Status status = bins_memory_.Hold(HistogramBins<T>::BytesFor(std::ssize(edges)));
      if (!status.ok()) return status;
      bins_ = std::make_shared<const HistogramBins<T>>(edges);
    }
    tables_ = bins_->bins() <= kFewBins ? kTables : 1;
    return counts_.Zero(tables_ * entries());
  }

  absl::StatusOr<std::unique_ptr<DistributionFold>> Part() override {
    auto part = std::make_unique<HistogramFold>(this->call_, this->spec_, this->limits_);
    part->bins_ = bins_;
    if (absl::Status status = part->Begin(0); !status.ok()) return status;
    return part;
  }

  absl::Status Add(const void* elements, const void* /*others*/, std::int64_t /*first*/, std::int64_t count) override {
    if constexpr (std::is_floating_point_v<T>) {
      if (bins_->finder().margin < 0.5) return AddTiles(static_cast<const std::byte*>(elements), count);
    }
    bins_->Count(elements, count, counts_.data());
    return absl::OkStatus();
  }

  absl::Status Merge(DistributionFold& part) override {
    const FoldArray<std::uint64_t>& more = static_cast<HistogramFold&>(part).counts_;
    for (std::size_t i = 0; i < static_cast<std::size_t>(counts_.size()); ++i) counts_[i] += more[i];
    return absl::OkStatus();
  }

  absl::Status Finish(IndexOf /*index_of*/, std::byte* answers) override {
    JoinTables();
    for (std::int64_t bin = 0; bin < bins_->bins(); ++bin) StoreAt(bins_->In(bin, counts_.data()), bin, answers);
    return absl::OkStatus();
  }

  absl::Status Save(IndexOf /*index_of*/, Entries* to) override {
    JoinTables();
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
  // Few bins have several tables, so that an element seldom waits until the count of the one before is stored.
  static constexpr std::int64_t kFewBins = 4096, kTables = 4;

  // Of a table: bins() + 1 as of HistogramBins::Count, and one for elements that no bin has.
  std::int64_t entries() const { return bins_->bins() + 2; }

  absl::Status AddTiles(const std::byte* elements, std::int64_t count) {
    constexpr std::int64_t kTile = 1024, kWidth = sizeof(T);
    const BinFinder<T>& finder = bins_->finder();
    if (finder.used == 0) return absl::OkStatus();
    const BinRule<T> rule{finder.first,
                          finder.last,
                          static_cast<T>(finder.from),
                          static_cast<T>(finder.scale),
                          finder.margin,
                          static_cast<std::int32_t>(bins_->bins() + 1)};
    std::uint64_t* table[kTables];
    for (std::int64_t i = 0; i < kTables; ++i) table[i] = counts_.data() + (i < tables_ ? i : 0) * entries();
    std::int32_t bins[kTile];
    for (std::int64_t done = 0; done < count; done += kTile) {
      const std::byte* const tile = elements + done * kWidth;
      const std::int64_t size = std::min(kTile, count - done);
      if constexpr (kWidth == 4) {
        ScanTilesHere().f32_bins(tile, size, rule, bins);
      } else {
        ScanTilesHere().f64_bins(tile, size, rule, bins);
      }
      for (std::int64_t i = 0; i < size; ++i) {
        std::int32_t bin = bins[i];
        if (bin < 0) {
          const T x = ElementAt<T>(tile, i);
          bin = finder.BinOf(x, x);
        }
        ++table[i % kTables][bin];
      }
    }
    return absl::OkStatus();
  }

  void JoinTables() {
    for (std::int64_t i = entries(); i < counts_.size(); ++i) {
      counts_[static_cast<std::size_t>(i % entries())] += std::exchange(counts_[static_cast<std::size_t>(i)], 0);
    }
  }

  FoldLease bins_memory_;                         // of the fold that made the bins
  std::shared_ptr<const HistogramBins<T>> bins_;  // of all parts
  std::int64_t tables_ = 1;
  FoldArray<std::uint64_t> counts_;  // a table after the other
};

}  // namespace

std::unique_ptr<DistributionFold> MakeHistogramFold(const OpCall& call, const ReduceSpec& spec,
                                                    const FoldLimits& limits) {
  return MakeFoldOf<HistogramFold>(call, spec, limits);
}

}  // namespace reduced
