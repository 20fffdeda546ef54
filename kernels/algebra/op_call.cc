#include "kernels/algebra/op_call.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace reduced {
namespace {

bool IsTop(Op op) { return op == Op::kTopK || op == Op::kBottomK || op == Op::kArgTopK || op == Op::kArgBottomK; }

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

absl::Status CheckCounts(const KeyCounts& counts, DType dtype, const std::string& field) {
  const int most = 8 * RowOf(dtype).bytes;
  const int bits = counts.bits == 0 ? most : counts.bits;
  if (bits < 1 || bits > most) {
    return Wrong(field, "counts.bits", absl::StrCat(counts.bits), absl::StrFormat("0 to %d, of this dtype", most));
  }
  if (counts.within_bits < 0 || counts.within_bits > bits || (counts.within_bits > 0) == counts.within.empty()) {
    return Wrong(field, "counts.within_bits",
                 absl::StrFormat("%d with %d prefixes", counts.within_bits, counts.within.size()),
                 absl::StrFormat("0 without prefixes, 1 to %d with them", bits));
  }
  if (counts.within.size() > kMaxPrefixes) {
    return Wrong(field, "counts.within", absl::StrCat(counts.within.size(), " prefixes"),
                 absl::StrCat("at most ", kMaxPrefixes));
  }
  for (std::size_t i = 0; i < counts.within.size(); ++i) {
    const bool fits = counts.within_bits == 64 || counts.within[i] >> counts.within_bits == 0;
    if (fits && (i == 0 || counts.within[i] > counts.within[i - 1])) continue;
    return Wrong(field, absl::StrFormat("counts.within[%d]", i), absl::StrCat(counts.within[i]),
                 absl::StrFormat("ascending numbers of %d bits", counts.within_bits));
  }
  return absl::OkStatus();
}

// The part's own shape is not looked at.
absl::Status CheckShard(const Shard& shard, const std::string& field) {
  if (shard.whole.size() > kMaxShardDimensions) {
    return Wrong(field, "shape", absl::StrCat(shard.whole.size(), " dimensions"),
                 absl::StrCat("at most ", kMaxShardDimensions));
  }
  if (!shard.offset.empty() && shard.offset.size() != shard.whole.size()) {
    return Wrong(field, "offset", absl::StrCat(shard.offset.size(), " numbers"),
                 absl::StrCat("none, or ", shard.whole.size(), ", as shape has"));
  }
  std::int64_t elements = 1;
  for (std::size_t i = 0; i < shard.whole.size(); ++i) {
    const std::int64_t size = shard.whole[i];
    if (size < 0 || size > kMaxShardElements / std::max<std::int64_t>(elements, 1)) {
      return Wrong(field, absl::StrFormat("shape[%d]", i), absl::StrCat(size),
                   absl::StrCat("0 and more, with a product of at most ", kMaxShardElements));
    }
    elements *= std::max<std::int64_t>(size, 1);
    if (shard.offset.empty() || (shard.offset[i] >= 0 && shard.offset[i] <= size)) continue;
    return Wrong(field, absl::StrFormat("offset[%d]", i), absl::StrCat(shard.offset[i]), absl::StrCat("0 to ", size));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsQuantile(Op op) { return op == Op::kMedian || op == Op::kQuantile; }

bool IsWeightedQuantile(Op op) { return op == Op::kWeightedMedian || op == Op::kWeightedQuantile; }

bool IsMatrix(Op op) { return op == Op::kCovMatrix || op == Op::kCorrMatrix; }

int CountedBits(const OpCall& call, DType dtype) {
  // The highest 20 bits of an f64 are its sign, its exponent and 8 bits after the leading one.
  constexpr int kDefault = 20;
  const int bits = call.given().counts.bits;
  return bits > 0 ? bits : std::min(kDefault, 8 * RowOf(dtype).bytes);
}

bool HasWholeKeys(const OpCall& call, DType dtype) {
  return CountedBits(call, dtype) == 8 * RowOf(dtype).bytes && call.given().counts.within.empty();
}

const OpParameters& OpCall::given() const {
  static const auto* const none = new OpParameters;
  return parameters == nullptr ? *none : *parameters;
}

OpCall OpCall::With(DType other) const {
  OpParameters parameters = given();
  parameters.other = other;
  return {op, std::move(parameters)};
}

OpCall StartingAt(std::int64_t first, const OpCall& call) {
  if (!call.given().shard.has_value()) return call;
  OpParameters parameters = call.given();
  parameters.shard->first = first;
  return {call.op, std::move(parameters)};
}

DType ResultDType(const OpCall& call, DType dtype) {
  if (call.given().other.has_value() && RowOf(call.op).result == ResultRule::kWide) {  // of products
    const bool negative = RowOf(dtype).is_signed || RowOf(*call.given().other).is_signed;
    return RowOf(dtype).is_float ? DType::kF64 : negative ? DType::kI64 : DType::kU64;
  }
  const QuantileMethod method = call.given().method;
  const bool element = method != QuantileMethod::kLinear && method != QuantileMethod::kMidpoint;
  return IsQuantile(call.op) && element ? dtype : ResultDType(call.op, dtype);
}

std::vector<std::int64_t> AnswerShape(const OpCall& call) {
  const OpParameters& given = call.given();
  if (call.op == Op::kQuantile || call.op == Op::kWeightedQuantile)
    return {static_cast<std::int64_t>(given.quantiles.size())};
  if (call.op == Op::kHistogram) return {static_cast<std::int64_t>(given.edges.size()) - 1};
  if (IsTop(call.op)) return {given.k};
  if (IsMatrix(call.op)) return {given.columns, given.columns};
  if (call.op == Op::kCompare) return {kComparisonFigures};
  if (call.op == Op::kFingerprint) return {kFingerprintWords};
  return {};
}

std::int64_t AnswerElements(const OpCall& call) {
  std::int64_t elements = 1;
  for (const std::int64_t size : AnswerShape(call)) elements *= size;
  return elements;
}

std::int64_t LeastElements(const OpCall& call, DType dtype) {
  if (IsTop(call.op)) return call.given().k;
  if (IsQuantile(call.op) || IsWeightedQuantile(call.op)) return RowOf(ResultDType(call, dtype)).is_float ? 0 : 1;
  return RowOf(call.op).error_if_empty ? 1 : 0;
}

absl::Status Validate(const OpCall& call, DType dtype, std::string_view field) {
  if (!Supports(call.op, dtype)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "op %s: got dtype %s; allowed: %s", RowOf(call.op).name, RowOf(dtype).name,
        RowOf(call.op).dtypes == OpDTypes::kIntegers ? "integers and bool" : "dtypes of 8 and 16 bits"));
  }
  if (HasAccumulator(call.op)) return absl::OkStatus();  // and no parameters
  const std::string name(field.empty() ? RowOf(call.op).name : field);
  const OpParameters& given = call.given();
  if (IsQuantile(call.op)) {
    if (absl::Status status = CheckCounts(given.counts, dtype, name); !status.ok()) return status;
  }
  if (call.op == Op::kQuantile || call.op == Op::kWeightedQuantile) {
    if (absl::Status status = CheckQuantiles(given.quantiles, name); !status.ok()) return status;
  }
  if (call.op == Op::kHistogram) return CheckEdges(given.edges, name);
  if (call.op == Op::kFingerprint && given.shard.has_value()) return CheckShard(*given.shard, name);
  if (call.op == Op::kCompare) {
    for (const auto& [parameter, value] : {std::pair("rtol", given.rtol), std::pair("atol", given.atol)}) {
      if (!(value >= 0)) return Wrong(name, parameter, Text(value), "0 or more");
    }
  }
  if (given.other.has_value() && RowOf(*given.other).is_float != RowOf(dtype).is_float) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: got dtype %s with an array of %s; allowed: %s", OtherOf(call.op) == OtherOperand::kY ? "y" : "weights",
        RowOf(*given.other).name, RowOf(dtype).name, RowOf(dtype).is_float ? "floats" : "integers and bool"));
  }
  if (IsTop(call.op) && (given.k < 1 || given.k > kMaxTop)) {
    return Wrong(name, "k", absl::StrCat(given.k), absl::StrCat("1 to ", kMaxTop));
  }
  if (IsMatrix(call.op) && (given.columns < 1 || given.columns > kMaxColumns)) {
    return Wrong(name, "columns", absl::StrCat(given.columns), absl::StrCat("1 to ", kMaxColumns));
  }
  return absl::OkStatus();
}

}  // namespace reduced
