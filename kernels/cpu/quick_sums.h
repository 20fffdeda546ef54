// Exact sums of many short outputs: in registers, side by side, without a state for each.
//
// A sum is kept as two doubles: s, rounded at each addition, and e, the sum of what rounding took from s, which
// "two-sum" gives exactly. What is then lost from e tells whether s + e is the sum: nearly always nothing is. Then the
// sum is fl(s + e), rounded once, as ExactSums would round it; else, also for NaNs, infinities and overflow, the output
// is to be reduced in the other way. Sixteen outputs are added side by side: neighbouring columns as they lie, short
// rows transposed, and long rows as sixteen interleaved parts.
//
// Sources: T. J. Dekker (1971) and D. E. Knuth (TAOCP 2, 4.2.2) for two-sum; T. Ogita, S. M. Rump, S. Oishi, "Accurate
// sum and dot product" (2005) for the cascade; A. Ziv (1991) for the test of rounding in means.
#ifndef REDUCED_KERNELS_CPU_QUICK_SUMS_H_
#define REDUCED_KERNELS_CPU_QUICK_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/layout.h"

namespace reduced {

// Outputs that are summed together: a few cache lines of each row of the array.
inline constexpr std::int64_t kQuickOutputs = 128;

// The sum of one output is sum + rest; not known if `lost` is not 0.
struct QuickSums {
  double sum[kQuickOutputs];
  double rest[kQuickOutputs];
  double lost[kQuickOutputs];
};

// Sums `count` outputs, at most kQuickOutputs, of at least one element. Columns: neighbours, the first of which starts
// at `start`. Rows: of layout.elements neighbouring elements each, one row after the other.
using SumColumns = void (*)(const Layout& layout, const std::byte* start, std::int64_t count, QuickSums* into);
using SumRows = void (*)(const std::byte* start, std::int64_t elements, std::int64_t count, QuickSums* into);
struct QuickSumsOf {
  SumColumns columns = nullptr;
  SumRows rows = nullptr;
};

// The best of those that were built and this machine can run; null where there is none. `dtype`: a float.
QuickSumsOf QuickSumsFor(DType dtype);

// The sum and the mean of output `i`, rounded once; absent if that is not known.
std::optional<double> QuickSum(const QuickSums& sums, std::int64_t i);
std::optional<double> QuickMean(const QuickSums& sums, std::int64_t i, std::int64_t elements);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_QUICK_SUMS_H_
