#include "client/lib/errors.h"

#include <cstdint>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "reduced/errors.h"

namespace reduced::client {
namespace {

// Payloads of an absl::Status.
constexpr char kRequestId[] = "reduced/request_id";
constexpr char kRetryAfterMs[] = "reduced/retry_after_ms";

}  // namespace

void SetRequestId(absl::string_view id, absl::Status* error) { error->SetPayload(kRequestId, absl::Cord(id)); }

void SetRetryAfter(absl::Duration delay, absl::Status* error) {
  error->SetPayload(kRetryAfterMs, absl::Cord(absl::StrCat(absl::ToInt64Milliseconds(delay))));
}

absl::Status WithMessage(const absl::Status& error, absl::string_view message) {
  absl::Status other(error.code(), message);
  error.ForEachPayload([&other](absl::string_view key, const absl::Cord& value) { other.SetPayload(key, value); });
  return other;
}

absl::Status OfOperand(std::size_t index, const absl::Status& error) {
  if (error.ok() || absl::IsCancelled(error) || absl::IsDeadlineExceeded(error)) return error;
  const absl::string_view message = error.message();
  const bool of_field = absl::StartsWith(message, "dtype:") || absl::StartsWith(message, "shape") ||
                        absl::StartsWith(message, "data:") || absl::StartsWith(message, "reader:");
  return WithMessage(error, absl::StrCat("operands[", index, of_field ? "]." : "]: ", message));
}

std::string RequestIdOf(const absl::Status& error) {
  return std::string(error.GetPayload(kRequestId).value_or(absl::Cord()));
}

std::optional<absl::Duration> RetryAfterOf(const absl::Status& error) {
  const auto text = error.GetPayload(kRetryAfterMs);
  std::int64_t ms = 0;
  if (!text.has_value() || !absl::SimpleAtoi(std::string(*text), &ms)) return std::nullopt;
  return absl::Milliseconds(ms);
}

}  // namespace reduced::client
