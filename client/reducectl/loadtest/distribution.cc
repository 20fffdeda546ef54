#include "client/reducectl/loadtest/distribution.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/system/status_macros.h"
#include "proto/codec/op_call.h"

namespace reduced::client {
namespace {

// How far an estimate of distinct values may be off, as a part of them: five standard errors of a HyperLogLog of 2^14
// registers.
constexpr double kEstimateOff = 5 * 0.0081;
// Interpolation in f64 has a few roundings, each of a part of the largest element.
constexpr double kLinearOff = 0x1p-51;
// Central moments are added in long double; the answers have some digits less.
constexpr double kShapeOff = 1e-10;

}  // namespace

Distribution::Distribution(DType dtype, std::vector<double> elements)
    : dtype_(dtype), elements_(std::move(elements)), sorted_(elements_) {
  std::sort(sorted_.begin(), sorted_.end());
}

absl::StatusOr<RightAnswer> Distribution::Of(const std::string& op) const {
  ASSIGN_OR_RETURN(const v1::OpCall parsed, ParseOpText(op));
  ASSIGN_OR_RETURN(const OpCall call, ParseCall("op", parsed));
  RETURN_IF_ERROR(Validate(call, dtype_));
  const OpParameters& given = call.given();
  if (given.k > static_cast<std::int64_t>(elements_.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("size: got ", elements_.size(), " elements for ", op, "; allowed: ", given.k, " and more"));
  }
  if (IsMatrix(call.op) || call.op == Op::kFingerprint) {
    return absl::InvalidArgumentError(
        absl::StrCat("op: got ", op, ", which is not verified; allowed: ops of elements"));
  }
  const double off = kLinearOff * std::max(std::abs(sorted_.front()), std::abs(sorted_.back()));
  switch (call.op) {
    case Op::kMedian:
      return RightAnswer{Quantiles(call).front()};
    case Op::kQuantile:
      return RightAnswer{.tolerance = off, .array = Quantiles(call)};
    case Op::kHistogram:
      return RightAnswer{.array = Counts(given.edges)};
    case Op::kDistinct:
      return Distinct(RowOf(dtype_).bytes <= 2);
    case Op::kDistinctExact:
      return Distinct(/*exact=*/true);
    case Op::kMode:
      return RightAnswer{Element(Mode())};
    case Op::kSkew:
    case Op::kKurtosis:
      return Shape(call.op == Op::kKurtosis);
    default:
      return RightAnswer{.array = Top(call.op, given.k)};
  }
}

Scalar Distribution::Element(double value) const {
  const DTypeRow& row = RowOf(dtype_);
  if (dtype_ == DType::kBool) return value != 0;
  if (row.is_float) return value;
  if (row.is_signed) return static_cast<std::int64_t>(value);
  return static_cast<std::uint64_t>(value);
}

std::vector<Scalar> Distribution::Quantiles(const OpCall& call) const {
  const bool median = call.op == Op::kMedian;
  const QuantileMethod method = call.given().method;
  std::vector<Scalar> answers;
  for (const double q : median ? std::vector<double>{0.5} : call.given().quantiles) {
    const double place = q * static_cast<double>(sorted_.size() - 1);
    const auto at = [&](double index) { return sorted_[static_cast<std::size_t>(index)]; };
    const double low = at(std::floor(place)), high = at(std::ceil(place));
    if (method == QuantileMethod::kLinear && !median) {
      answers.emplace_back(std::lerp(low, high, place - std::floor(place)));
    } else if (method == QuantileMethod::kLinear || method == QuantileMethod::kMidpoint) {
      answers.emplace_back((low + high) / 2);
    } else if (method == QuantileMethod::kNearest) {
      answers.push_back(Element(at(std::nearbyint(place))));  // to even
    } else {
      answers.push_back(Element(method == QuantileMethod::kLower ? low : high));
    }
  }
  return answers;
}

std::vector<Scalar> Distribution::Counts(const std::vector<double>& edges) const {
  const auto below = [this](double edge) { return std::lower_bound(sorted_.begin(), sorted_.end(), edge); };
  std::vector<Scalar> counts;
  for (std::size_t i = 0; i + 1 < edges.size(); ++i) {
    const bool last = i + 2 == edges.size();
    const auto end = last ? std::upper_bound(sorted_.begin(), sorted_.end(), edges[i + 1]) : below(edges[i + 1]);
    counts.emplace_back(static_cast<std::uint64_t>(end - below(edges[i])));
  }
  return counts;
}

std::vector<Scalar> Distribution::Top(Op op, std::int64_t k) const {
  const bool largest = op == Op::kTopK || op == Op::kArgTopK;
  const bool indexes = op == Op::kArgTopK || op == Op::kArgBottomK;
  std::vector<std::size_t> order(elements_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](std::size_t a, std::size_t b) {
    if (elements_[a] == elements_[b]) return a < b;
    return largest ? elements_[a] > elements_[b] : elements_[a] < elements_[b];
  });
  order.resize(static_cast<std::size_t>(k));
  std::vector<Scalar> answers;
  for (const std::size_t index : order) {
    answers.push_back(indexes ? Scalar(std::uint64_t{index}) : Element(elements_[index]));
  }
  return answers;
}

RightAnswer Distribution::Distinct(bool exact) const {
  std::uint64_t different = 1;
  for (std::size_t i = 1; i < sorted_.size(); ++i) different += sorted_[i] != sorted_[i - 1] ? 1 : 0;
  return {different, exact ? 0 : 1 + kEstimateOff * static_cast<double>(different)};
}

double Distribution::Mode() const {
  double mode = sorted_.front();
  std::ptrdiff_t most = 0;
  for (auto at = sorted_.begin(); at != sorted_.end();) {
    const auto end = std::upper_bound(at, sorted_.end(), *at);
    if (end - at > most) {
      most = end - at;
      mode = *at;
    }
    at = end;
  }
  return mode;
}

RightAnswer Distribution::Shape(bool kurtosis) const {
  if (sorted_.front() == sorted_.back()) return {std::nan("")};
  const auto count = static_cast<long double>(elements_.size());
  const long double mean = std::accumulate(elements_.begin(), elements_.end(), 0.0L) / count;
  long double square = 0, cube = 0, fourth = 0;
  for (const double element : elements_) {
    const long double off = element - mean;
    square += off * off / count;
    cube += off * off * off / count;
    fourth += off * off * off * off / count;
  }
  const long double answer = kurtosis ? fourth / (square * square) - 3 : cube / (square * std::sqrt(square));
  return {static_cast<double>(answer), kShapeOff * static_cast<double>(1 + std::abs(answer))};
}

}  // namespace reduced::client
