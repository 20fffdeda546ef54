// Inner loops of folds that look at each element and keep little of it.
#ifndef REDUCED_KERNELS_FOLDS_SCAN_TILES_H_
#define REDUCED_KERNELS_FOLDS_SCAN_TILES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "kernels/algebra/dtype.h"

namespace reduced {

// Elements that are looked at together.
inline constexpr std::int64_t kScanBlock = 64;

// From block `begin` on, the first block of kScanBlock elements of which one may not be above, or below, *bound, an
// element: NaNs are neither. `blocks`: there is none. Elements lie at any address.
using FindBlock = std::int64_t (*)(const std::byte* elements, std::int64_t begin, std::int64_t blocks,
                                   const void* bound);
// How elements get the numbers of their bins, as BinFinder::BinOf does.
template <class Real>
struct BinRule {
  Real first, last;  // all bins have these
  Real from, scale, margin;
  std::int32_t outside;  // the number of elements that no bin has
};
// Writes the number of each of some elements at any address; -1: its position does not tell.
template <class Real>
using FindBins = void (*)(const std::byte* elements, std::int64_t count, const BinRule<Real>& rule, std::int32_t* bins);

struct ScanTiles {
  // By dtype, from the first one on. Null: of dtypes whose elements C++ does not compare.
  std::array<FindBlock, std::size(kDTypes)> not_above, not_below;
  FindBins<float> f32_bins;
  FindBins<double> f64_bins;
};

// The best of those that were built and this machine can run.
const ScanTiles& ScanTilesHere();

}  // namespace reduced

#endif  // REDUCED_KERNELS_FOLDS_SCAN_TILES_H_
