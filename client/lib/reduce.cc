// Client::Reduce and Client::ReduceAsync.
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
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/lib/answer.h"
#include "client/lib/async_call.h"
#include "client/lib/call.h"
#include "client/lib/convert.h"
#include "client/lib/parts.h"
#include "client/lib/retry.h"
#include "client/lib/spread.h"
#include "client/lib/stream.h"
#include "client/lib/via.h"
#include "kernels/system/status_macros.h"
#include "proto/codec/op_call.h"
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
  std::vector<std::string> names{};  // of the ops, if they have parameters
};

absl::StatusOr<Plan> MakePlan(const ArrayView& array, const std::vector<std::string>& ops, const ReduceOptions& options,
                              const Connection& connection) {
  Plan plan{.backend = connection.parts.front()};
  absl::Status status = CheckTimeout(options.timeout.value_or(connection.options.timeout));
  status.Update(ToProto(array, plan.request.mutable_array()));
  status.Update(ToProto(ops, options, &plan.request));
  if (!status.ok()) return status;
  plan.names = NamesFor(plan.request, ops);
  plan.bytes = *ArrayBytes(array.dtype, array.shape);
  ASSIGN_OR_RETURN(plan.via, ChooseVia(options.via, plan.bytes));
  return plan;
}

absl::StatusOr<Plan> MakePlan(const RemoteArray& array, const std::vector<std::string>& ops,
                              const ReduceOptions& options, const Connection& connection) {
  Plan plan{.via = array.id().empty() ? kRegion : kResident, .backend = connection.home};
  absl::Status status = CheckTimeout(options.timeout.value_or(connection.options.timeout));
  status.Update(ToProto(array, &plan.request));
  status.Update(ToProto(ops, options, &plan.request));
  if (!status.ok()) return status;
  plan.names = NamesFor(plan.request, ops);
  return plan;
}

// Ops of the distribution have no stream, but for what asks for one.
absl::Status ChooseInline(Plan* plan) {
  if (ChooseVia(kInline, plan->bytes).ok()) {
    plan->via = kInline;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("array: got ", plan->bytes,
                   " bytes with an op of the distribution in ReduceAsync; allowed: arrays of "
                   "less than 2 GiB, larger ones in Client::Reduce, resident arrays and regions"));
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
  RETURN_IF_ERROR(CallAgainAndWait(connection, plan.backend, options.timeout, &v1::Reduction::Stub::PrepareAsyncReduce,
                                   plan.request, &response, options.interrupted, &attempts));
  absl::StatusOr<Reply> reply = ToReply(connection.options.server, Asked(plan.request), response, plan.via, plan.names);
  if (reply.ok()) reply->attempts = attempts;
  return reply;
}

// The same with a callback.
class ReduceCall final : public AsyncCall {
 public:
  ReduceCall(std::shared_ptr<const Connection> connection, std::optional<absl::Duration> timeout, Plan plan,
             Client::Done done)
      : AsyncCall(std::move(connection), plan.backend, timeout), plan_(std::move(plan)), done_(std::move(done)) {}

 private:
  void Start(RpcState& attempt) override {
    attempt.backend.stub->async()->Reduce(
        &attempt.context, &plan_.request, &response_,
        [this, self = shared_from_this()](const grpc::Status& status) { Ended(status); });
  }

  void Finish(const RpcState& attempt, const absl::Status& outcome) override {
    absl::StatusOr<Reply> reply = outcome.ok()
                                      ? ToReply(attempt.server, Asked(plan_.request), response_, plan_.via, plan_.names)
                                      : absl::StatusOr<Reply>(outcome);
    if (reply.ok()) reply->attempts = attempts();
    v1::ReduceRequest().Swap(&plan_.request);  // the elements
    std::move(std::exchange(done_, nullptr))(std::move(reply));
  }

  Plan plan_;
  v1::ReduceResponse response_;
  Client::Done done_;
};

// A stream with a callback.
class StreamCall final : public AsyncCall {
 public:
  StreamCall(std::shared_ptr<const Connection> connection, std::optional<absl::Duration> timeout, const Plan& plan,
             const ArrayView& array, Client::Done done)
      : AsyncCall(std::move(connection), plan.backend, timeout),
        asked_(plan.request),
        names_(plan.names),
        messages_(MessagesOf(plan, array)),
        done_(std::move(done)) {}

 private:
  void Start(RpcState& attempt) override {
    StartReduceStream(attempt, messages_, &response_,
                      [this, self = shared_from_this()](const grpc::Status& status, std::int64_t sent) {
                        sent_ = sent;
                        Ended(status);
                      });
  }

  void Finish(const RpcState& attempt, const absl::Status& outcome) override {
    const absl::Status status = AfterBytes(outcome, sent_, messages_.left());
    absl::StatusOr<v1::ReduceResponse> response = StreamResponse(attempt, &response_);
    if (!status.ok()) response = status;
    absl::StatusOr<Reply> reply = ToReply(attempt.server, asked_, std::move(response), kStream, names_);
    if (reply.ok()) reply->attempts = attempts();
    std::move(std::exchange(done_, nullptr))(std::move(reply));
  }

  const Asked asked_;
  const std::vector<std::string> names_;
  const StreamMessages messages_;  // of every attempt
  std::int64_t sent_ = 0;          // bytes of the elements, in the last one
  grpc::ByteBuffer response_;
  Client::Done done_;
};

template <class AnyCall, class... Arguments>
std::shared_ptr<Call::State> StartCall(Arguments&&... arguments) {
  const auto call = std::make_shared<AnyCall>(std::forward<Arguments>(arguments)...);
  call->Send();
  return call;
}

}  // namespace

absl::StatusOr<Reply> Client::Reduce(const ArrayView& array, const std::vector<std::string>& ops,
                                     const ReduceOptions& options) {
  ASSIGN_OR_RETURN(Plan plan, MakePlan(array, ops, options, *connection_));
  RETURN_IF_ERROR(CheckElements(array, /*may_have_reader=*/true));
  if (plan.via == kInline) {
    RETURN_IF_ERROR(SetElements(array, plan.bytes, &plan.request));
    return CallReduce(*connection_, options, plan);
  }
  const absl::Time deadline = absl::Now() + options.timeout.value_or(connection_->options.timeout);
  if (options.via == "auto" && AsksForDistribution(plan.request)) {  // which streams are not for
    RETURN_IF_ERROR(CheckCalls(plan.request));
    ASSIGN_OR_RETURN(const ResidentArray stored, Put(array, {.device = "cpu",
                                                             .timeout = options.timeout,
                                                             .on_progress = options.on_progress,
                                                             .interrupted = options.interrupted}));
    ReduceOptions rest = options;
    rest.timeout = TimeLeft(deadline);
    return Reduce(stored, ops, rest);
  }
  const bool one = array.reader.read != nullptr && array.reader.in_order;
  if (connection_->target.several && !one && !AsksForDistribution(plan.request)) {
    const std::vector<std::int64_t> cuts = CutForServers(plan.bytes, PartsAtOnce(*connection_));
    if (cuts.size() > 2) return ReduceSpread(*connection_, plan.request, array, cuts, options, deadline);
  } else if (!one && !connection_->target.several) {
    const std::vector<std::int64_t> cuts = CutInParts(plan.bytes, connection_->options.connections);
    if (cuts.size() > 2) return ReduceInParts(*connection_, plan.request, plan.names, array, cuts, options);
  }
  int attempts = 1;
  const StreamMessages messages = MessagesOf(plan, array);  // of every attempt
  absl::StatusOr<Reply> reply =
      ToReply(connection_->options.server, Asked(plan.request),
              CallAgain(*connection_, plan.backend, options.timeout, options.interrupted, &attempts,
                        [&](RpcState& state) {
                          return ReduceStreamAndWait(state, messages, options.on_progress, options.interrupted);
                        }),
              kStream, plan.names);
  if (reply.ok()) reply->attempts = attempts;
  return reply;
}

absl::StatusOr<Reply> Client::Reduce(const RemoteArray& array, const std::vector<std::string>& ops,
                                     const ReduceOptions& options) {
  ASSIGN_OR_RETURN(const Plan plan, MakePlan(array, ops, options, *connection_));
  return CallReduce(*connection_, options, plan);
}

Call Client::ReduceAsync(const ArrayView& array, const std::vector<std::string>& ops, const ReduceOptions& options,
                         Done done) {
  KeepCallbackThreads();
  Call call;
  absl::StatusOr<Plan> plan = MakePlan(array, ops, options, *connection_);
  absl::Status status = plan.status();
  status.Update(CheckElements(array));
  if (status.ok() && plan->via == kStream && options.via == "auto" && AsksForDistribution(plan->request)) {
    status = ChooseInline(&*plan);
  }
  if (status.ok() && plan->via == kInline) status = SetElements(array, plan->bytes, &plan->request);
  if (!status.ok()) {
    std::move(done)(std::move(status));
  } else if (plan->via == kStream) {
    call.state_ = StartCall<StreamCall>(connection_, options.timeout, *plan, array, std::move(done));
  } else {
    call.state_ = StartCall<ReduceCall>(connection_, options.timeout, *std::move(plan), std::move(done));
  }
  return call;
}

Call Client::ReduceAsync(const RemoteArray& array, const std::vector<std::string>& ops, const ReduceOptions& options,
                         Done done) {
  KeepCallbackThreads();
  Call call;
  absl::StatusOr<Plan> plan = MakePlan(array, ops, options, *connection_);
  if (plan.ok()) {
    call.state_ = StartCall<ReduceCall>(connection_, options.timeout, *std::move(plan), std::move(done));
  } else {
    std::move(done)(plan.status());
  }
  return call;
}

}  // namespace reduced::client
