// Sends a call again that failed in a way that may pass: ClientOptions.max_attempts says when, and how often.
#ifndef REDUCED_CLIENT_LIB_RETRY_H_
#define REDUCED_CLIENT_LIB_RETRY_H_

#include <grpcpp/grpcpp.h>

#include <optional>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/lib/call.h"
#include "client/lib/connection.h"
#include "kernels/system/status_macros.h"

namespace reduced::client {

// The attempts of one call. Not thread-safe.
class Retries {
 public:
  Retries(const Connection& connection, absl::Time deadline) : connection_(connection), deadline_(deadline) {}

  // Where the next attempt goes: as the first one, or, if a server has refused the last one and there are several, to
  // any of them.
  const Backend& To(const Backend& first) const { return elsewhere_ ? connection_.parts.front() : first; }
  // Before an attempt. A later one waits for a connection instead of failing without one, if a server was reached
  // before.
  void Prepare(RpcState& attempt) const;

  // How long to wait before the next attempt; nothing: the failure is final. `hint`: when the server wants to be asked
  // again, if it said so.
  std::optional<absl::Duration> Next(const absl::Status& failure, std::optional<absl::Duration> hint);

  // Waits for this long, and meanwhile lets the channel connect again: a channel without a call isn't polled. Returns
  // false if `interrupted` (may be null) ended the wait.
  static bool Wait(absl::Duration delay, grpc::Channel& channel, const Interrupted& interrupted);

  int attempts() const { return attempts_; }
  // The error of the last attempt, over this channel, with their number if there were several. If that one waited for a
  // server until the deadline, the error of the attempt before, which has the reason.
  absl::Status Final(const absl::Status& error, grpc::Channel& channel) const;

 private:
  const Connection& connection_;
  const absl::Time deadline_;
  int attempts_ = 1;
  bool elsewhere_ = false;
  absl::Status before_{};  // of the last attempt but one
};

// The time before an attempt, of which the `attempts` before it failed, unless the server says another.
absl::Duration RetryDelay(int attempts);

inline const absl::Status& StatusOf(const absl::Status& outcome) { return outcome; }
template <class T>
const absl::Status& StatusOf(const absl::StatusOr<T>& outcome) {
  return outcome.status();
}

// Makes one call, which blocks, of as many attempts as Retries says: attempt(state) makes one of them and returns a
// Status or a StatusOr. `interrupted`: may be null. `attempts`: how many there were; may be null.
template <class Attempt>
std::invoke_result_t<Attempt, RpcState&> CallAgain(const Connection& connection, const Backend& to,
                                                   std::optional<absl::Duration> own_timeout,
                                                   const Interrupted& interrupted, int* attempts, Attempt attempt) {
  const absl::Duration timeout = own_timeout.value_or(connection.options.timeout);
  RETURN_IF_ERROR(CheckTimeout(timeout));
  const absl::Time deadline = absl::Now() + timeout;
  Retries retries(connection, deadline);
  for (;;) {
    const Backend& backend = retries.To(to);
    RpcState state(connection, backend, timeout, deadline);
    retries.Prepare(state);
    auto outcome = attempt(state);
    if (attempts != nullptr) *attempts = retries.attempts();
    if (outcome.ok()) return outcome;
    const absl::Status error = StatusOf(outcome);
    const auto delay = state.repeatable ? retries.Next(error, state.RetryHint()) : std::nullopt;
    if (!delay.has_value()) return retries.Final(error, *backend.channel);
    if (!Retries::Wait(*delay, *retries.To(to).channel, interrupted)) return InterruptedError();
  }
}

// The same of a unary call.
template <class Request, class Response>
absl::Status CallAgainAndWait(const Connection& connection, const Backend& to, std::optional<absl::Duration> timeout,
                              PrepareCall<Request, Response> method, const Request& request, Response* response,
                              const Interrupted& interrupted = nullptr, int* attempts = nullptr) {
  return CallAgain(connection, to, timeout, interrupted, attempts, [&](RpcState& state) {
    CallQueue events(state, interrupted);
    const grpc::Status status = CallOnce(state, events, method, request, response);
    return events.interrupted() && !status.ok() ? InterruptedError() : state.Outcome(status);
  });
}

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_RETRY_H_
