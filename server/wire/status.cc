#include "server/wire/status.h"

#include <cstdint>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace reduced::server {
namespace {

constexpr char kRetryAfterMs[] = "reduced/retry-after-ms";  // the payload: a decimal number

}  // namespace

absl::Status WithRetryHint(absl::Status status, absl::Duration delay) {
  status.SetPayload(kRetryAfterMs, absl::Cord(absl::StrCat(absl::ToInt64Milliseconds(delay))));
  return status;
}

std::optional<absl::Duration> RetryHint(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryAfterMs);
  std::int64_t ms = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &ms)) return std::nullopt;
  return absl::Milliseconds(ms);
}

grpc::Status ToGrpc(const absl::Status& status, grpc::CallbackServerContext* context) {
  if (status.ok()) return grpc::Status::OK;
  if (const auto delay = RetryHint(status); delay.has_value()) {
    context->AddTrailingMetadata("grpc-retry-pushback-ms", absl::StrCat(absl::ToInt64Milliseconds(*delay)));
  }
  return {static_cast<grpc::StatusCode>(status.raw_code()), std::string(status.message())};  // the codes are the same
}

}  // namespace reduced::server
