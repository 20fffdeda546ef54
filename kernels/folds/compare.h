// What op compare answers with: figures about pairs of elements x and y, as an array of f64.
//
// x and y match if they are equal, or both NaN where that is wanted, or both finite and |x - y| <= atol + rtol |y|, the
// difference rounded once to f64, as numpy.isclose has it. Figures about an element that does not exist are NaN. Of
// several elements with the same figure, as f64, the first one counts.
#ifndef REDUCED_KERNELS_FOLDS_COMPARE_H_
#define REDUCED_KERNELS_FOLDS_COMPARE_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "kernels/algebra/op_call.h"
#include "kernels/exact/terms.h"

namespace reduced {

struct ComparisonFigure {
  std::string_view name;
  std::string_view summary;
};

inline constexpr ComparisonFigure kComparisonFiguresNames[] = {
    {"mismatches", "how many pairs do not match"},
    {"first", "the index of the first of them"},
    {"first_x", "x there"},
    {"first_y", "y there"},
    {"max_abs", "greatest |x - y| of pairs without NaN; 0 of equal infinities"},
    {"max_abs_index", "where"},
    {"max_rel", "greatest |x - y| / |y| of these; 0 / 0 is 0, and what has no other value inf"},
    {"max_rel_index", "where"},
    {"max_ulp",
     "greatest number of steps from x to the next value of the dtype, and so on to y; -0 is +0; of two "
     "dtypes of f64, if it is one of them, else of f32; of integers |x - y|"},
    {"max_ulp_index", "where"},
    {"different_bits", "how many pairs differ in any bit, such as -0 and +0; of two dtypes, as f64"},
    {"rmse", "root of the mean of (x - y)^2, of which equal infinities, and NaNs that match, have 0"},
};
static_assert(std::size(kComparisonFiguresNames) == kComparisonFigures);

// A state's integers, after those of the squared distance, and its records.
inline constexpr std::size_t kMismatches = kTermCounts + 1;
inline constexpr std::size_t kDifferentBits = kMismatches + 1;
inline constexpr std::size_t kComparisonIntegers = kDifferentBits + 1;
enum class ComparisonRecord : std::uint8_t { kFirst, kAbs, kRel, kUlp };
inline constexpr std::size_t kComparisonRecords = 4;

}  // namespace reduced

#endif  // REDUCED_KERNELS_FOLDS_COMPARE_H_
