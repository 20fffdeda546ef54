// The fold of the states of median and quantile: how many elements there are with the same highest bits of their sort
// keys. Long outputs have a table of counts, if it is not too large; of others the keys are sorted and counted in
// batches.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/algebra/float_format.h"
#include "kernels/algebra/sort_key.h"
#include "kernels/folds/elements.h"
#include "kernels/folds/fold_array.h"
#include "kernels/folds/folds.h"

namespace reduced {
namespace {

constexpr std::int64_t kLongOutput = std::int64_t{1} << 16;    // elements
constexpr std::uint64_t kMostCounts = std::uint64_t{1} << 21;  // of a table
constexpr std::int64_t kLeastBatch = std::int64_t{1} << 18;    // keys
constexpr std::int64_t kMostBatch = std::int64_t{1} << 22;     // which are sorted without a look at the deadline
constexpr std::int64_t kEntryBytes = 16;
constexpr std::int64_t kCopies = 2;  // of the sums, while they are merged
constexpr int kMostDigit = 21;
constexpr int kFilterBits = 16;  // that tell most elements without a prefix

template <class T>
class KeyCountsFold final : public FoldOf<KeyCountsFold<T>> {
 public:
  using Key = SortKey<T>;
  using Word = typename Key::Type;

  KeyCountsFold(const OpCall& call, const ReduceSpec& spec, const FoldLimits& limits)
      : FoldOf<KeyCountsFold>(call, spec, limits),
        bits_(CountedBits(call, spec.dtype)),
        counts_(limits),
        batch_(limits),
        sums_memory_(limits) {
    if (within().empty()) return;
    filter_.assign(std::size_t{1} << filter_bits(), 0);
    for (const std::uint64_t prefix : within()) filter_[prefix >> (within_bits() - filter_bits())] = 1;
  }

  absl::Status Begin(std::int64_t count) override {
    const int digit = bits_ - within_bits();
    const std::uint64_t prefixes = std::max<std::uint64_t>(within().size(), 1);
    const bool table = count > kLongOutput && digit <= kMostDigit && prefixes << digit <= kMostCounts;
    return Start(table ? static_cast<std::int64_t>(prefixes << digit) : 0, std::min(count, kLeastBatch));
  }
  absl::StatusOr<std::unique_ptr<DistributionFold>> Part() override {
    auto part = std::make_unique<KeyCountsFold>(call_, this->spec_, limits_);
    if (absl::Status status = part->Start(counts_.size(), kLeastBatch); !status.ok()) return status;
    return part;
  }

  absl::Status Add(const void* elements, const void* /*others*/, std::int64_t /*first*/, std::int64_t count) override {
    const int shift = Key::kBits - bits_, digit = bits_ - within_bits();
    const std::uint64_t mask = digit == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << digit) - 1;
    const bool all = within().empty(), table = counts_.size() > 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const Word key = Key::Of(ElementAt<T>(elements, i));
      if (kIsFloat<T> && key == Key::kNan) {
        ++nans_;
        continue;
      }
      const auto highest = static_cast<std::uint64_t>(key >> shift);
      std::uint64_t prefix = 0;
      if (!all && !FindPrefix(key, &prefix)) continue;
      if (table) {
        ++counts_[prefix << digit | (highest & mask)];
        continue;
      }
      if (has_ == batch_.size()) {
        absl::Status status = CountBatch();
        // The larger the sums are, the less often they are merged.
        if (status.ok()) status = batch_.Resize(std::clamp(std::ssize(sums_.keys), kLeastBatch, kMostBatch));
        if (!status.ok()) return status;
      }
      batch_[static_cast<std::size_t>(has_++)] = highest;
    }
    return absl::OkStatus();
  }

  absl::Status Merge(DistributionFold& part) override {
    auto& other = static_cast<KeyCountsFold&>(part);
    nans_ += other.nans_;
    for (std::size_t i = 0; i < static_cast<std::size_t>(counts_.size()); ++i) counts_[i] += other.counts_[i];
    absl::Status status = other.CountBatch();
    if (status.ok()) status = AddSums(other.sums_);
    return status;
  }

  absl::Status Save(IndexOf /*index_of*/, Entries* to) override {
    if (absl::Status status = CountBatch(); !status.ok()) return status;
    const int digit = bits_ - within_bits();
    for (std::size_t i = 0; i < static_cast<std::size_t>(counts_.size()); ++i) {
      if (counts_[i] == 0) continue;
      const std::uint64_t prefix = within().empty() ? 0 : within()[i >> digit];
      to->Add(LeastKey(prefix << digit | (i & ((std::size_t{1} << digit) - 1))), counts_[i]);
    }
    for (std::size_t i = 0; i < sums_.keys.size(); ++i) to->Add(LeastKey(sums_.keys[i]), sums_.values[i]);
    if (nans_ > 0 && within().empty()) to->Add(Key::kNan, nans_);
    return absl::OkStatus();
  }

 private:
  const std::vector<std::uint64_t>& within() const { return call_.given().counts.within; }
  int within_bits() const { return call_.given().counts.within_bits; }
  int filter_bits() const { return std::min(within_bits(), kFilterBits); }

  bool FindPrefix(Word key, std::uint64_t* number) const {
    if (filter_[key >> (Key::kBits - filter_bits())] == 0) return false;
    const std::uint64_t prefix = key >> (Key::kBits - within_bits());
    const auto found = std::lower_bound(within().begin(), within().end(), prefix);
    *number = static_cast<std::uint64_t>(found - within().begin());
    return found != within().end() && *found == prefix;
  }

  // The least key of an element that has these highest bits.
  std::uint64_t LeastKey(std::uint64_t highest) const {
    const auto key = static_cast<Word>(highest << (Key::kBits - bits_));
    if constexpr (kIsFloat<T>) return std::max(key, Key::Lowest());
    return key;
  }

  // `table`: entries of the table; 0: there is none, but batches, the first of which has so many keys.
  absl::Status Start(std::int64_t table, std::int64_t batch) {
    nans_ = 0;
    has_ = 0;
    sums_ = {};
    sums_memory_.Release();
    absl::Status status = counts_.Zero(table);
    if (status.ok() && table == 0) status = batch_.Resize(batch);
    return status;
  }

  absl::Status CountBatch() {
    absl::Status status = sums_memory_.Hold(kCopies * (sums_.bytes() + has_ * kEntryBytes));
    if (status.ok()) status = limits_.why_stop();
    if (!status.ok()) return status;
    std::sort(batch_.begin(), batch_.begin() + has_);
    Entries more;
    for (const std::uint64_t* key = batch_.begin(); key != batch_.begin() + has_; ++key) {
      if (more.keys.empty() || more.keys.back() != *key) more.Add(*key, 0);
      ++more.values.back();
    }
    has_ = 0;
    return AddSums(more);
  }

  absl::Status AddSums(const Entries& more) {
    absl::Status status = sums_memory_.Hold(kCopies * (sums_.bytes() + more.bytes()));
    if (status.ok()) status = limits_.why_stop();
    if (status.ok()) reduced::Merge(more, &sums_);
    return status;
  }

  using FoldOf<KeyCountsFold>::call_;
  using FoldOf<KeyCountsFold>::limits_;
  const int bits_;                    // that are counted by
  std::vector<std::uint8_t> filter_;  // by the highest bits: 1 for those of a prefix; 64 KiB
  FoldArray<std::uint64_t> counts_;   // by prefix and digit; none: sums_ has them
  FoldArray<std::uint64_t> batch_;    // highest bits that are not counted yet,
  std::int64_t has_ = 0;              // so many
  Entries sums_;
  FoldLease sums_memory_;
  std::uint64_t nans_ = 0;
};

}  // namespace

std::unique_ptr<DistributionFold> MakeKeyCountsFold(const OpCall& call, const ReduceSpec& spec,
                                                    const FoldLimits& limits) {
  return MakeFoldOf<KeyCountsFold>(call, spec, limits);
}

}  // namespace reduced
