// Client::CheckHealth and Client::WatchHealth, by grpc.health.v1.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "client/lib/call.h"
#include "google/protobuf/wrappers.pb.h"
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

Health FromProto(const Response& response) {
  switch (response.value()) {
    case 1:
      return Health::kServing;
    case 2:
      return Health::kNotServing;
    default:
      return Health::kUnknown;
  }
}

}  // namespace

absl::StatusOr<Health> Client::CheckHealth(std::optional<absl::Duration> timeout) {
  RpcState state(*connection_, connection_->home, timeout);
  if (const absl::Status status = CheckTimeout(state.timeout); !status.ok()) return status;
  const Request request = RequestForReductions();
  Response response;
  grpc::Status outcome;
  absl::Notification done;
  HealthStub(state.backend.channel)
      .UnaryCall(&state.context, "/grpc.health.v1.Health/Check", {}, &request, &response, [&](grpc::Status status) {
        outcome = std::move(status);
        done.Notify();
      });
  done.WaitForNotification();
  if (outcome.error_code() == grpc::StatusCode::NOT_FOUND) return Health::kUnknown;
  const absl::Status status = state.Outcome(outcome);
  if (!status.ok()) return status;
  return FromProto(response);
}

absl::Status Client::WatchHealth(absl::FunctionRef<bool(Health)> on_change, absl::Duration timeout) {
  if (const absl::Status status = CheckTimeout(timeout); !status.ok()) return status;
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
  while (open && wanted) {
    Response response;
    call->Read(&response, nullptr);
    open = step();
    if (open) wanted = on_change(FromProto(response));
  }
  if (!wanted) state.context.TryCancel();
  grpc::Status outcome;
  call->Finish(&outcome, nullptr);
  step();
  queue.Shutdown();
  step();
  if (!wanted) return absl::OkStatus();
  if (outcome.ok()) return absl::UnavailableError(absl::StrCat(state.server, ": the server ended the watch"));
  return state.Outcome(outcome);
}

}  // namespace reduced::client
