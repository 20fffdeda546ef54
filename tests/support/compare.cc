#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <variant>

#include "absl/strings/str_format.h"
#include "tests/support/oracle.h"

namespace reduced::test {

bool SameBits(const Value& a, const Value& b) {
  if (a.dtype != b.dtype || a.value.index() != b.value.index()) return false;
  const double* const x = std::get_if<double>(&a.value);
  if (x == nullptr) return a == b;
  const double y = std::get<double>(b.value);
  if (std::isnan(*x) || std::isnan(y)) return std::isnan(*x) && std::isnan(y);
  return std::bit_cast<std::uint64_t>(*x) == std::bit_cast<std::uint64_t>(y);
}

std::string ToString(const Value& value) {
  const std::string dtype(RowOf(value.dtype).name);
  if (const auto* x = std::get_if<double>(&value.value)) return absl::StrFormat("%s %.17g (%a)", dtype, *x, *x);
  if (const auto* x = std::get_if<std::int64_t>(&value.value)) return absl::StrFormat("%s %d", dtype, *x);
  if (const auto* x = std::get_if<std::uint64_t>(&value.value)) return absl::StrFormat("%s %u", dtype, *x);
  return absl::StrFormat("%s %d", dtype, std::get<bool>(value.value) ? 1 : 0);
}

std::string Mismatch(const Expected& expected, const absl::StatusOr<Value>& got) {
  const std::string came = got.ok() ? ToString(*got) : got.status().ToString();
  if (got.status().code() != expected.code) {
    if (expected.code != absl::StatusCode::kOk) {
      return absl::StrFormat("expected %s, got %s", absl::StatusCodeToString(expected.code), came);
    }
  } else if (!got.ok()) {
    return "";
  } else if (expected.exact) {
    if (SameBits(expected.value, *got)) return "";
  } else if (const auto* x = std::get_if<double>(&got->value); x != nullptr && got->dtype == expected.dtype) {
    if (std::isnan(*x) ? expected.may_be_nan : expected.low <= *x && *x <= expected.high) return "";
  }
  if (expected.exact) return absl::StrFormat("expected %s, got %s", ToString(expected.value), came);
  return absl::StrFormat("expected f64 in [%.17g, %.17g]%s, got %s", expected.low, expected.high,
                         expected.may_be_nan ? " or NaN" : "", came);
}

}  // namespace reduced::test
