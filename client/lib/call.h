// One gRPC call: its context, its deadline and its error.
#ifndef REDUCED_CLIENT_LIB_CALL_H_
#define REDUCED_CLIENT_LIB_CALL_H_

#include <grpcpp/grpcpp.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
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

// The error of a call, with a message that says what to do about it. `retry_after_ms`: empty if the server doesn't say
// when to retry.
absl::Status ErrorOf(int code, const std::string& message, const std::string& server, absl::Duration timeout,
                     absl::string_view retry_after_ms);

// What one gRPC call needs until it ends. Its callback and the Calls that can cancel it share it.
struct RpcState : Call::State {
  // `timeout`: absent: ClientOptions.timeout.
  RpcState(const Connection& connection, Backend to, std::optional<absl::Duration> timeout);

  void Cancel() override { context.TryCancel(); }
  absl::Status Outcome(const grpc::Status& status) const;

  const Backend backend;
  const std::string server;
  const absl::Duration timeout;
  grpc::ClientContext context;
};

// One unary call, which blocks: `method` is that of the stub.
template <class Request, class Response>
absl::Status CallAndWait(RpcState& state,
                         grpc::Status (v1::Reduction::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                         const Request& request, Response* response) {
  if (const absl::Status status = CheckTimeout(state.timeout); !status.ok()) return status;
  return state.Outcome((state.backend.stub.get()->*method)(&state.context, request, response));
}

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_CALL_H_
