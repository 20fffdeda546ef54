#include "kernels/algebra/op_call.h"

#include <charconv>
#include <cmath>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace reduced {
namespace {

bool IsTop(Op op) { return op == Op::kTopK || op == Op::kBottomK || op == Op::kArgTopK || op == Op::kArgBottomK; }

bool IsQuantile(Op op) { return op == Op::kMedian || op == Op::kQuantile; }

// The shortest text of the number.
std::string Text(double number) {
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof(buffer), number).ptr};
}

// `parameter`: its name, and which of them it is.
absl::Status Wrong(const std::string& field, const std::string& parameter, const std::string& got,
                   const std::string& allowed) {
  return absl::InvalidArgumentError(absl::StrCat(field, ".", parameter, ": got ", got, "; allowed: ", allowed));
}

absl::Status CheckQuantiles(const std::vector<double>& quantiles, const std::string& field) {
  if (quantiles.empty() || quantiles.size() > kMaxQuantiles) {
    return Wrong(field, "q", absl::StrCat(quantiles.size(), " quantiles"), absl::StrCat("1 to ", kMaxQuantiles));
  }
  for (std::size_t i = 0; i < quantiles.size(); ++i) {
    if (quantiles[i] >= 0 && quantiles[i] <= 1) continue;
    return Wrong(field, absl::StrFormat("q[%d]", i), Text(quantiles[i]), "0 to 1");
  }
  return absl::OkStatus();
}

absl::Status CheckEdges(const std::vector<double>& edges, const std::string& field) {
  if (edges.size() < 2 || edges.size() > kMaxBins + 1) {
    return Wrong(field, "edges.edge", absl::StrCat(edges.size(), " edges"), absl::StrCat("2 to ", kMaxBins + 1));
  }
  for (std::size_t i = 0; i < edges.size(); ++i) {
    const auto name = [i] { return absl::StrFormat("edges.edge[%d]", i); };
    if (!std::isfinite(edges[i])) return Wrong(field, name(), Text(edges[i]), "finite numbers");
    if (i > 0 && !(edges[i - 1] < edges[i])) {
      return Wrong(field, name(), absl::StrCat(Text(edges[i]), " after ", Text(edges[i - 1])), "ascending edges");
    }
  }
  return absl::OkStatus();
}

}  // namespace

const OpParameters& OpCall::given() const {
  static const auto* const none = new OpParameters;
  return parameters == nullptr ? *none : *parameters;
}

DType ResultDType(const OpCall& call, DType dtype) {
  const QuantileMethod method = call.given().method;
  const bool element = method != QuantileMethod::kLinear && method != QuantileMethod::kMidpoint;
  return IsQuantile(call.op) && element ? dtype : ResultDType(call.op, dtype);
}

std::vector<std::int64_t> AnswerShape(const OpCall& call) {
  const OpParameters& given = call.given();
  if (call.op == Op::kQuantile) return {static_cast<std::int64_t>(given.quantiles.size())};
  if (call.op == Op::kHistogram) return {static_cast<std::int64_t>(given.edges.size()) - 1};
  if (IsTop(call.op)) return {given.k};
  return {};
}

std::int64_t AnswerElements(const OpCall& call) {
  std::int64_t elements = 1;
  for (const std::int64_t size : AnswerShape(call)) elements *= size;
  return elements;
}

std::int64_t LeastElements(const OpCall& call, DType dtype) {
  if (IsTop(call.op)) return call.given().k;
  if (IsQuantile(call.op)) return RowOf(ResultDType(call, dtype)).is_float ? 0 : 1;
  return RowOf(call.op).error_if_empty ? 1 : 0;
}

absl::Status Validate(const OpCall& call, DType dtype, std::string_view field) {
  if (!Supports(call.op, dtype)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "op %s: got dtype %s; allowed: %s", RowOf(call.op).name, RowOf(dtype).name,
        RowOf(call.op).dtypes == OpDTypes::kIntegers ? "integers and bool" : "dtypes of 8 and 16 bits"));
  }
  const std::string name(field.empty() ? RowOf(call.op).name : field);
  const OpParameters& given = call.given();
  if (call.op == Op::kQuantile) return CheckQuantiles(given.quantiles, name);
  if (call.op == Op::kHistogram) return CheckEdges(given.edges, name);
  if (IsTop(call.op) && (given.k < 1 || given.k > kMaxTop)) {
    return Wrong(name, "k", absl::StrCat(given.k), absl::StrCat("1 to ", kMaxTop));
  }
  return absl::OkStatus();
}

}  // namespace reduced
