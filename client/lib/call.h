// One gRPC call: its context, its deadline and its error.
#ifndef REDUCED_CLIENT_LIB_CALL_H_
#define REDUCED_CLIENT_LIB_CALL_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/lib/call_watch.h"
#include "client/lib/connection.h"
#include "reduced/client.h"

namespace reduced::client {

// A request that can be cancelled.
struct Call::State {
  virtual ~State() = default;
  virtual void Cancel() = 0;  // thread-safe; may be called any number of times
};

// INVALID_ARGUMENT: it isn't positive.
absl::Status CheckTimeout(absl::Duration timeout);

// The timeout of a call that is to end at `deadline`. If that has passed, it is an error of the call, not of its
// timeout.
absl::Duration TimeLeft(absl::Time deadline);

// The code of an error with this number: UNKNOWN if there is none.
absl::StatusCode CodeOf(int number);

// The error of a call, with a message that says what to do about it. `retry_after`: absent if the server doesn't say
// when to retry.
absl::Status ErrorOf(int code, const std::string& message, const std::string& server, absl::Duration timeout,
                     std::optional<absl::Duration> retry_after);

// When the server of a call that has failed wants to be asked again; absent if it doesn't say. Negative: never.
std::optional<absl::Duration> RetryHintOf(const grpc::ClientContext& context);

// The error of a call that its caller interrupted.
absl::Status InterruptedError();

// When to ask an Interrupted. Not thread-safe.
class InterruptClock {
 public:
  // `interrupted` may be null: then nothing is ever due. It must outlive this.
  explicit InterruptClock(const Interrupted& interrupted) : interrupted_(interrupted) {}

  // The time to wait at most before the next Ask().
  absl::Time due() const { return interrupted_ == nullptr ? absl::InfiniteFuture() : due_; }
  // Asks if it is due. Returns true from the first true on.
  bool Ask();
  bool interrupted() const { return was_interrupted_; }

 private:
  static constexpr absl::Duration kInterval = absl::Milliseconds(50);

  const Interrupted& interrupted_;
  absl::Time due_ = absl::Now() + kInterval;
  bool was_interrupted_ = false;
};

// What one gRPC call needs until it ends. Its callback and the Calls that can cancel it share it.
struct RpcState : Call::State {
  // `timeout`: absent: ClientOptions.timeout.
  RpcState(const Connection& connection, Backend to, std::optional<absl::Duration> timeout);
  // One attempt of a call that has this deadline, which is `timeout` after its start.
  RpcState(const Connection& connection, Backend to, absl::Duration timeout, absl::Time deadline);

  void Cancel() override;
  // What the status of the call says of the server. A call that is CANCELLED, but not by this client, was cut off by a
  // server that stops, or by a proxy: UNAVAILABLE. Notes that a server was reached.
  grpc::Status Seen(const grpc::Status& status) const;
  // The error of a status that Seen has given.
  absl::Status Outcome(const grpc::Status& status) const;
  std::optional<absl::Duration> RetryHint() const { return RetryHintOf(context); }

  const Connection& connection;  // must outlive the call
  const Backend backend;
  const std::string& server;  // the address that the user gave
  const absl::Duration timeout;
  grpc::ClientContext context;
  std::atomic<bool> cancelled = false;
  // The call can be sent again: false once elements have been taken from a source that can be read only once.
  bool repeatable = true;
  CallWatch watch;  // is told when the call has started, and when it has ended
};

// The completion queue of one call, which the calling thread waits on.
class CallQueue {
 public:
  // `interrupted`: cancels the call; may be null. Both must outlive this.
  CallQueue(RpcState& state, const Interrupted& interrupted) : state_(state), clock_(interrupted) {}

  // Waits for the next event. True: it is a success. After an interruption the call ends, and so do its events.
  bool Next();
  // The call has ended. Must be called once, as the last.
  void End();

  grpc::CompletionQueue& queue() { return queue_; }
  bool interrupted() const { return clock_.interrupted(); }

 private:
  RpcState& state_;
  grpc::CompletionQueue queue_;
  InterruptClock clock_;
};

// The method of a stub that prepares a unary call.
template <class Request, class Response>
using PrepareCall = std::unique_ptr<grpc::ClientAsyncResponseReader<Response>> (v1::Reduction::Stub::*)(
    grpc::ClientContext*, const Request&, grpc::CompletionQueue*);

// Makes one unary call, which blocks. `events`: a new one of this state.
template <class Request, class Response>
grpc::Status CallOnce(RpcState& state, CallQueue& events, PrepareCall<Request, Response> method, const Request& request,
                      Response* response) {
  grpc::Status status;
  const auto call = (state.backend.stub.get()->*method)(&state.context, request, &events.queue());
  call->StartCall();
  state.watch.Started();
  call->Finish(response, &status, nullptr);
  events.Next();
  events.End();
  return state.Seen(status);
}

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_CALL_H_
