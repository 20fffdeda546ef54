// The fold of topk, bottomk, argtopk and argbottomk: the k best elements so far, and their ranks. An element that is
// better than the worst of k is put in a buffer; when that is full, its k best are selected.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/algebra/finalize.h"
#include "kernels/algebra/sort_key.h"
#include "kernels/folds/elements.h"
#include "kernels/folds/fold_array.h"
#include "kernels/folds/folds.h"
#include "kernels/folds/scan_tiles.h"

namespace reduced {
namespace {

template <class T>
class TopFold final : public FoldOf<TopFold<T>> {
 public:
  using Key = SortKey<T>;
  using Word = typename Key::Type;

  TopFold(const OpCall& call, const ReduceSpec& spec, const FoldLimits& limits)
      : FoldOf<TopFold>(call, spec, limits),
        k_(call.given().k),
        room_(std::max<std::int64_t>(4 * k_, 1024)),
        lowest_(call.op == Op::kBottomK || call.op == Op::kArgBottomK),
        best_(limits) {}

  absl::Status Begin(std::int64_t /*count*/) override {
    has_ = 0;
    full_ = false;
    return best_.Resize(room_ + k_);  // what a part has is put behind the others
  }
  absl::Status Add(const void* elements, const void* /*others*/, std::int64_t first, std::int64_t count) override {
    lowest_ ? AddEach<true>(elements, first, count) : AddEach<false>(elements, first, count);
    return absl::OkStatus();
  }

  absl::Status Merge(DistributionFold& part) override {
    auto& other = static_cast<TopFold&>(part);
    other.Select();
    std::copy_n(other.best_.begin(), other.has_, best_.begin() + has_);
    has_ += other.has_;
    Select();
    return absl::OkStatus();
  }

  absl::Status Finish(IndexOf index_of, std::byte* answers) override {
    std::sort(best_.begin(), best_.begin() + has_);
    const std::int64_t found = std::min(has_, k_);
    if (found < k_ && spec_.empty_policy == EmptyPolicy::kError) {
      return TooFew(spec_, call_, found);
    }
    const bool indexes = call_.op == Op::kArgTopK || call_.op == Op::kArgBottomK;
    for (std::int64_t at = 0; at < k_; ++at) {
      const Found* const best = best_.begin() + at;
      if (indexes) {
        StoreAt(at < found ? static_cast<std::uint64_t>(index_of(best->rank)) : ~std::uint64_t{0}, at, answers);
      } else if (at < found) {
        StoreAt(ElementOf(best->worse), at, answers);
      } else {
        StoreValue(EmptyValue(call_.op, spec_.dtype), answers + at * static_cast<std::int64_t>(sizeof(T)));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Save(IndexOf index_of, Entries* to) override {
    Select();
    std::sort(best_.begin(), best_.begin() + has_);
    for (const Found* best = best_.begin(); best != best_.begin() + has_; ++best) {
      to->Add(best->worse, static_cast<std::uint64_t>(index_of(best->rank)));
    }
    return absl::OkStatus();
  }
  absl::Status Load(const Entries& from) override {
    if (absl::Status status = Begin(0); !status.ok()) return status;
    for (std::size_t i = 0; i < from.keys.size(); ++i) {
      best_[i] = {static_cast<Word>(from.keys[i]), static_cast<std::int64_t>(from.values[i])};
    }
    has_ = std::ssize(from.keys);
    return absl::OkStatus();
  }

 private:
  struct Found {
    Word worse;  // 0: the best of all; NaNs that propagate have it
    std::int64_t rank;

    friend bool operator<(const Found& a, const Found& b) {
      return a.worse != b.worse ? a.worse < b.worse : a.rank < b.rank;
    }
  };

  // Descending keys count up from 0, which is that of NaNs; ascending keys make room for NaNs below the lowest.
  template <bool kLowest>
  static Word WorseOf(Word key) {
    if constexpr (!kLowest) return static_cast<Word>(~key);
    if constexpr (kIsFloat<T>) return static_cast<Word>(key + 1);
    return key;
  }
  T ElementOf(Word worse) const {
    if (!lowest_) return Key::Element(static_cast<Word>(~worse));
    return Key::Element(kIsFloat<T> ? static_cast<Word>(worse - 1) : worse);
  }

  template <bool kLowest>
  void AddEach(const void* elements, std::int64_t first, std::int64_t count) {
    const ScanTiles& scans = ScanTilesHere();
    const FindBlock find = (kLowest ? scans.not_above : scans.not_below)[static_cast<std::size_t>(kDTypeOf<T>) - 1];
    const auto* const at = static_cast<const std::byte*>(elements);
    for (std::int64_t begin = 0; begin < count; begin += kScanBlock) {
      if (full_ && find != nullptr) {  // where k others are as good or better, few elements are better
        if (bound_ == 0) return;
        const T better = ElementOf(static_cast<Word>(bound_ - 1));
        begin = find(at, begin / kScanBlock, count / kScanBlock, &better) * kScanBlock;
      }
      AddSome<kLowest>(elements, first, begin, std::min(count, begin + kScanBlock));
    }
  }

  template <bool kLowest>
  void AddSome(const void* elements, std::int64_t first, std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Word key = Key::Of(ElementAt<T>(elements, i));
      const Word worse = WorseOf<kLowest>(key);
      // Of equal elements the first ones are better, and ranks ascend.
      if (full_ && worse >= bound_) continue;
      if (kIsFloat<T> && key == Key::kNan && this->omits_nans()) continue;
      best_[static_cast<std::size_t>(has_++)] = {worse, first + i};
      if (has_ == room_) Select();
    }
  }

  // Leaves the k best.
  void Select() {
    if (has_ < k_) return;
    Found* const last = best_.begin() + k_ - 1;
    std::nth_element(best_.begin(), last, best_.begin() + has_);
    has_ = k_;
    bound_ = last->worse;
    full_ = true;
  }

  using FoldOf<TopFold>::call_;
  using FoldOf<TopFold>::spec_;
  const std::int64_t k_, room_;
  const bool lowest_;
  FoldArray<Found> best_;
  std::int64_t has_ = 0;  // of best_
  bool full_ = false;     // k elements are as good as bound_ or better
  Word bound_ = 0;
};

}  // namespace

std::unique_ptr<DistributionFold> MakeTopFold(const OpCall& call, const ReduceSpec& spec, const FoldLimits& limits) {
  return MakeFoldOf<TopFold>(call, spec, limits);
}

}  // namespace reduced
