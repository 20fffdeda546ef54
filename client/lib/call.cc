#include "client/lib/call.h"

#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace reduced::client {
namespace {

// A message for UNAVAILABLE: why there is no connection, without the words that gRPC puts before that; or what the
// server said.
std::string WhyUnavailable(absl::string_view message, absl::string_view server) {
  absl::string_view why;
  if (absl::StrContains(message, "DNS resolution failed")) {
    why = "its name can't be resolved";
  } else if (absl::StrContains(message, "failed to connect to all addresses") ||
             absl::StrContains(message, "connections to all backends failing")) {
    const std::size_t last = message.rfind(": ");  // the last part is the operating system's error
    why = last == absl::string_view::npos ? message : message.substr(last + 2);
    if (const std::size_t routine = why.find("SSL routines::"); routine != absl::string_view::npos) {
      return absl::StrCat("no TLS connection with ", server, " (",
                          why.substr(routine + absl::string_view("SSL routines::").size()), ")");
    }
    if (absl::StrContains(why, "in peer certificate")) {
      return absl::StrCat("no TLS connection with ", server, " (its certificate is for another name)");
    }
    if (absl::EqualsIgnoreCase(why, "Socket closed")) {
      return absl::StrCat(server, " closed the connection: it may require TLS, or a client certificate that it trusts");
    }
  } else {
    return absl::StrCat(server, ": ", message);
  }
  return absl::StrCat("no reduced server answers at ", server, " (", absl::AsciiStrToLower(why), ")");
}

}  // namespace

absl::Status CheckTimeout(absl::Duration timeout) {
  if (timeout > absl::ZeroDuration()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("timeout: got ", absl::FormatDuration(timeout), "; allowed: positive durations"));
}

absl::Status ErrorOf(int code, const std::string& said, const std::string& server, absl::Duration timeout,
                     absl::string_view retry_after_ms) {
  const auto status_code = static_cast<absl::StatusCode>(code);
  std::string message = said;
  if (status_code == absl::StatusCode::kUnavailable) message = WhyUnavailable(said, server);
  if (status_code == absl::StatusCode::kDeadlineExceeded) {
    message = absl::StrCat("no answer from ", server, " within ", absl::FormatDuration(timeout));
  }
  if (absl::StrContains(message, "larger than max")) {  // gRPC's own: "... (bytes vs. limit)"
    message = absl::StrCat("the request is larger than ", server, " accepts: ", message);
  }
  if (!retry_after_ms.empty()) absl::StrAppend(&message, "; try again in ", retry_after_ms, " ms");
  return absl::Status(status_code, message);
}

RpcState::RpcState(const Connection& connection, Backend to, std::optional<absl::Duration> own_timeout)
    : backend(std::move(to)),
      server(connection.options.server),
      timeout(own_timeout.value_or(connection.options.timeout)) {
  if (connection.token != nullptr) context.AddMetadata("authorization", connection.token->Authorization());
  if (timeout != absl::InfiniteDuration()) context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
}

absl::Status RpcState::Outcome(const grpc::Status& status) const {
  if (status.ok()) return absl::OkStatus();
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto retry = metadata.find("grpc-retry-pushback-ms");
  return ErrorOf(status.error_code(), status.error_message(), server, timeout,
                 retry == metadata.end() ? "" : absl::string_view(retry->second.data(), retry->second.size()));
}

void Call::Cancel() {
  if (state_ != nullptr) state_->Cancel();
}

}  // namespace reduced::client
