// The inner loop of compare: a tile of pairs of finite doubles.
#ifndef REDUCED_KERNELS_FOLDS_COMPARE_TILES_H_
#define REDUCED_KERNELS_FOLDS_COMPARE_TILES_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/float_format.h"
#include "kernels/folds/term_tiles.h"

namespace reduced {

// How the values of a float dtype follow each other, as doubles.
struct ValueSteps {
  int dropped_bits = 0;    // of a double's fraction
  std::int64_t below = 0;  // so many values of normal doubles are below the dtype's normal ones
  double least_normal = 0;
  double steps_of_one = 0;  // between subnormal numbers
  std::int64_t to_infinity = FloatFormat<double>::kInfinity;

  // Of the wider of two float dtypes, or of one that has the values of both. Of integers: any.
  static ValueSteps Of(DType x, DType y);

  // How many steps there are from 0 to the magnitude, with the sign of x.
  std::int64_t To(double x) const {
    const double magnitude = std::fabs(x);
    const std::int64_t steps =
        magnitude >= least_normal
            ? (static_cast<std::int64_t>(std::bit_cast<std::uint64_t>(magnitude)) >> dropped_bits) - below
            : static_cast<std::int64_t>(magnitude * steps_of_one);
    return x < 0 ? -std::min(steps, to_infinity) : std::min(steps, to_infinity);
  }
  std::uint64_t Between(double x, double y) const {
    const std::int64_t a = To(x), b = To(y);
    return a < b ? static_cast<std::uint64_t>(b) - static_cast<std::uint64_t>(a)
                 : static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b);
  }
};

struct CompareRules {
  double rtol = 0, atol = 0;
  ValueSteps steps;
  bool counts_steps = true;  // else, of integers, they are differences
  double best_rel = 0;       // the greatest so far
};

// What a tile has.
struct ComparedTile {
  std::int64_t mismatches = 0;
  std::int64_t different_bits = 0;
  double greatest = 0;  // |x - y|
  std::uint64_t greatest_steps = 0;
  bool more_rel = false;  // a relative difference may be greater than the best one
};

// False: some elements are so small that they are to be compared one by one. `of_x`, `of_y`: of the dtypes.
bool CompareWholeTile(const TermTile& tile, const Magnitudes& of_x, const Magnitudes& of_y, const CompareRules& rules,
                      ComparedTile* found);

}  // namespace reduced

#endif  // REDUCED_KERNELS_FOLDS_COMPARE_TILES_H_
