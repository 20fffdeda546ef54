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

// Two keys (algebra/order_key.h); the lower one is at most the upper one.
template <class Key>
struct KeyBracket {
  Key lower, upper;
};
// Of elements whose keys are compared with those of a bracket. NaNs have the largest key.
struct BracketCounts {
  std::int64_t below_lower = 0, above_lower = 0, below_upper = 0, above_upper = 0;
  std::int64_t nans = 0;

  void operator+=(const BracketCounts& other) {
    below_lower += other.below_lower;
    above_lower += other.above_lower;
    below_upper += other.below_upper;
    above_upper += other.above_upper;
    nans += other.nans;
  }
};
// Adds elements to the counts of a KeyBracket, and writes the keys of those between its keys to `between`, which has
// room for `count` and kScanBlock keys more. Returns how many these are.
using ScanBracket = std::int64_t (*)(const std::byte* elements, std::int64_t count, const void* bracket,
                                     BracketCounts* counts, void* between);

struct ScanTiles {
  // By dtype, from the first one on. Null: of dtypes whose elements C++ does not compare.
  std::array<FindBlock, std::size(kDTypes)> not_above, not_below;
  std::array<ScanBracket, std::size(kDTypes)> bracket;  // by dtype; null: of dtypes of fewer than 32 bits
  FindBins<float> f32_bins;
  FindBins<double> f64_bins;
};

// The best of those that were built and this machine can run.
const ScanTiles& ScanTilesHere();

}  // namespace reduced

#endif  // REDUCED_KERNELS_FOLDS_SCAN_TILES_H_
