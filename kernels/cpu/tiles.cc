#include "kernels/cpu/tiles.h"

#include <algorithm>
#include <bit>

#include "kernels/algebra/order_key.h"
#include "kernels/cpu/targets.h"

namespace reduced {

const TileFolds& TileFoldsOf(DType dtype) {
  return RowOf(dtype).is_float ? FloatTileFolds(dtype) : IntegerTileFolds(dtype);
}

namespace {

// The keys of extrema of `from` become those of `to`, of the same values.
void ConvertKeys(DType from, DType to, ExtremaState* extrema) {
  if (extrema->min_index == kNoIndex) return;
  for (std::int64_t* const key : {&extrema->min_key, &extrema->max_key}) {
    const double value = VisitDType(from, [key]<class T>(std::type_identity<T>) {
      if constexpr (kIsFloat<T>) {
        return ToDouble(std::bit_cast<T>(BitsOfKey<T>(static_cast<typename OrderKey<T>::Type>(*key))));
      }
      return 0.0;
    });
    *key = VisitDType(to, [value]<class T>(std::type_identity<T>) -> std::int64_t {
      if constexpr (kIsFloat<T>) return WidenKey(OrderKey<T>::Of(FromDouble<T>(value)));
      return 0;
    });
  }
}

}  // namespace

TilePlan::TilePlan(DType dtype, AccumulatorSet accumulators, NanPolicy nan_policy)
    : dtype_(dtype), widen_(WidenElementsOf(dtype)), folds_{} {
  const TileFolds& folds = TileFoldsOf(WideDType(dtype));
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
  if (count > tile_elements()) extent = nullptr;
  const auto* const begin = static_cast<const std::byte*>(elements);
  alignas(64) std::byte wide[kTileBytes];
  if (widen_ != nullptr) ConvertKeys(dtype_, WideDType(dtype_), &into->extrema);
  for (std::int64_t done = 0; done < count; done += tile_elements()) {
    const std::byte* data = begin + done * RowOf(dtype_).bytes;
    const std::int64_t size = std::min(tile_elements(), count - done);
    if (widen_ != nullptr) data = (widen_(data, size, wide), wide);
    FoldOne({data, size, first_index + done, extent}, into);
  }
  if (widen_ != nullptr) ConvertKeys(WideDType(dtype_), dtype_, &into->extrema);
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
