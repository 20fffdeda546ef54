// Client::Reduce and Client::ReduceAsync.
#include <grpcpp/alarm.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/lib/answer.h"
#include "client/lib/call.h"
#include "client/lib/convert.h"
#include "client/lib/parts.h"
#include "client/lib/retry.h"
#include "client/lib/spread.h"
#include "client/lib/stream.h"
#include "client/lib/via.h"
#include "reduced/client.h"
#include "reduced/v1/reduced.grpc.pb.h"

namespace reduced::client {
namespace {

// A request, and how it is sent.
struct Plan {
  v1::ReduceRequest request{};  // without the elements
  std::int64_t bytes = 0;       // of the elements that are sent
  absl::string_view via{};
  Backend backend{};
};

absl::StatusOr<Plan> MakePlan(const ArrayView& array, const std::vector<std::string>& ops, const ReduceOptions& options,
                              const Connection& connection) {
  Plan plan{.backend = connection.parts.front()};
  absl::Status status = CheckTimeout(options.timeout.value_or(connection.options.timeout));
  status.Update(ToProto(array, plan.request.mutable_array()));
  status.Update(ToProto(ops, options, &plan.request));
  if (!status.ok()) return status;
  plan.bytes = *ArrayBytes(array.dtype, array.shape);
  const absl::StatusOr<absl::string_view> via = ChooseVia(options.via, plan.bytes);
  if (!via.ok()) return via.status();
  plan.via = *via;
  return plan;
}

absl::StatusOr<Plan> MakePlan(const RemoteArray& array, const std::vector<std::string>& ops,
                              const ReduceOptions& options, const Connection& connection) {
  Plan plan{.via = array.id().empty() ? kRegion : kResident, .backend = connection.home};
  absl::Status status = CheckTimeout(options.timeout.value_or(connection.options.timeout));
  status.Update(ToProto(array, &plan.request));
  status.Update(ToProto(ops, options, &plan.request));
  if (!status.ok()) return status;
  return plan;
}

// An error is that of the array's reader.
absl::Status SetElements(const ArrayView& array, Plan* plan) {
  const auto bytes = static_cast<std::size_t>(plan->bytes);
  if (array.reader.read == nullptr) {
    plan->request.set_inline_data(array.data, bytes);
    return absl::OkStatus();
  }
  plan->request.mutable_inline_data()->resize(bytes);
  return array.reader.read(0, plan->request.mutable_inline_data()->data(), plan->bytes);
}

StreamMessages MessagesOf(const Plan& plan, const ArrayView& array) {
  v1::ReduceStreamRequest first;
  *first.mutable_header() = plan.request;
  return {first, array, 0, plan.bytes};
}

// A unary Reduce, whose request is complete.
absl::StatusOr<Reply> CallReduce(const Connection& connection, const ReduceOptions& options, const Plan& plan) {
  v1::ReduceResponse response;
  int attempts = 1;
  const absl::Status status =
      CallAgainAndWait(connection, plan.backend, options.timeout, &v1::Reduction::Stub::PrepareAsyncReduce,
                       plan.request, &response, options.interrupted, &attempts);
  if (!status.ok()) return status;
  absl::StatusOr<Reply> reply = ToReply(connection.options.server, Asked(plan.request), response, plan.via);
  if (reply.ok()) reply->attempts = attempts;
  return reply;
}

// The same with a callback. Between two attempts an alarm runs.
class ReduceCall final : public Call::State, public std::enable_shared_from_this<ReduceCall> {
 public:
  ReduceCall(std::shared_ptr<const Connection> connection, std::optional<absl::Duration> timeout, Plan plan,
             Client::Done done)
      : connection_(std::move(connection)),
        timeout_(timeout.value_or(connection_->options.timeout)),
        deadline_(absl::Now() + timeout_),
        plan_(std::move(plan)),
        done_(std::move(done)),
        retries_(*connection_, deadline_) {}

  void Send() {
    const auto self = shared_from_this();  // the call may be over before this is
    RpcState* attempt = nullptr;
    {
      const absl::MutexLock lock(&mutex_);
      attempt_ = std::make_unique<RpcState>(*connection_, plan_.backend, timeout_, deadline_);
      attempt = attempt_.get();
      if (cancelled_) attempt->Cancel();
    }
    // Without the lock: gRPC might call back at once.
    plan_.backend.stub->async()->Reduce(&attempt->context, &plan_.request, &response_,
                                        [self](const grpc::Status& status) { self->Ended(status); });
    const absl::MutexLock lock(&mutex_);
    if (attempt_.get() == attempt) attempt->watch.Started();
  }

  void Cancel() override {
    const absl::MutexLock lock(&mutex_);
    cancelled_ = true;
    if (attempt_ != nullptr) attempt_->Cancel();
    if (alarm_ != nullptr) alarm_->Cancel();
  }

 private:
  void Ended(const grpc::Status& status) {
    {
      const absl::MutexLock lock(&mutex_);
      attempt_->watch.Ended();
    }
    if (status.ok()) {
      absl::StatusOr<Reply> reply = ToReply(connection_->options.server, Asked(plan_.request), response_, plan_.via);
      if (reply.ok()) reply->attempts = retries_.attempts();
      return Finish(std::move(reply));
    }
    absl::Status error;
    {
      const absl::MutexLock lock(&mutex_);
      const auto delay = cancelled_ ? std::nullopt : retries_.Next(status.error_code(), attempt_->RetryHint());
      if (delay.has_value()) {
        alarm_ = std::make_unique<grpc::Alarm>();  // a new one: the last one may still be in its callback
        alarm_->Set(absl::ToChronoTime(absl::Now() + *delay), [self = shared_from_this()](bool) { self->Send(); });
        return;
      }
      error = retries_.Final(attempt_->Outcome(status));
    }
    Finish(std::move(error));
  }

  // A Call that the caller keeps holds this. The elements and the callback are released now, and so is the alarm, whose
  // callback holds this, too.
  void Finish(absl::StatusOr<Reply> reply) {
    std::unique_ptr<grpc::Alarm> alarm;
    {
      const absl::MutexLock lock(&mutex_);
      alarm = std::move(alarm_);
    }
    v1::ReduceRequest().Swap(&plan_.request);
    std::move(std::exchange(done_, nullptr))(std::move(reply));
  }

  const std::shared_ptr<const Connection> connection_;
  const absl::Duration timeout_;
  const absl::Time deadline_;
  // One attempt at a time uses these.
  Plan plan_;
  v1::ReduceResponse response_;
  Client::Done done_;
  Retries retries_;

  absl::Mutex mutex_;
  std::unique_ptr<RpcState> attempt_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);  // until the next attempt
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

std::shared_ptr<Call::State> StartReduce(std::shared_ptr<const Connection> connection, const ReduceOptions& options,
                                         Plan plan, Client::Done done) {
  const auto call =
      std::make_shared<ReduceCall>(std::move(connection), options.timeout, std::move(plan), std::move(done));
  call->Send();
  return call;
}

}  // namespace

absl::StatusOr<Reply> Client::Reduce(const ArrayView& array, const std::vector<std::string>& ops,
                                     const ReduceOptions& options) {
  absl::StatusOr<Plan> plan = MakePlan(array, ops, options, *connection_);
  if (!plan.ok()) return plan.status();
  if (const absl::Status status = CheckElements(array, /*may_have_reader=*/true); !status.ok()) return status;
  if (plan->via == kInline) {
    if (const absl::Status status = SetElements(array, &*plan); !status.ok()) return status;
    return CallReduce(*connection_, options, *plan);
  }
  const absl::Duration timeout = options.timeout.value_or(connection_->options.timeout);
  const absl::Time deadline = absl::Now() + timeout;
  const bool one = array.reader.read != nullptr && array.reader.in_order;
  if (connection_->target.several && !one) {
    const std::vector<std::int64_t> cuts = CutForServers(plan->bytes, PartsAtOnce(*connection_));
    if (cuts.size() > 2) return ReduceSpread(*connection_, plan->request, array, cuts, options, deadline);
  } else if (!one) {
    const std::vector<std::int64_t> cuts = CutInParts(plan->bytes, connection_->options.connections);
    if (cuts.size() > 2) return ReduceInParts(*connection_, plan->request, array, cuts, options);
  }
  RpcState state(*connection_, plan->backend, timeout, deadline);
  return ToReply(state.server, Asked(plan->request),
                 ReduceStreamAndWait(state, MessagesOf(*plan, array), options.on_progress, options.interrupted),
                 kStream);
}

absl::StatusOr<Reply> Client::Reduce(const RemoteArray& array, const std::vector<std::string>& ops,
                                     const ReduceOptions& options) {
  const absl::StatusOr<Plan> plan = MakePlan(array, ops, options, *connection_);
  if (!plan.ok()) return plan.status();
  return CallReduce(*connection_, options, *plan);
}

Call Client::ReduceAsync(const ArrayView& array, const std::vector<std::string>& ops, const ReduceOptions& options,
                         Done done) {
  KeepCallbackThreads();
  Call call;
  absl::StatusOr<Plan> plan = MakePlan(array, ops, options, *connection_);
  absl::Status status = plan.status();
  status.Update(CheckElements(array));
  if (status.ok() && plan->via == kInline) status = SetElements(array, &*plan);
  if (!status.ok()) {
    std::move(done)(std::move(status));
  } else if (plan->via == kStream) {
    call.state_ =
        StartReduceStream(*connection_, options, Asked(plan->request), MessagesOf(*plan, array), std::move(done));
  } else {
    call.state_ = StartReduce(connection_, options, *std::move(plan), std::move(done));
  }
  return call;
}

Call Client::ReduceAsync(const RemoteArray& array, const std::vector<std::string>& ops, const ReduceOptions& options,
                         Done done) {
  KeepCallbackThreads();
  Call call;
  absl::StatusOr<Plan> plan = MakePlan(array, ops, options, *connection_);
  if (plan.ok()) {
    call.state_ = StartReduce(connection_, options, *std::move(plan), std::move(done));
  } else {
    std::move(done)(plan.status());
  }
  return call;
}

}  // namespace reduced::client
