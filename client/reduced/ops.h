// Ops with parameters. An op is a text wherever the library takes one: "sum", "median", or "quantile(0.25,0.5)". These
// functions write such texts, exactly; `reducectl ops` has the others.
//
//   auto reply = client->Reduce(ArrayView::Of(samples), {"median", ops::Quantile({.25, .75}), ops::TopK(10)});
//   if (reply.ok()) {
//     double median = reply->Find("median")->AsDouble();
//     std::span<const double> quartiles = reply->arrays[0].array.As<double>();
//   }
//
// What is asked with an op of the distribution (median and those after it in reduced.proto) is answered with arrays:
// Reply.arrays has the answers that are no single values. Their errors are those that reduced.proto names: parameters
// are looked at when the request is sent.
#ifndef REDUCED_OPS_H_
#define REDUCED_OPS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "reduced/array.h"

namespace reduced::client {

namespace ops {

// `method`: "linear", "lower", "higher", "nearest" or "midpoint", as of numpy.quantile.
REDUCED_EXPORT std::string Median(std::string_view method = "linear");
REDUCED_EXPORT std::string Quantile(const std::vector<double>& q, std::string_view method = "linear");

// With PartitionOptions.weights: the least elements up to which the weights add up to these shares of their sum, or
// more, as "inverted_cdf" of numpy.quantile. "weighted_median" has no parameters.
REDUCED_EXPORT std::string WeightedQuantile(const std::vector<double>& q);

// Bin i has the elements from edge i on, and below edge i + 1; the last one also its upper edge.
REDUCED_EXPORT std::string Histogram(const std::vector<double>& edges);
REDUCED_EXPORT std::string Histogram(double low, double high, int bins);
REDUCED_EXPORT std::string LogHistogram(double low, double high, int bins);  // of the same ratio

// The k largest or smallest elements, and their indexes.
REDUCED_EXPORT std::string TopK(std::int64_t k);
REDUCED_EXPORT std::string BottomK(std::int64_t k);
REDUCED_EXPORT std::string ArgTopK(std::int64_t k);
REDUCED_EXPORT std::string ArgBottomK(std::int64_t k);

// How x, the array, and PartitionOptions.y differ: x and y match if |x - y| <= atol + rtol |y|, as of numpy.isclose.
// kComparisonFigures names the numbers of the answer, in their order.
REDUCED_EXPORT std::string Compare(double rtol = 0, double atol = 0, bool equal_nan = false);
inline constexpr std::string_view kComparisonFigures[] = {
    "mismatches", "first",         "first_x", "first_y",       "max_abs",        "max_abs_index",
    "max_rel",    "max_rel_index", "max_ulp", "max_ulp_index", "different_bits", "rmse"};

// 128 bits that tell whether an array is the same array: FingerprintParameters of reduced.proto defines them. Of a part
// of a larger array: the shape of that, and the index in it of the part's first element, along each of its dimensions.
// The states of all parts merge to the fingerprint of that array. The answer is two u64; their text has 32 hexadecimal
// digits.
REDUCED_EXPORT std::string Fingerprint(const std::vector<std::int64_t>& shape,
                                       const std::vector<std::int64_t>& offset = {});
REDUCED_EXPORT std::string FingerprintText(std::uint64_t first, std::uint64_t second);

}  // namespace ops

// Cuts a list at the commas that are outside of parentheses: "sum,quantile(0.25,0.5)" are two ops.
REDUCED_EXPORT std::vector<std::string> SplitOps(std::string_view list);
// The text of an op as merged states name their results: "histogram(0,2,2)" is "histogram(edges=0,1,2)". What is no op
// stays as it is.
REDUCED_EXPORT std::string CanonicalOp(std::string_view op);
// OK, or INVALID_ARGUMENT: why a text is no op.
REDUCED_EXPORT absl::Status CheckOp(std::string_view op);
// Whether an op is one of the distribution, with its parameters or without: a request of it is answered with arrays.
REDUCED_EXPORT bool IsOfDistribution(std::string_view op);
// The field of PartitionOptions that has the other array of an op about two: "y" or "weights"; empty: the op is about
// one.
REDUCED_EXPORT std::string_view OtherOperandName(std::string_view op);

}  // namespace reduced::client

#endif  // REDUCED_OPS_H_
