// The inner loops of the CPU engine: folding a stretch of an array into a Partial, on the calling thread.
//
// The array is taken in tiles that fit in the L1 data cache twice over. The accumulators that a request needs are a
// short list of functions; each tile comes from memory once and is folded by each of them while it is in the cache, so
// that one more accumulator costs its additions, not another trip to memory.
//
// The functions use vector instructions, by Highway, and there is a set of them for each target (SSE4, AVX2, AVX3...);
// which one runs is decided at run time by what the machine has. accumulator.h defines what they compute: they give the
// same integers, counts, indexes and extrema as adding element after element, and float sums in f64 whose order of
// addition depends on the target and on nothing else.
#ifndef REDUCED_KERNELS_CPU_TILES_H_
#define REDUCED_KERNELS_CPU_TILES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/op.h"
#include "kernels/algebra/partial.h"
#include "kernels/algebra/spec.h"
#include "kernels/cpu/extent.h"
#include "kernels/cpu/widen.h"

namespace reduced {

// Small beside the L1 data cache, not only to fit in it: while a tile is folded for the second time nothing is read
// from memory but what was fetched ahead, which is a few KiB. Some of the functions count on a tile being small: see
// their static_asserts.
inline constexpr std::int64_t kTileBytes = 8192;

// Some elements of an array.
struct Tile {
  const std::byte* data = nullptr;  // any byte address
  std::int64_t count = 0;           // at most kTileBytes of them
  std::int64_t first_index = 0;     // of the first of them in the whole array
  // If not null, the folds of extrema of floats set it to the extent of the elements, or to none if one is not finite.
  std::optional<Extent>* extent = nullptr;
};

// Folds a tile into `into`, which has the elements before it. NaNs are taken like any other element.
using FoldTile = void (*)(const Tile& tile, Partial* into);

// Copies the elements of a tile that aren't NaN to `kept`, which is as large as the tile, in their order, and returns
// how many these are. The rest of `kept` is undefined then.
using DropNans = std::int64_t (*)(const Tile& tile, std::byte* kept);

// The functions of one dtype.
struct TileFolds {
  std::array<FoldTile, kAccumulatorCount> of{};  // by Accumulator; null where the dtype doesn't have it
  // What several of them do, for less, to the same bits; may be null.
  FoldTile counts_and_extrema = nullptr;
  FoldTile sum_and_moments = nullptr;
  FoldTile all_four = nullptr;   // both of the above
  FoldTile all_five = nullptr;   // and kSumSquares
  DropNans drop_nans = nullptr;  // floats
};

// The best of those that were built and this machine can run. Not of floats of 8 bits, which are widened first.
const TileFolds& TileFoldsOf(DType dtype);

// What TileFoldsOf chooses from: Highway's numbers of the targets that were built and this machine can run, best first;
// the name of the best.
std::vector<std::int64_t> VectorTargets();
std::string VectorTargetName();

// How to fold arrays of one dtype into one set of accumulators. Immutable, so thread-safe.
class TilePlan {
 public:
  // `accumulators`: those that the dtype doesn't have are left out; with kOmit kCounts must be among them, if
  // there are any, as AccumulatorsFor() sees to.
  TilePlan(DType dtype, AccumulatorSet accumulators, NanPolicy nan_policy);

  // Folds `count` elements, the first of which is element first_index of the whole array, into `into`, which is the
  // identity or has the elements just before them. `extent`: if not null, set to the extent of the elements, or to
  // none where it was not found, as of more than tile_elements().
  void Fold(const void* elements, std::int64_t first_index, std::int64_t count, Partial* into,
            std::optional<Extent>* extent = nullptr) const;

  std::int64_t tile_elements() const { return kTileBytes / RowOf(WideDType(dtype_)).bytes; }

 private:
  void FoldOne(Tile tile, Partial* into) const;

  DType dtype_;
  WidenElements widen_;                            // null: elements are folded as they are
  std::array<FoldTile, kAccumulatorCount> folds_;  // kCounts, then kExtrema, then the rest
  int fold_count_ = 0;
  int nan_blind_folds_ = 0;       // the last so many don't know NaNs apart
  DropNans drop_nans_ = nullptr;  // kOmit and floats
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_TILES_H_
