// The inner loops of exact sums of terms (exact/terms.h): a tile of elements, or of pairs, as doubles.
//
// A term is one double, or a few of them that an error-free transformation gives: a product and its rounding error by a
// fused multiplication, a difference and its rounding error by two-sum. They are added to bins, 40 bits apart from the
// unit of the tile's terms on, as exact sums of one array are (cpu/exact_tiles.h). The largest and the smallest
// magnitude of the tile tell how many bins that takes, and that nothing overflows or underflows. Terms that are further
// apart go to integers, which takes some times as long.
#ifndef REDUCED_KERNELS_FOLDS_TERM_TILES_H_
#define REDUCED_KERNELS_FOLDS_TERM_TILES_H_

#include <array>
#include <cstdint>
#include <span>

#include "kernels/algebra/dtype.h"
#include "kernels/exact/terms.h"

namespace reduced {

// Elements of a tile. Zeros follow them up to a multiple of kTermTileStep.
inline constexpr std::int64_t kTermTileElements = 1024;
inline constexpr std::int64_t kTermTileStep = 8;

struct TermTile {
  const double* x = nullptr;  // aligned to 64 bytes, as y
  const double* y = nullptr;
  std::int64_t count = 0;
  Magnitudes of_x{}, of_y{};
  // Where the elements of tiles to come are, if that is known, and how many bytes an element has: memory is asked for
  // them while this tile is added up. Beyond an array that is harmless.
  const std::byte* x_ahead = nullptr;
  const std::byte* y_ahead = nullptr;
  std::int64_t x_bytes = 0;
  std::int64_t y_bytes = 0;
};

// Writes elements at any address as doubles, and zeros behind them, and finds their magnitudes. `of_dtype`: those of
// the dtype. False: an element is NaN or infinite, or no double; `to` has all elements that are doubles.
using LoadTermTile = bool (*)(const void* elements, std::int64_t count, const Magnitudes& of_dtype, double* to,
                              Magnitudes* found);
// Adds the sum of a term to an integer in units of 2^low. False: a term may overflow or underflow, and nothing was
// added.
using FoldTermTile = bool (*)(const TermTile& tile, int low, std::span<std::uint64_t> words);

struct TermTileFolds {
  std::array<LoadTermTile, std::size(kDTypes)> load;  // by dtype, from the first one on
  std::array<FoldTermTile, kTerms> of;                // by Term
};

// The best of those that were built and this machine can run.
const TermTileFolds& TermTileFoldsHere();

inline bool LoadTermTileOf(DType dtype, const void* elements, std::int64_t count, const Magnitudes& of_dtype,
                           double* to, Magnitudes* found) {
  return TermTileFoldsHere().load[static_cast<std::size_t>(dtype) - 1](elements, count, of_dtype, to, found);
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_FOLDS_TERM_TILES_H_
