#include "kernels/cpu/tiles.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/targets.h"

namespace reduced {
namespace {

constexpr std::int64_t kCacheLineBytes = 64;

template <class T>
std::int64_t DropNansOf(const Tile& tile, std::byte* kept) {
  std::byte* out = kept;
  for (std::int64_t i = 0; i < tile.count; ++i) {  // no branch: NaNs come in no pattern that could be predicted
    T x;
    std::memcpy(&x, tile.data + i * sizeof(T), sizeof(T));
    std::memcpy(out, &x, sizeof(T));
    out += IsNan(x) ? 0 : sizeof(T);
  }
  return (out - kept) / static_cast<std::int64_t>(sizeof(T));
}

}  // namespace

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
  add(folds.counts_and_extrema, SetOf(Accumulator::kCounts) | SetOf(Accumulator::kExtrema));
  add_one(Accumulator::kCounts);
  add_one(Accumulator::kExtrema);
  const int nan_aware_folds = fold_count_;
  add(folds.sum_and_moments, SetOf(Accumulator::kSum) | SetOf(Accumulator::kMoments));
  for (int a = 0; a < kAccumulatorCount; ++a) add_one(static_cast<Accumulator>(a));
  nan_blind_folds_ = fold_count_ - nan_aware_folds;
  if (nan_policy == NanPolicy::kOmit) {
    drop_nans_ = VisitDType(dtype, []<class T>(std::type_identity<T>) -> DropNans {
      if constexpr (kIsFloat<T>) return &DropNansOf<T>;
      return nullptr;
    });
  }
}

void TilePlan::Fold(const void* data, std::int64_t first, std::int64_t count, Partial* into) const {
  const std::int64_t tile_elements = kTileBytes / element_bytes_;
  const auto* next = static_cast<const std::byte*>(data) + first * element_bytes_;
  for (std::int64_t done = 0; done < count; done += tile_elements) {
    const Tile tile{.data = next, .count = std::min(tile_elements, count - done), .first_index = first + done};
    next += kTileBytes;
    FoldOne(tile, count - done > tile_elements ? next : nullptr, into);
  }
  if (drop_nans_ != nullptr) into->extrema.nan_index = kNoIndex;
}

void TilePlan::FoldOne(Tile tile, const std::byte* next, Partial* into) const {
  alignas(kCacheLineBytes) std::byte kept[kTileBytes];
  const std::int64_t nans_before = into->nan;
  for (int i = 0; i < fold_count_; ++i) {
    if (i == fold_count_ - nan_blind_folds_ && drop_nans_ != nullptr && into->nan != nans_before) {
      tile.count = drop_nans_(tile, kept);
      tile.data = kept;
      if (tile.count == 0) return;
    }
    // The first fold of a tile waits for memory; while the others run on the cache, memory would wait for them if each
    // didn't fetch its share of the next tile. One alone leaves that to the hardware, which does as well by itself.
    tile.ahead = tile.data;
    if (next != nullptr && fold_count_ > 1) {
      tile.ahead = next + i * (kTileBytes / fold_count_);
      tile.ahead_step = kCacheLineBytes / fold_count_;
    }
    folds_[i](tile, into);
  }
}

}  // namespace reduced
