// The inner loops of exact sums on the CPU engine, on the calling thread: floats of every width, into ExactSums.
//
// A few anchors A_b = 1.5 x 2^(52 + q_b), a bin each, split an element into multiples of 2^q_b by what rounding drops:
// s = A + x; t = s - A; A = s; x -= t takes three additions of f64, all exact but the first, whose error is just what
// is left in x for the next bin. Bins are kBinBits apart. So many deposits as a tile has don't carry a bin beyond its
// binade, so that in the end the bits of A less those of the anchor are an integer, which is added to the fixed-point
// number. Vectors do all of this at the rate of memory; and since sums of integers don't depend on their order, neither
// do the answers, whatever the vectors, tiles, blocks and threads.
//
// Where a tile's largest number is, is taken to be where the tile before had it. That it was, and that the last bin
// left nothing over, is checked when the tile is done; else its bins are forgotten, and the tile is folded once more:
// into a buffer, anchored by its own largest number, in as many rounds over what is left as it takes. NaNs, infinities
// and numbers whose bins f64 can't anchor are taken out before and added one by one.
//
// Most tiles take less, since their numbers are near to each other in size. Their largest and smallest exponents,
// looked at before, tell where bins have to begin and of which unit all of the numbers are multiples, so that nothing
// is left over and nothing has to be checked: one bin, and one addition, is enough for most elements of up to 32 bits,
// seven for any of them, two for f64, and twice as many for squares, for which fused multiplications give what rounding
// takes off. Squares of f64 that are nearer still are made of three limbs of each element (LimbTile).
// Where extrema are wanted, too, the exponents are found with these.
//
// Sources: the splitting is that of S. M. Rump, T. Ogita, S. Oishi, "Accurate floating-point summation part I: faithful
// rounding" (2008), in bins as J. Demmel, H. D. Nguyen, "Parallel reproducible summation" (2015, ReproBLAS) have them.
#ifndef REDUCED_KERNELS_CPU_EXACT_TILES_H_
#define REDUCED_KERNELS_CPU_EXACT_TILES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/op.h"
#include "kernels/cpu/extent.h"
#include "kernels/cpu/widen.h"
#include "kernels/exact/sums.h"

namespace reduced {

// Elements of a tile.
inline constexpr std::int64_t kExactTileElements = 2048;
inline constexpr std::int64_t kExactTileBytes = 8192;

// Some elements of an array.
struct ExactTile {
  const std::byte* data = nullptr;    // any byte address
  std::int64_t count = 0;             // at most kExactTileElements, and kExactTileBytes of them
  bool specials_counted = false;      // the tile's NaNs and infinities are in the counts
  std::optional<Extent> extent = {};  // of the elements, if it is known; all of them are finite then
};

// What the tiles before tell of the next one.
struct ExactOutlook {
  int top = kNoTop;  // all numbers are expected to be at most 2^top in magnitude
  int wide = 0;      // so many tiles are expected to have more than the bins hold

  static constexpr int kNoTop = -10000;  // nothing is expected
};

// Adds one of the sums of a tile to `into`.
using FoldExactTile = void (*)(const ExactTile& tile, ExactOutlook* outlook, ExactSums* into);

// Adds several of the sums of a tile to `into` at once, if its elements are near enough to each other in size and all
// of them finite; else adds nothing.
enum class Nearness { kNear, kTooFar, kOther };
using FoldIfNear = Nearness (*)(const ExactTile& tile, ExactSums* into);

// Counts a tile's NaNs and infinities in `into`, of which `accumulators` are used, and copies the tile to `finite` with
// -0 in their place; false if it has none.
using SetSpecialsAside = bool (*)(const ExactTile& tile, AccumulatorSet accumulators, std::byte* finite,
                                  ExactSums* into);

// The functions of one float dtype.
struct ExactTileFolds {
  std::array<FoldExactTile, 3> of;                         // by Accumulator
  std::array<FoldIfNear, kExactAccumulators + 1> if_near;  // by AccumulatorSet; null where there is none
  SetSpecialsAside set_specials_aside;
};

// The best of those that were built and this machine can run. Not of floats of 8 bits, which are widened first.
const ExactTileFolds& ExactTileFoldsOf(DType dtype);

// Folds arrays of one float dtype into some exact sums. What it has learnt of the elements makes it fast; used by one
// thread at a time.
class ExactFolder {
 public:
  // `accumulators`: a subset of kExactAccumulators; may be empty.
  ExactFolder(DType dtype, AccumulatorSet accumulators);

  // Folds `count` elements at any byte address. `extent`: of all of them, if it is known, which saves a look at them.
  void Fold(const void* elements, std::int64_t count, const std::optional<Extent>& extent = std::nullopt);

  const ExactSums& sums() const { return sums_; }

 private:
  void FoldTile(ExactTile tile);

  const AccumulatorSet accumulators_;
  const std::int64_t element_bytes_;
  const WidenElements widen_;  // null: elements are folded as they are
  const std::int64_t tile_elements_;
  const FoldIfNear fold_if_near_;  // may be null
  const SetSpecialsAside set_specials_aside_;
  bool specials_ = false;  // the tile before had NaNs or infinities
  int far_ = 0;            // so many tiles are expected not to be near
  std::array<FoldExactTile, 3> folds_{};
  std::array<ExactOutlook, 3> outlooks_{};  // of each fold
  std::size_t fold_count_ = 0;
  ExactSums sums_;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_EXACT_TILES_H_
