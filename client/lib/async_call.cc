#include "client/lib/async_call.h"

#include <utility>

#include "absl/time/clock.h"

namespace reduced::client {

AsyncCall::AsyncCall(std::shared_ptr<const Connection> connection, Backend to, std::optional<absl::Duration> timeout)
    : connection_(std::move(connection)),
      to_(std::move(to)),
      timeout_(timeout.value_or(connection_->options.timeout)),
      deadline_(absl::Now() + timeout_),
      retries_(*connection_, deadline_) {}

void AsyncCall::Send() {
  const auto self = shared_from_this();  // the call may be over before this is
  RpcState* attempt = nullptr;
  {
    const absl::MutexLock lock(&mutex_);
    attempt_ = std::make_unique<RpcState>(*connection_, retries_.To(to_), timeout_, deadline_);
    attempt = attempt_.get();
    retries_.Prepare(*attempt);
    if (cancelled_) attempt->Cancel();
  }
  Start(*attempt);  // without the lock: gRPC might call back at once
  const absl::MutexLock lock(&mutex_);
  if (attempt_.get() == attempt) attempt->watch.Started();
}

void AsyncCall::Cancel() {
  const absl::MutexLock lock(&mutex_);
  cancelled_ = true;
  if (attempt_ != nullptr) attempt_->Cancel();
  if (alarm_ != nullptr) alarm_->Cancel();
}

void AsyncCall::Ended(const grpc::Status& status) {
  absl::Status outcome;
  // A Call that the caller keeps holds this. The alarm, whose callback holds this, too, is released now.
  std::unique_ptr<grpc::Alarm> alarm;
  const RpcState* attempt = nullptr;
  {
    const absl::MutexLock lock(&mutex_);
    attempt_->watch.Ended();
    outcome = attempt_->Outcome(attempt_->Seen(status));
    const auto delay = outcome.ok() || cancelled_ ? std::nullopt : retries_.Next(outcome, attempt_->RetryHint());
    if (delay.has_value()) {
      alarm_ = std::make_unique<grpc::Alarm>();  // a new one: the last one may still be in its callback
      alarm_->Set(absl::ToChronoTime(absl::Now() + *delay), [self = shared_from_this()](bool) { self->Send(); });
      return;
    }
    if (!outcome.ok()) outcome = retries_.Final(outcome, *attempt_->backend.channel);
    alarm = std::move(alarm_);
    attempt = attempt_.get();
  }
  Finish(*attempt, outcome);
}

}  // namespace reduced::client
