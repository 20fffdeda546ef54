// Client::Reduce and Client::ReduceAsync.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/lib/call.h"
#include "client/lib/convert.h"
#include "client/lib/parts.h"
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

void SetElements(const ArrayView& array, Plan* plan) {
  plan->request.set_inline_data(array.data, static_cast<std::size_t>(plan->bytes));
}

StreamMessages MessagesOf(const Plan& plan, const void* data) {
  v1::ReduceStreamRequest first;
  *first.mutable_header() = plan.request;
  return {first, data, plan.bytes};
}

// A unary Reduce, whose request is complete.
absl::StatusOr<Reply> CallReduce(const Connection& connection, const ReduceOptions& options, const Plan& plan) {
  RpcState state(connection, plan.backend, options.timeout);
  v1::ReduceResponse response;
  const absl::Status status = CallAndWait(state, &v1::Reduction::Stub::Reduce, plan.request, &response);
  if (!status.ok()) return status;
  return ToReply(response, plan.via);
}

// The same with a callback.
struct ReduceState : RpcState {
  using RpcState::RpcState;
  v1::ReduceRequest request;
  v1::ReduceResponse response;
  Client::Done done;
};

std::shared_ptr<Call::State> StartReduce(const Connection& connection, const ReduceOptions& options, Plan plan,
                                         Client::Done done) {
  auto state = std::make_shared<ReduceState>(connection, std::move(plan.backend), options.timeout);
  state->request = std::move(plan.request);
  state->done = std::move(done);
  const auto ended = [state, via = plan.via](const grpc::Status& status) {
    // A Call that the caller keeps holds the state. The elements and the callback are released now.
    Client::Done done = std::exchange(state->done, nullptr);
    v1::ReduceRequest().Swap(&state->request);
    if (status.ok()) {
      std::move(done)(ToReply(state->response, via));
    } else {
      std::move(done)(state->Outcome(status));
    }
  };
  state->backend.stub->async()->Reduce(&state->context, &state->request, &state->response, ended);
  return state;
}

}  // namespace

absl::StatusOr<Reply> Client::Reduce(const ArrayView& array, const std::vector<std::string>& ops,
                                     const ReduceOptions& options) {
  absl::StatusOr<Plan> plan = MakePlan(array, ops, options, *connection_);
  if (!plan.ok()) return plan.status();
  if (plan->via == kInline) {
    SetElements(array, &*plan);
    return CallReduce(*connection_, options, *plan);
  }
  // The parts of an upload must reach the same server.
  const int connections = connection_->target.several ? 1 : connection_->options.connections;
  if (const std::vector<std::int64_t> cuts = CutInParts(plan->bytes, connections); cuts.size() > 2) {
    return ReduceInParts(*connection_, plan->request, array, cuts, options);
  }
  RpcState state(*connection_, plan->backend, options.timeout);
  return ToReply(ReduceStreamAndWait(state, MessagesOf(*plan, array.data), options.on_progress), kStream);
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
  if (!plan.ok()) {
    std::move(done)(plan.status());
  } else if (plan->via == kStream) {
    call.state_ = StartReduceStream(*connection_, options, MessagesOf(*plan, array.data), std::move(done));
  } else {
    SetElements(array, &*plan);
    call.state_ = StartReduce(*connection_, options, *std::move(plan), std::move(done));
  }
  return call;
}

Call Client::ReduceAsync(const RemoteArray& array, const std::vector<std::string>& ops, const ReduceOptions& options,
                         Done done) {
  KeepCallbackThreads();
  Call call;
  absl::StatusOr<Plan> plan = MakePlan(array, ops, options, *connection_);
  if (plan.ok()) {
    call.state_ = StartReduce(*connection_, options, *std::move(plan), std::move(done));
  } else {
    std::move(done)(plan.status());
  }
  return call;
}

}  // namespace reduced::client
