#include "kernels/cpu/tiles.h"

#include <algorithm>

#include "kernels/cpu/targets.h"

namespace reduced {

const TileFolds& TileFoldsOf(DType dtype) {
  return RowOf(dtype).is_float ? FloatTileFolds(dtype) : IntegerTileFolds(dtype);
}

TilePlan::TilePlan(DType dtype, AccumulatorSet accumulators, NanPolicy nan_policy)
    : element_bytes_(RowOf(dtype).bytes), folds_{} {
  const TileFolds& folds = TileFoldsOf(dtype);
  const auto add = [&](FoldTile fold, AccumulatorSet does) {
    if (fold == nullptr || (accumulators & does) != does) return;
    folds_[fold_count_++] = fold;
    accumulators &= ~does;
  };
  const auto add_one = [&](Accumulator a) { add(folds.of[static_cast<int>(a)], SetOf(a)); };
  constexpr AccumulatorSet kCountsAndExtrema = SetOf(Accumulator::kCounts) | SetOf(Accumulator::kExtrema);
  constexpr AccumulatorSet kSumAndMoments = SetOf(Accumulator::kSum) | SetOf(Accumulator::kMoments);
  if (nan_policy == NanPolicy::kPropagate) {
    constexpr AccumulatorSet kFour = kCountsAndExtrema | kSumAndMoments;
    add(folds.all_five, kFour | SetOf(Accumulator::kSumSquares));
    add(folds.all_four, kFour);
  }
  add(folds.counts_and_extrema, kCountsAndExtrema);
  add_one(Accumulator::kCounts);
  add_one(Accumulator::kExtrema);
  const int nan_aware_folds = fold_count_;
  add(folds.sum_and_moments, kSumAndMoments);
  for (int a = 0; a < kAccumulatorCount; ++a) add_one(static_cast<Accumulator>(a));
  nan_blind_folds_ = fold_count_ - nan_aware_folds;
  if (nan_policy == NanPolicy::kOmit) drop_nans_ = folds.drop_nans;
}

void TilePlan::Fold(const void* elements, std::int64_t first_index, std::int64_t count, Partial* into,
                    std::optional<Extent>* extent) const {
  if (extent != nullptr) extent->reset();
  const std::int64_t tile_elements = kTileBytes / element_bytes_;
  if (count > tile_elements) extent = nullptr;
  const auto* const begin = static_cast<const std::byte*>(elements);
  for (std::int64_t done = 0; done < count; done += tile_elements) {
    FoldOne({begin + done * element_bytes_, std::min(tile_elements, count - done), first_index + done, extent}, into);
  }
  if (drop_nans_ != nullptr) into->extrema.nan_index = kNoIndex;
}

void TilePlan::FoldOne(Tile tile, Partial* into) const {
  alignas(64) std::byte kept[kTileBytes];
  const std::int64_t nans_before = into->nan;
  for (int i = 0; i < fold_count_; ++i) {
    if (i == fold_count_ - nan_blind_folds_ && drop_nans_ != nullptr && into->nan != nans_before) {
      tile.count = drop_nans_(tile, kept);
      tile.data = kept;
      if (tile.count == 0) return;
    }
    folds_[i](tile, into);
  }
}

}  // namespace reduced
