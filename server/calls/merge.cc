#include "server/wire/merge.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/engine/memory_budget.h"
#include "server/calls/calls.h"
#include "server/calls/simple_call.h"
#include "server/wire/encode.h"
#include "server/wire/status.h"

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
  std::vector<MemoryLease> memory;  // of states of arrays, until the answer is encoded
  const auto take = [&](std::int64_t bytes) -> absl::Status {
    absl::StatusOr<MemoryLease> lease = MemoryLease::Take(*backend.memory, bytes, "the states of a request");
    if (!lease.ok()) return WithRetryHint(lease.status(), kMemoryRetryDelay);
    memory.push_back(*std::move(lease));
    return absl::OkStatus();
  };
  v1::MergeResponse answer;
  if (status.ok()) status = MergeEncoded(*request, limits, why_stop, take, &answer);
  if (status.ok()) status = Encode(answer, response);
  return call->End(status);
}

}  // namespace reduced::server
