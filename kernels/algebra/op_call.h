// An op of a request, with its parameters. Its answer for one output is an array of a shape that the parameters tell:
// quantile(0.25, 0.75) answers with 2 elements, sum with one.
#ifndef REDUCED_KERNELS_ALGEBRA_OP_CALL_H_
#define REDUCED_KERNELS_ALGEBRA_OP_CALL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/algebra/dtype.h"
#include "kernels/algebra/op.h"

namespace reduced {

// What a quantile between two elements is. The names are NumPy's, and the numbers those of the proto.
enum class QuantileMethod : std::uint8_t {
  kLinear = 1,    // interpolated, in f64
  kLower = 2,     // the lower element
  kHigher = 3,    // the higher one
  kNearest = 4,   // the nearer one; of two that are as near, the one whose position is even
  kMidpoint = 5,  // halfway between the two, in f64
};

inline constexpr std::size_t kMaxQuantiles = 1024;
inline constexpr std::size_t kMaxBins = 65'536;
inline constexpr std::int64_t kMaxTop = 1024;
inline constexpr std::size_t kMaxPrefixes = 65'536;
inline constexpr std::int64_t kMaxColumns = 64;
// The figures of compare: folds/compare.h names them.
inline constexpr std::int64_t kComparisonFigures = 12;
inline constexpr std::int64_t kFingerprintWords = 2;
inline constexpr std::size_t kMaxShardDimensions = 64;
inline constexpr std::int64_t kMaxShardElements = std::int64_t{1} << 60;

// What a state of a quantile counts elements by: the highest bits of their sort keys (sort_key.h).
struct KeyCounts {
  int bits = 0;  // 0: see CountedBits; all bits of the dtype: the state answers exactly
  // Only elements whose highest `within_bits` bits are among these, which ascend. None: all elements.
  int within_bits = 0;
  std::vector<std::uint64_t> within{};

  friend bool operator==(const KeyCounts&, const KeyCounts&) = default;
};

// Where the elements that are reduced are in a larger array.
struct Shard {
  std::vector<std::int64_t> whole{};   // the shape of that array
  std::vector<std::int64_t> offset{};  // of element 0 of the part, along each dimension; none: 0
  std::vector<std::int64_t> part{};    // the shape of the part; none until that is known
  std::int64_t first = 0;              // in the part, of the first element that is reduced

  friend bool operator==(const Shard&, const Shard&) = default;
};

struct OpParameters {
  // Of quantile and weighted_quantile: 1 to kMaxQuantiles, each from 0 to 1.
  std::vector<double> quantiles{};
  // Of quantile and median.
  QuantileMethod method = QuantileMethod::kLinear;
  // Of histogram: 2 to kMaxBins + 1, finite and ascending. Bin i counts the elements x of edges[i] <= x < edges[i + 1];
  // the last bin also those that are its upper edge. Integers of 64 bits are rounded to f64 before they are compared,
  // as in NumPy; all other elements are doubles.
  std::vector<double> edges{};
  // Of topk, bottomk, argtopk and argbottomk: how many elements, 1 to kMaxTop.
  std::int64_t k = 0;
  // Of quantile and median, and of states only.
  KeyCounts counts{};
  // Of cov_matrix and corr_matrix: how many neighbouring elements make a row, 1 to kMaxColumns.
  std::int64_t columns = 0;
  // Of compare: x and y match if |x - y| <= atol + rtol |y|; whether NaN matches NaN. Tolerances are not negative.
  double rtol = 0;
  double atol = 0;
  bool equal_nan = false;
  // Of fingerprint: absent, if the array is whole. In states without what differs from part to part.
  std::optional<Shard> shard{};
  // Of ops with another operand: the dtype of that. Absent until the operand is known.
  std::optional<DType> other{};

  friend bool operator==(const OpParameters&, const OpParameters&) = default;
};

// Converts from and to Op, so that code which has no use for parameters need not know of them.
struct OpCall {
  OpCall(Op op) : op(op) {}  // NOLINT(google-explicit-constructor)
  OpCall(Op op, OpParameters parameters)
      : op(op), parameters(std::make_shared<const OpParameters>(std::move(parameters))) {}

  operator Op() const { return op; }  // NOLINT(google-explicit-constructor)

  // The same call with another operand of that dtype.
  OpCall With(DType other) const;

  // The parameters, or the default ones if there are none.
  const OpParameters& given() const;

  friend bool operator==(const OpCall& a, const OpCall& b) {
    return a.op == b.op && (a.parameters == b.parameters || a.given() == b.given());  // compares what they say
  }
  friend bool operator==(const OpCall& a, Op b) { return a == OpCall(b); }

  Op op;
  std::shared_ptr<const OpParameters> parameters{};  // null: the op has none
};

// The call for elements from `first` on of the array that it is about: of a fingerprint of a part.
OpCall StartingAt(std::int64_t first, const OpCall& call);
// Of a fingerprint: how many words an element has in its polynomial.
inline int WordsOfElement(DType dtype) { return RowOf(dtype).bytes == 8 ? 2 : 1; }

// The type that the op answers with for elements of `dtype`.
DType ResultDType(const OpCall& call, DType dtype);

// The dimensions of the answer for one output: none for a scalar; {q} of q quantiles, {bins}, {k}, {columns, columns}.
std::vector<std::int64_t> AnswerShape(const OpCall& call);
// Their product.
std::int64_t AnswerElements(const OpCall& call);

// How many (counted) elements an output must have for an answer, under EmptyPolicy::kError.
std::int64_t LeastElements(const OpCall& call, DType dtype);

// median and quantile.
bool IsQuantile(Op op);
// weighted_median and weighted_quantile, which have no states.
bool IsWeightedQuantile(Op op);
// cov_matrix and corr_matrix, of which an output has whole rows.
bool IsMatrix(Op op);
// How many pairs of columns there are, each with itself, too. Pairs are numbered row by row: (0, 0), (0, 1), .. (1, 1),
// ..
constexpr std::int64_t PairsOfColumns(std::int64_t columns) { return columns * (columns + 1) / 2; }
// How many of the highest bits of sort keys the state of such an op has.
int CountedBits(const OpCall& call, DType dtype);
// Whether such a state knows the value of each element.
bool HasWholeKeys(const OpCall& call, DType dtype);

// OK, or INVALID_ARGUMENT: the dtype lacks the op, or its parameters are not what they are to be. `field`: what the
// message calls the parameters' message; empty: the op's name.
absl::Status Validate(const OpCall& call, DType dtype, std::string_view field = {});

}  // namespace reduced

#endif  // REDUCED_KERNELS_ALGEBRA_OP_CALL_H_
