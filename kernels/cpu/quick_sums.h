// Exact sums of many short outputs: in registers, side by side, without a state for each. Of elements, of their
// magnitudes or squares, or the numbers of those that aren't zero or are NaN.
//
// Integers are added in 64 bits. A sum of floats is kept as two doubles: s, rounded at each addition, and e, the sum of
// what rounding took from s, which "two-sum" gives exactly. What is then lost from e bounds the error of s + e: nearly
// always nothing is. Then the sum is fl(s + e), rounded once, as ExactSums would round it, unless the error leaves a
// choice; then, and for NaNs, infinities and overflow, the output is to be reduced in the other way. Sixteen outputs
// are added side by side: neighbouring columns as they lie, short rows transposed, and long rows as sixteen interleaved
// parts. Segments are summed one by one; few elements that are close to each other need no two-sum, nor do
// a few f64 in two parts, to which 53 bits each suffice.
//
// Sources: T. J. Dekker (1971) and D. E. Knuth (TAOCP 2, 4.2.2) for two-sum; T. Ogita, S. M. Rump, S. Oishi, "Accurate
// sum and dot product" (2005) for the cascade; A. Ziv (1991) for the test of rounding.
#ifndef REDUCED_KERNELS_CPU_QUICK_SUMS_H_
#define REDUCED_KERNELS_CPU_QUICK_SUMS_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/layout.h"
#include "kernels/algebra/op.h"
#include "kernels/algebra/portable.h"
#include "kernels/exact/two_doubles.h"

namespace reduced {

// Outputs that are summed together: a few cache lines of each row of the array.
inline constexpr std::int64_t kQuickOutputs = 512;

// What is added up of each element: itself, its magnitude, its square, or 1 if it is not zero, or if it is NaN.
enum class Term : std::uint8_t { kElement, kMagnitude, kSquare, kNonzero, kNan };
inline constexpr int kTerms = 5;

// The sum of one output is sum + rest, with an error of at most `lost`.
struct QuickSums {
  double sum[kQuickOutputs];
  double rest[kQuickOutputs];
  double lost[kQuickOutputs];
};

// Adds x to sum + rest; what can't be added exactly goes to `lost`.
inline void AddExactly(double x, double* sum, double* rest, double* lost) {
  *lost += std::fabs(AddToTwo(x, sum, rest));
}

// Squares of smaller doubles, or what rounding takes from them, underflow: the error is less than kSquareError.
inline constexpr double kExactSquare = 0x1p-480;
inline constexpr double kSquareError = 0x1p-960;
// Adds the square of x, likewise; to be compiled without contraction of operations.
inline void AddSquareExactly(double x, double* sum, double* rest, double* lost) {
  const double square = x * x;
  AddExactly(square, sum, rest, lost);
  AddExactly(std::fma(x, x, -square), sum, rest, lost);
  if (std::fabs(x) < kExactSquare && x != 0) *lost += kSquareError;
}

// Adds the term of an element of floats, likewise.
template <Term kTerm, class T>
void AddTerm(T element, double* sum, double* rest, double* lost) {
  const double x = ToDouble(element);
  if constexpr (kTerm == Term::kElement) AddExactly(x, sum, rest, lost);
  if constexpr (kTerm == Term::kMagnitude) AddExactly(std::fabs(x), sum, rest, lost);
  if constexpr (kTerm == Term::kSquare && sizeof(T) == 8) AddSquareExactly(x, sum, rest, lost);
  if constexpr (kTerm == Term::kSquare && sizeof(T) < 8) AddExactly(x * x, sum, rest, lost);  // f64 holds it
}
// Adds another sum.
inline void MergeExactly(double other_sum, double other_rest, double other_lost, double* sum, double* rest,
                         double* lost) {
  AddExactly(other_sum, sum, rest, lost);
  AddExactly(other_rest == 0 ? -0.0 : other_rest, sum, rest, lost);  // -0 changes nothing
  *lost += other_lost;
}

// Whether so many are all 0, or -0.
inline bool AllZero(const double* x, std::int64_t count) {
  std::uint64_t bits = 0;
  for (std::int64_t i = 0; i < count; ++i) bits |= std::bit_cast<std::uint64_t>(x[i]) << 1;
  return bits == 0;
}

// Stores the sum of an output of integers. One of more than 106 bits is not known.
inline void StoreIntegerSum(Int128 sum, std::int64_t i, QuickSums* into) {
  const auto magnitude = static_cast<UInt128>(sum < 0 ? -sum : sum);
  const TwoDoubles two = TwoDoublesOf(magnitude);
  into->sum[i] = sum < 0 ? -two.value : two.value;
  into->rest[i] = sum < 0 ? -two.rest : two.rest;
  into->lost[i] = magnitude >> 106 == 0 ? 0 : std::numeric_limits<double>::infinity();
}

// Sums of outputs without elements; and adds those of `from` from `at` on to them.
inline void ClearSums(std::int64_t count, QuickSums* sums) {
  std::fill_n(sums->sum, count, -0.0);  // to which -0 adds -0, and +0 adds +0
  std::fill_n(sums->rest, count, 0.0);
  std::fill_n(sums->lost, count, 0.0);
}
inline void MergeSums(const QuickSums& from, std::int64_t at, std::int64_t count, QuickSums* into) {
  for (std::int64_t i = 0; i < count; ++i) {
    MergeExactly(from.sum[at + i], from.rest[at + i], from.lost[at + i], into->sum + i, into->rest + i, into->lost + i);
  }
}

// Sums `count` outputs, at most kQuickOutputs, of at least one element. Columns: neighbours, the first of which starts
// at `start`. Rows: of layout.elements neighbouring elements each, one row after the other. Segments: output i has
// elements bounds[i] to bounds[i + 1] - 1 from `start` on, or none. Outputs of integers have at most
// kQuickIntegerBytes.
using SumColumns = void (*)(const Layout& layout, const std::byte* start, std::int64_t count, QuickSums* into);
using SumRows = void (*)(const std::byte* start, std::int64_t elements, std::int64_t count, QuickSums* into);
using SumSegments = void (*)(const std::byte* start, const std::int64_t* bounds, std::int64_t count, QuickSums* into);
inline constexpr std::int64_t kQuickIntegerBytes = std::int64_t{1} << 22;

struct QuickSumsOf {
  SumColumns columns = nullptr;
  SumRows rows = nullptr;
  SumSegments segments = nullptr;
};

// The best of those that were built and this machine can run; null where there is none. kNan: of floats.
QuickSumsOf QuickSumsFor(DType dtype, Term term);
// Its two halves, apart because they take long to compile.
QuickSumsOf FloatQuickSums(DType dtype, Term term);
QuickSumsOf IntegerQuickSums(DType dtype, Term term);

// Write the answers of the first `count` outputs to `out`, at any address; where one is not known, known[i] becomes
// false, and what is written for it is undefined. `elements`: of each output.
struct QuickStores {
  // Sums, as f64, i64 or u64.
  void (*f64_sums)(const QuickSums& sums, std::int64_t count, std::byte* out, bool* known);
  void (*i64_sums)(const QuickSums& sums, std::int64_t count, std::byte* out, bool* known);
  void (*u64_sums)(const QuickSums& sums, std::int64_t count, std::byte* out, bool* known);
  void (*means)(const QuickSums& sums, std::int64_t count, const std::int64_t* elements, std::byte* out, bool* known);
  // kVar, kStd or kL2, for which `sums` is not looked at.
  void (*moments)(Op op, const QuickSums& sums, const QuickSums& squares, std::int64_t count,
                  const std::int64_t* elements, std::int64_t ddof, std::byte* out, bool* known);
};
QuickStores QuickStoresFor();

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_QUICK_SUMS_H_
