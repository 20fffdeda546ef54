// Sends a call again that is safe to send again: ClientOptions.max_attempts says which these are, and when.
#ifndef REDUCED_CLIENT_LIB_RETRY_H_
#define REDUCED_CLIENT_LIB_RETRY_H_

#include <grpcpp/grpcpp.h>

#include <optional>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/lib/call.h"
#include "client/lib/connection.h"

namespace reduced::client {

// The attempts of one call. Not thread-safe.
class Retries {
 public:
  Retries(const Connection& connection, absl::Time deadline) : connection_(connection), deadline_(deadline) {}

  // How long to wait before the next attempt; nothing: the failure is final. `hint`: when the server wants to be asked
  // again, if it said so.
  std::optional<absl::Duration> Next(grpc::StatusCode failure, std::optional<absl::Duration> hint);

  // Waits for this long, and meanwhile lets the channel connect again: a channel without a call isn't polled. Returns
  // false if `interrupted` (may be null) ended the wait.
  static bool Wait(absl::Duration delay, grpc::Channel& channel, const Interrupted& interrupted);

  int attempts() const { return attempts_; }
  // The error of the last attempt, with their number if there were several.
  absl::Status Final(const absl::Status& error) const;

 private:
  const Connection& connection_;
  const absl::Time deadline_;
  int attempts_ = 1;
};

// One unary call, which blocks. Sends it again as Retries says. `interrupted`: may be null. `attempts`: how often it
// was sent; may be null.
template <class Request, class Response>
absl::Status CallAgainAndWait(const Connection& connection, const Backend& to,
                              std::optional<absl::Duration> own_timeout, PrepareCall<Request, Response> method,
                              const Request& request, Response* response, const Interrupted& interrupted = nullptr,
                              int* attempts = nullptr) {
  const absl::Duration timeout = own_timeout.value_or(connection.options.timeout);
  if (const absl::Status status = CheckTimeout(timeout); !status.ok()) return status;
  const absl::Time deadline = absl::Now() + timeout;
  Retries retries(connection, deadline);
  for (;;) {
    RpcState state(connection, to, timeout, deadline);
    CallQueue events(state, interrupted);
    const grpc::Status status = CallOnce(state, events, method, request, response);
    if (attempts != nullptr) *attempts = retries.attempts();
    if (status.ok()) return absl::OkStatus();
    if (events.interrupted()) return InterruptedError();
    const std::optional<absl::Duration> delay = retries.Next(status.error_code(), state.RetryHint());
    if (!delay.has_value()) return retries.Final(state.Outcome(status));
    if (!Retries::Wait(*delay, *to.channel, interrupted)) return InterruptedError();
  }
}

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_RETRY_H_
