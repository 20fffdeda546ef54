// A call with a callback, which is sent again as Retries says. Between two attempts an alarm runs.
#ifndef REDUCED_CLIENT_LIB_ASYNC_CALL_H_
#define REDUCED_CLIENT_LIB_ASYNC_CALL_H_

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/lib/call.h"
#include "client/lib/connection.h"
#include "client/lib/retry.h"

namespace reduced::client {

// Lives until it has finished, and as long as a Call has it.
class AsyncCall : public Call::State, public std::enable_shared_from_this<AsyncCall> {
 public:
  // Sends the first attempt. Call it once, first.
  void Send();
  void Cancel() override;

 protected:
  AsyncCall(std::shared_ptr<const Connection> connection, Backend to, std::optional<absl::Duration> timeout);

  // Starts an attempt, at whose end Ended() is to be called, once. Must keep shared_from_this() until then.
  virtual void Start(RpcState& attempt) = 0;
  void Ended(const grpc::Status& status);
  // The call is over, after this attempt. Called once.
  virtual void Finish(const RpcState& attempt, const absl::Status& outcome) = 0;

  const Connection& connection() const { return *connection_; }
  int attempts() const { return retries_.attempts(); }

 private:
  const std::shared_ptr<const Connection> connection_;
  const Backend to_;
  const absl::Duration timeout_;
  const absl::Time deadline_;
  Retries retries_;  // one attempt at a time uses it

  absl::Mutex mutex_;
  std::unique_ptr<RpcState> attempt_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);  // until the next attempt
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_ASYNC_CALL_H_
