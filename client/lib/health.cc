// Client::CheckHealth and Client::WatchHealth, by grpc.health.v1.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "client/lib/answer.h"
#include "client/lib/call.h"
#include "google/protobuf/wrappers.pb.h"
#include "kernels/system/status_macros.h"
#include "reduced/client.h"

namespace reduced::client {
namespace {

// HealthCheckRequest has one string and HealthCheckResponse one enum, each as field 1. So have these messages, so that
// the .proto of the health service isn't needed.
using Request = google::protobuf::StringValue;
using Response = google::protobuf::Int32Value;
using HealthStub = grpc::TemplatedGenericStub<Request, Response>;

Request RequestForReductions() {
  Request request;
  request.set_value(v1::Reduction::service_full_name());
  return request;
}

absl::StatusOr<Health> FromProto(const std::string& server, const Response& response) {
  constexpr Health kStates[] = {Health::kUnknown, Health::kServing, Health::kNotServing, Health::kUnknown};
  const auto number = static_cast<std::size_t>(response.value());  // a negative one is large then
  if (number < std::size(kStates)) return kStates[number];
  return WrongAnswer(server, absl::InternalError(absl::StrCat("status: got ", response.value(), "; allowed: 0 to 3")));
}

}  // namespace

absl::StatusOr<Health> Client::CheckHealth(std::optional<absl::Duration> timeout) {
  RpcState state(*connection_, connection_->home, timeout);
  RETURN_IF_ERROR(CheckTimeout(state.timeout));
  const Request request = RequestForReductions();
  Response response;
  grpc::Status outcome;
  absl::Notification done;
  HealthStub(state.backend.channel)
      .UnaryCall(&state.context, "/grpc.health.v1.Health/Check", {}, &request, &response, [&](grpc::Status status) {
        outcome = std::move(status);
        done.Notify();
      });
  state.watch.Started();
  done.WaitForNotification();
  state.watch.Ended();
  if (outcome.error_code() == grpc::StatusCode::NOT_FOUND) return Health::kUnknown;
  RETURN_IF_ERROR(state.Outcome(state.Seen(outcome)));
  return FromProto(state.server, response);
}

absl::Status Client::WatchHealth(absl::FunctionRef<bool(Health)> on_change, absl::Duration timeout) {
  RETURN_IF_ERROR(CheckTimeout(timeout));
  RpcState state(*connection_, connection_->home, timeout);
  grpc::CompletionQueue queue;
  const auto step = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  HealthStub stub(state.backend.channel);
  const auto call = stub.PrepareCall(&state.context, "/grpc.health.v1.Health/Watch", &queue);
  call->StartCall(nullptr);
  bool open = step();
  if (open) {
    call->WriteLast(RequestForReductions(), {}, nullptr);
    open = step();
  }
  bool wanted = true;
  absl::Status right;
  while (open && wanted) {
    Response response;
    call->Read(&response, nullptr);
    open = step();
    if (!open) break;
    const absl::StatusOr<Health> health = FromProto(state.server, response);
    right = health.status();
    wanted = right.ok() && on_change(*health);
  }
  if (!wanted) state.context.TryCancel();
  grpc::Status outcome;
  call->Finish(&outcome, nullptr);
  step();
  queue.Shutdown();
  step();
  if (!wanted) return right;
  if (outcome.ok()) return absl::UnavailableError(absl::StrCat(state.server, ": the server ended the watch"));
  return state.Outcome(state.Seen(outcome));
}

}  // namespace reduced::client
