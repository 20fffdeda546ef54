#include "client/lib/call.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/lib/errors.h"

namespace reduced::client {
namespace {

constexpr std::size_t kMaxMessageBytes = 4096;  // of a server's message

// What gRPC says of a connection that was lost during a call.
constexpr absl::string_view kLost[] = {"Socket closed", "Connection reset by peer", "Broken pipe",
                                       "keepalive watchdog timeout", "Connection timed out"};

// Whether gRPC says that there was no connection, so that the call was not sent.
bool IsUnconnected(absl::string_view message) {
  return absl::StrContains(message, "failed to connect to all addresses") ||
         absl::StrContains(message, "connections to all backends failing");
}

// A message for UNAVAILABLE: why there is no connection, without the words that gRPC puts before that; or what the
// server said.
std::string WhyUnavailable(absl::string_view message, absl::string_view server) {
  absl::string_view why;
  if (absl::StrContains(message, "DNS resolution failed")) {
    why = "its name can't be resolved";
  } else if (IsUnconnected(message)) {
    const std::size_t last = message.rfind(": ");  // the last part is the operating system's error
    why = last == absl::string_view::npos ? message : message.substr(last + 2);
    if (absl::StrContains(why, "wrong version number")) {  // what answered is no record of TLS
      return absl::StrCat(server, " speaks no TLS");
    }
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
    for (const absl::string_view lost : kLost) {
      if (!absl::StrContains(message, lost)) continue;
      return absl::StrCat("the connection to ", server, " was lost (", absl::AsciiStrToLower(lost), ")");
    }
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

absl::Duration TimeLeft(absl::Time deadline) { return std::max(deadline - absl::Now(), absl::Milliseconds(1)); }

absl::StatusCode CodeOf(int number) {
  const bool known = number > 0 && number <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return known ? static_cast<absl::StatusCode>(number) : absl::StatusCode::kUnknown;
}

absl::Status ErrorOf(int code, const std::string& said, const std::string& server, absl::Duration timeout,
                     std::optional<absl::Duration> retry_after) {
  const absl::StatusCode status_code = CodeOf(code);
  std::string message = said.substr(0, kMaxMessageBytes);
  if (status_code == absl::StatusCode::kUnavailable) message = WhyUnavailable(said, server);
  // Unless it is a timeout of the server's own, which the server names.
  if (status_code == absl::StatusCode::kDeadlineExceeded && !absl::StrContains(said, "; see --")) {
    message = absl::StrCat("no answer from ", server, " within ", absl::FormatDuration(timeout));
  }
  if (absl::StrContains(message, absl::StrCat(" vs. ", kMaxAnswerBytes, ")"))) {
    message = absl::StrCat("the answer of ", server, " is larger than this client accepts: ", message);
  } else if (absl::StrContains(message, "larger than max")) {  // gRPC's own: "... (bytes vs. limit)"
    message = absl::StrCat("the request is larger than ", server, " accepts: ", message);
  }
  const bool may_retry = retry_after.value_or(absl::ZeroDuration()) > absl::ZeroDuration();
  if (may_retry) absl::StrAppend(&message, "; try again in ", absl::ToInt64Milliseconds(*retry_after), " ms");
  absl::Status error(status_code, message);
  if (may_retry) SetRetryAfter(*retry_after, &error);
  return error;
}

RpcState::RpcState(const Connection& connection, Backend to, std::optional<absl::Duration> own_timeout)
    : RpcState(connection, std::move(to), own_timeout.value_or(connection.options.timeout),
               absl::Now() + own_timeout.value_or(connection.options.timeout)) {}

RpcState::RpcState(const Connection& of, Backend to, absl::Duration whole, absl::Time deadline)
    : connection(of),
      backend(std::move(to)),
      server(of.options.server),
      timeout(whole),
      watch(connection.peers, deadline) {
  if (connection.token != nullptr) context.AddMetadata("authorization", connection.token->Authorization());
  if (deadline != absl::InfiniteFuture()) context.set_deadline(absl::ToChronoTime(deadline));
}

void RpcState::Cancel() {
  cancelled = true;
  context.TryCancel();
  watch.Cancelled();
}

grpc::Status RpcState::Seen(const grpc::Status& status) const {
  const bool cut_off = status.error_code() == grpc::StatusCode::CANCELLED && !cancelled;
  const bool lost = status.error_code() == grpc::StatusCode::UNAVAILABLE && !IsUnconnected(status.error_message()) &&
                    !absl::StrContains(status.error_message(), "DNS resolution failed");
  if (status.ok() || cut_off || lost) connection.reached.store(true, std::memory_order_relaxed);
  return cut_off ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "the call was cut off") : status;
}

absl::Status RpcState::Outcome(const grpc::Status& status) const {
  if (status.ok()) return absl::OkStatus();
  absl::Status error = ErrorOf(status.error_code(), status.error_message(), server, timeout, RetryHint());
  const auto& metadata = context.GetServerTrailingMetadata();
  if (const auto id = metadata.find("x-request-id"); id != metadata.end()) {
    SetRequestId(absl::string_view(id->second.data(), id->second.size()), &error);
  }
  return error;
}

std::optional<absl::Duration> RetryHintOf(const grpc::ClientContext& context) {
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto hint = metadata.find("grpc-retry-pushback-ms");
  std::int64_t ms = 0;
  if (hint == metadata.end() || !absl::SimpleAtoi(absl::string_view(hint->second.data(), hint->second.size()), &ms)) {
    return std::nullopt;
  }
  return absl::Milliseconds(ms);
}

absl::Status InterruptedError() { return absl::CancelledError("the call was interrupted by its caller"); }

bool InterruptClock::Ask() {
  if (was_interrupted_ || interrupted_ == nullptr || absl::Now() < due_) return was_interrupted_;
  was_interrupted_ = interrupted_();
  due_ = was_interrupted_ ? absl::InfiniteFuture() : absl::Now() + kInterval;
  return was_interrupted_;
}

bool CallQueue::Next() {
  void* tag = nullptr;
  bool ok = false;
  for (;;) {
    if (!clock_.interrupted() && clock_.Ask()) state_.Cancel();
    switch (queue_.AsyncNext(&tag, &ok, absl::ToChronoTime(clock_.due()))) {
      case grpc::CompletionQueue::GOT_EVENT:
        return ok;
      case grpc::CompletionQueue::SHUTDOWN:
        return false;
      case grpc::CompletionQueue::TIMEOUT:
        break;
    }
  }
}

void CallQueue::End() {
  state_.watch.Ended();
  queue_.Shutdown();
  Next();
}

void Call::Cancel() {
  if (state_ != nullptr) state_->Cancel();
}

}  // namespace reduced::client
