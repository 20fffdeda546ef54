#include "server/wire/arrays.h"

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/calls/calls.h"
#include "server/calls/simple_call.h"
#include "server/security/identity.h"

namespace reduced::server {

grpc::ServerUnaryReactor* RunListArrays(Backend& backend, grpc::CallbackServerContext* context,
                                        const v1::ListArraysRequest* request, v1::ListArraysResponse* response) {
  SimpleCall call(Rpc::kListArrays, backend, context);
  const absl::Status status = call.Admit();
  if (!status.ok()) return call.Finish(status);
  const absl::StatusOr<std::string> owner = OwnerFor(request->owner(), call.caller());
  if (!owner.ok()) return call.Finish(owner.status());
  for (const ArrayDescription& array : backend.arrays.List(*owner, call.caller())) {
    ToProto(array, response->add_arrays());
  }
  return call.Finish(absl::OkStatus());
}

// Answers once the array has no users, whether or not the client waits: the reactor exists until then.
grpc::ServerUnaryReactor* RunDeleteArray(Backend& backend, grpc::CallbackServerContext* context,
                                         const v1::DeleteArrayRequest* request) {
  const auto call = std::make_shared<SimpleCall>(Rpc::kDeleteArray, backend, context);
  const absl::Status status = call->Admit();
  if (!status.ok()) return call->Finish(status);
  const absl::StatusOr<std::string> owner = OwnerFor(request->owner(), call->caller());
  if (!owner.ok()) return call->Finish(owner.status());
  backend.arrays.Delete(
      request->id(), *owner, [call](const absl::Status& deleted) { call->Finish(deleted); }, call->caller());
  return call->reactor();
}

}  // namespace reduced::server
