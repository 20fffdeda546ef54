#include "server/wire/merge.h"

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/engine/why_stop.h"
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
  const auto message_bytes = static_cast<std::int64_t>(request->Length());
  v1::MergeResponse answer;
  if (status.ok()) {
    status = MergeEncoded(
        *request, limits, [call] { return WhyStop(call->cancelled(), call->deadline()); },
        [call, message_bytes](std::int64_t bytes) { return call->Hold(message_bytes + bytes); }, &answer);
  }
  if (status.ok()) status = Encode(answer, response);
  return call->End(status);
}

}  // namespace reduced::server
