// The operations. An op is a row: which accumulator its answer is read from, what type the answer has, what an empty
// array answers. Ops that share an accumulator (sum and mean; min, argmin, max and argmax) cost one between them, and
// all the accumulators that a request needs are filled in one read of the array (kernels/README.md has the exceptions).
// Ops without an accumulator are about the distribution of the elements, or about pairs of elements of two arrays, or
// of two columns of one. Each has a fold (folds/fold.h) and entries of a State (entries.h) of its own, may have
// parameters (op_call.h), and is answered in arrays only.
//
// To add an op: a row here, its line in the proto enum, and its case in finalize.cc, which reads what an op answers off
// a state by answer.h; a new accumulator besides only if none of these holds what it needs (accumulator.h).
#ifndef REDUCED_KERNELS_ALGEBRA_OP_H_
#define REDUCED_KERNELS_ALGEBRA_OP_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "kernels/algebra/dtype.h"

namespace reduced {

// The monoids that ops are answered from; each is one struct in accumulator.h.
enum class Accumulator : std::uint8_t {
  kSum,         // sum of x
  kAbsSum,      // sum of |x|
  kSumSquares,  // sum of x * x
  kMoments,     // sum of squared deviations from the mean, of floats
  kProduct,     // product of x
  kExtrema,     // smallest and largest x, and where each stands first
  kBits,        // and, or, xor of the bits
  kCounts,      // how many are non-zero, how many NaN
  kNone,        // none: the op has entries
};
inline constexpr int kAccumulatorCount = 8;

// A set of accumulators: bit a is Accumulator a.
using AccumulatorSet = std::uint32_t;
constexpr AccumulatorSet SetOf(Accumulator a) { return AccumulatorSet{1} << static_cast<int>(a); }

// What type an op answers with.
enum class ResultRule : std::uint8_t {
  kWide,          // f64 for floats; i64 for signed integers; u64 for unsigned integers and bool
  kWideUnsigned,  // f64 for floats; u64 for integers and bool
  kF64,           // f64
  kInput,         // the element type
  kU64,           // u64
  kBool,          // bool
};

// Which elements an op is defined for.
enum class OpDTypes : std::uint8_t {
  kAll,
  kIntegers,  // integers and bool
  kNarrow,    // of 8 and 16 bits
};

// The operand of an op beside the array.
enum class OtherOperand : std::uint8_t { kNone, kY, kWeights };

// X(enumerator, number, name, accumulator, result rule, dtypes, other operand, error if empty, summary)
#define REDUCED_OPS(X)                                                                                                 \
  X(kSum, 1, "sum", kSum, kWide, kAll, kNone, false, "sum of the elements; 0 if empty")                                \
  X(kProd, 2, "prod", kProduct, kWide, kAll, kNone, false, "product of the elements; 1 if empty")                      \
  X(kMin, 3, "min", kExtrema, kInput, kAll, kNone, true, "smallest element; -0 is below +0")                           \
  X(kMax, 4, "max", kExtrema, kInput, kAll, kNone, true, "largest element; +0 is above -0")                            \
  X(kMean, 5, "mean", kSum, kF64, kAll, kNone, false, "arithmetic mean; NaN if empty")                                 \
  X(kVar, 6, "var", kMoments, kF64, kAll, kNone, false, "variance, divided by n - ddof; NaN if n <= ddof")             \
  X(kStd, 7, "std", kMoments, kF64, kAll, kNone, false, "square root of var")                                          \
  X(kSumSquares, 8, "sum_squares", kSumSquares, kWideUnsigned, kAll, kNone, false, "sum of the squared elements")      \
  X(kL1, 9, "l1", kAbsSum, kWideUnsigned, kAll, kNone, false, "sum of the absolute values")                            \
  X(kL2, 10, "l2", kSumSquares, kF64, kAll, kNone, false, "Euclidean norm: square root of sum_squares")                \
  X(kArgmin, 11, "argmin", kExtrema, kU64, kAll, kNone, true, "index of min; the lowest on ties, the first NaN wins")  \
  X(kArgmax, 12, "argmax", kExtrema, kU64, kAll, kNone, true, "index of max; the lowest on ties, the first NaN wins")  \
  X(kAny, 13, "any", kCounts, kBool, kAll, kNone, false, "true if an element is non-zero; NaN is; false if empty")     \
  X(kAll, 14, "all", kCounts, kBool, kAll, kNone, false, "true if no element is zero; true if empty")                  \
  X(kCountNonzero, 15, "count_nonzero", kCounts, kU64, kAll, kNone, false, "how many elements are non-zero; NaN is")   \
  X(kNanCount, 16, "nan_count", kCounts, kU64, kAll, kNone, false, "how many elements are NaN; 0 for integers")        \
  X(kBitAnd, 17, "bit_and", kBits, kInput, kIntegers, kNone, false, "bitwise and; all ones if empty")                  \
  X(kBitOr, 18, "bit_or", kBits, kInput, kIntegers, kNone, false, "bitwise or; 0 if empty")                            \
  X(kBitXor, 19, "bit_xor", kBits, kInput, kIntegers, kNone, false, "bitwise exclusive or; 0 if empty")                \
  X(kCount, 20, "count", kCounts, kU64, kAll, kNone, false, "how many elements there are, without omitted NaNs")       \
  X(kRange, 21, "range", kExtrema, kWideUnsigned, kAll, kNone, true, "max - min; NaN if both are the same infinity")   \
  X(kMedian, 22, "median", kNone, kF64, kAll, kNone, false, "the 0.5 quantile; NaN if empty")                          \
  X(kQuantile, 23, "quantile", kNone, kF64, kAll, kNone, false, "quantiles, as numpy.quantile has them; NaN if empty") \
  X(kHistogram, 24, "histogram", kNone, kU64, kAll, kNone, false,                                                      \
    "how many elements each bin has, as numpy.histogram counts")                                                       \
  X(kTopK, 25, "topk", kNone, kInput, kAll, kNone, true, "the k largest elements, descending; NaNs come first")        \
  X(kBottomK, 26, "bottomk", kNone, kInput, kAll, kNone, true, "the k smallest elements, ascending; NaNs come first")  \
  X(kArgTopK, 27, "argtopk", kNone, kU64, kAll, kNone, true, "the indexes of topk; the lowest first on ties")          \
  X(kArgBottomK, 28, "argbottomk", kNone, kU64, kAll, kNone, true, "the indexes of bottomk; the lowest first on ties") \
  X(kDistinct, 29, "distinct", kNone, kU64, kAll, kNone, false,                                                        \
    "how many different values there are, to within some 0.8%")                                                        \
  X(kDistinctExact, 30, "distinct_exact", kNone, kU64, kAll, kNone, false,                                             \
    "how many different values there are, exactly")                                                                    \
  X(kMode, 31, "mode", kNone, kInput, kNarrow, kNone, true, "the most frequent value, the lowest on ties")             \
  X(kSkew, 32, "skew", kNone, kF64, kAll, kNone, false,                                                                \
    "skewness m3 / m2^1.5 of the population; NaN if constant or empty")                                                \
  X(kKurtosis, 33, "kurtosis", kNone, kF64, kAll, kNone, false,                                                        \
    "excess kurtosis m4 / m2^2 - 3 of the population; NaN if constant or empty")                                       \
  X(kDot, 34, "dot", kNone, kWide, kAll, kY, false, "sum of x y; 0 if empty")                                          \
  X(kWeightedSum, 35, "weighted_sum", kNone, kWide, kAll, kWeights, false, "sum of w x; 0 if empty")                   \
  X(kWeightedMean, 36, "weighted_mean", kNone, kF64, kAll, kWeights, false, "sum of w x / sum of w; NaN if that is 0") \
  X(kWeightedVar, 37, "weighted_var", kNone, kF64, kAll, kWeights, false,                                              \
    "sum of w (x - mean)^2 / (sum of w - ddof); NaN if that is not positive")                                          \
  X(kWeightedStd, 38, "weighted_std", kNone, kF64, kAll, kWeights, false, "square root of weighted_var")               \
  X(kCov, 39, "cov", kNone, kF64, kAll, kY, false, "covariance, divided by n - ddof; NaN if n <= ddof")                \
  X(kCorr, 40, "corr", kNone, kF64, kAll, kY, false, "Pearson correlation; NaN if x or y is constant")                 \
  X(kSlope, 41, "slope", kNone, kF64, kAll, kY, false,                                                                 \
    "slope of the least squares line of y over x; NaN if x is constant")                                               \
  X(kIntercept, 42, "intercept", kNone, kF64, kAll, kY, false, "intercept of that line")                               \
  X(kDistanceL1, 43, "distance_l1", kNone, kF64, kAll, kY, false, "sum of |x - y|")                                    \
  X(kDistanceL2, 44, "distance_l2", kNone, kF64, kAll, kY, false, "square root of the sum of (x - y)^2")               \
  X(kDistanceMax, 45, "distance_max", kNone, kF64, kAll, kY, false, "largest |x - y|; 0 if empty")                     \
  X(kCosine, 46, "cosine", kNone, kF64, kAll, kY, false, "cosine of the angle between x and y; NaN if one is zero")    \
  X(kCompare, 47, "compare", kNone, kF64, kAll, kY, false, "where and how far x and y differ: 12 figures")             \
  X(kCovMatrix, 48, "cov_matrix", kNone, kF64, kAll, kNone, false,                                                     \
    "cov of each two columns of rows of k elements, [k, k]; NaN if n <= ddof")                                         \
  X(kCorrMatrix, 49, "corr_matrix", kNone, kF64, kAll, kNone, false,                                                   \
    "corr of each two columns of rows of k elements, [k, k]; NaN of a constant column")                                \
  X(kFingerprint, 50, "fingerprint", kNone, kU64, kAll, kNone, false,                                                  \
    "128 bits of all bits and where they are: two u64")                                                                \
  X(kWeightedMedian, 51, "weighted_median", kNone, kInput, kAll, kWeights, false, "the 0.5 weighted_quantile")         \
  X(kWeightedQuantile, 52, "weighted_quantile", kNone, kInput, kAll, kWeights, false,                                  \
    "the least elements up to which the weights reach shares of their sum; NaN if that is 0")

enum class Op : std::uint8_t {
#define REDUCED_X(enumerator, number, ...) enumerator = number,
  REDUCED_OPS(REDUCED_X)
#undef REDUCED_X
};

struct OpRow {
  Op op;
  std::string_view name;
  Accumulator accumulator;
  ResultRule result;
  OpDTypes dtypes;
  OtherOperand other;
  bool error_if_empty;  // an array with no (counted) element has no answer
  std::string_view summary;
};

inline constexpr OpRow kOps[] = {
#define REDUCED_X(enumerator, number, name, accumulator, result, dtypes, other, error_if_empty, summary)        \
  {Op::enumerator, name,   Accumulator::accumulator, ResultRule::result, OpDTypes::dtypes, OtherOperand::other, \
   error_if_empty, summary},
    REDUCED_OPS(REDUCED_X)
#undef REDUCED_X
};

constexpr const OpRow& RowOf(Op op) { return kOps[static_cast<int>(op) - 1]; }

constexpr std::optional<Op> OpFromName(std::string_view name) {
  for (const OpRow& row : kOps) {
    if (row.name == name) return row.op;
  }
  return std::nullopt;
}

constexpr std::optional<Op> OpFromNumber(int number) {
  for (const OpRow& row : kOps) {
    if (static_cast<int>(row.op) == number) return row.op;
  }
  return std::nullopt;
}

// Properties of ops that device code asks for, too, which can't read kOps.
constexpr bool DeviatesFromMean(Op op) { return op == Op::kVar || op == Op::kStd; }
// Two arrays: which operand goes with the array, if the op has another one.
constexpr OtherOperand OtherOf(Op op) { return RowOf(op).other; }
constexpr bool HasPosition(Op op) { return op == Op::kArgmin || op == Op::kArgmax; }
constexpr bool IsOfLowest(Op op) { return op == Op::kMin || op == Op::kArgmin; }

// True if `op` is defined for elements of `dtype`.
constexpr bool Supports(Op op, DType dtype) {
  switch (RowOf(op).dtypes) {
    case OpDTypes::kAll:
      return true;
    case OpDTypes::kIntegers:
      return !RowOf(dtype).is_float;
    case OpDTypes::kNarrow:
      return RowOf(dtype).bytes <= 2;
  }
  __builtin_unreachable();
}

// Whether an accumulator answers the op. Folds (kernels/folds) answer the others.
constexpr bool HasAccumulator(Op op) { return RowOf(op).accumulator != Accumulator::kNone; }

// The accumulators that answer `op` for elements of `dtype`. The variance of integers comes from their exact sums.
constexpr AccumulatorSet AccumulatorsOf(Op op, DType dtype) {
  const Accumulator accumulator = RowOf(op).accumulator;
  if (accumulator == Accumulator::kNone) return 0;
  if (accumulator != Accumulator::kMoments || RowOf(dtype).is_float) return SetOf(accumulator);
  return SetOf(Accumulator::kSum) | SetOf(Accumulator::kSumSquares);
}

// The type `op` answers with for elements of `dtype`, if it has no parameters: see op_call.h.
constexpr DType ResultDType(Op op, DType dtype) {
  const DTypeRow& row = RowOf(dtype);
  switch (RowOf(op).result) {
    case ResultRule::kWide:
      return row.is_float ? DType::kF64 : row.is_signed ? DType::kI64 : DType::kU64;
    case ResultRule::kWideUnsigned:
      return row.is_float ? DType::kF64 : DType::kU64;
    case ResultRule::kF64:
      return DType::kF64;
    case ResultRule::kInput:
      return dtype;
    case ResultRule::kU64:
      return DType::kU64;
    case ResultRule::kBool:
      return DType::kBool;
  }
  __builtin_unreachable();
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_ALGEBRA_OP_H_
