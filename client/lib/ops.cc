#include "reduced/ops.h"

#include <charconv>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "proto/codec/op_call.h"

namespace reduced::client {
namespace {

// The shortest decimal that reads back as the same number.
void Append(std::string* out, double number) {
  char buffer[32];
  out->append(buffer, std::to_chars(buffer, buffer + sizeof(buffer), number).ptr);
}

std::string Joined(const std::vector<double>& numbers) { return absl::StrJoin(numbers, ",", Append); }

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

std::string MethodText(std::string_view method) {
  return method == "linear" ? "" : absl::StrCat("method=", View(method));
}

// The op of a text, whatever its parameters.
std::optional<Op> OpOf(std::string_view text) {
  const absl::string_view name = absl::StripAsciiWhitespace(View(text.substr(0, text.find('('))));
  return OpFromName({name.data(), name.size()});
}

}  // namespace

namespace ops {

std::string Median(std::string_view method) {
  const std::string given = MethodText(method);
  return given.empty() ? "median" : absl::StrCat("median(", given, ")");
}

std::string Quantile(const std::vector<double>& q, std::string_view method) {
  const std::string given = MethodText(method);
  return absl::StrCat("quantile(", Joined(q), given.empty() ? "" : ";", given, ")");
}

std::string WeightedQuantile(const std::vector<double>& q) {
  return absl::StrCat("weighted_quantile(", Joined(q), ")");
}

std::string Histogram(const std::vector<double>& edges) { return absl::StrCat("histogram(edges=", Joined(edges), ")"); }

std::string Histogram(double low, double high, int bins) {
  return absl::StrCat("histogram(", Joined({low, high}), ",", bins, ")");
}

std::string LogHistogram(double low, double high, int bins) {
  return absl::StrCat("histogram(", Joined({low, high}), ",", bins, ";scale=log)");
}

std::string TopK(std::int64_t k) { return absl::StrCat("topk(", k, ")"); }
std::string BottomK(std::int64_t k) { return absl::StrCat("bottomk(", k, ")"); }
std::string ArgTopK(std::int64_t k) { return absl::StrCat("argtopk(", k, ")"); }
std::string ArgBottomK(std::int64_t k) { return absl::StrCat("argbottomk(", k, ")"); }

std::string Compare(double rtol, double atol, bool equal_nan) {
  return absl::StrCat("compare(rtol=", Joined({rtol}), ",atol=", Joined({atol}),
                      ",equal_nan=", equal_nan ? "true" : "false", ")");
}

std::string Fingerprint(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& offset) {
  return absl::StrCat("fingerprint(shape=", absl::StrJoin(shape, ","),
                      offset.empty() ? "" : ";offset=", absl::StrJoin(offset, ","), ")");
}
std::string FingerprintText(std::uint64_t first, std::uint64_t second) {
  return absl::StrFormat("%016x%016x", first, second);
}

}  // namespace ops

std::vector<std::string> SplitOps(std::string_view list) { return reduced::SplitOps(View(list)); }
std::string CanonicalOp(std::string_view op) {
  const absl::StatusOr<v1::OpCall> message = ParseOpText(View(op));
  const absl::StatusOr<OpCall> call = message.ok() ? ParseCall("op", *message) : message.status();
  return call.ok() ? OpText(*call, /*counts=*/false) : std::string(op);
}
absl::Status CheckOp(std::string_view op) { return ParseOpText(View(op)).status(); }

bool IsOfDistribution(std::string_view op) {
  const std::optional<Op> found = OpOf(op);
  return found.has_value() && reduced::IsOfDistribution(static_cast<int>(*found));
}

std::string_view OtherOperandName(std::string_view op) {
  const std::optional<Op> found = OpOf(op);
  const reduced::OtherOperand other = found.has_value() ? OtherOf(*found) : reduced::OtherOperand::kNone;
  return other == reduced::OtherOperand::kNone ? "" : other == reduced::OtherOperand::kY ? "y" : "weights";
}

}  // namespace reduced::client
