#include "server/wire/merge.h"

#include "absl/status/status.h"
#include "server/calls/calls.h"
#include "server/calls/simple_call.h"
#include "server/wire/encode.h"

namespace reduced::server {

// Merges on the gRPC thread: a state takes about a microsecond.
grpc::ServerUnaryReactor* RunMerge(Backend& backend, grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  auto* const call = new SimpleCall(Rpc::kMerge, backend, context);
  absl::Status status = call->Admit(*request);
  const StateLimits limits{backend.limits.max_elements, backend.limits.max_ops};
  const auto why_stop = [context] {
    return context->IsCancelled() ? absl::CancelledError("the caller cancelled the call") : absl::OkStatus();
  };
  v1::MergeResponse answer;
  if (status.ok()) status = MergeEncoded(*request, limits, why_stop, &answer);
  if (status.ok()) status = Encode(answer, response);
  return call->End(status);
}

}  // namespace reduced::server
