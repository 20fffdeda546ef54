// One Merge from start to end:
//
//   1. gRPC has the bytes of the message and calls Run, which makes a SimpleCall. Admission: identity, deadline, gate,
//      quota; then memory for the message, which has not been looked at.
//   2. The call gets a lane of the merges, waits for one in a queue in which callers take turns, or is refused. The
//   gRPC
//      thread returns.
//   3. The lane's thread decodes the states one by one and merges them, and encodes the response. Every thousand states
//      or outputs of one it looks at the clock and at the flag that OnCancel sets.
//   4. The call ends: as the lane's last action, since from then on it belongs to gRPC.
#include "server/calls/merge.h"

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/engine/why_stop.h"
#include "server/wire/encode.h"
#include "server/wire/merge.h"
#include "server/wire/status.h"

namespace reduced::server {
namespace {

constexpr double kMergedBytesPerUs = 10;  // of messages, about
constexpr absl::Duration kMergeRetryDelay = absl::Milliseconds(100);

}  // namespace

grpc::ServerUnaryReactor* Merges::Run(grpc::CallbackServerContext* context, grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) {
  auto* const call = new SimpleCall(Rpc::kMerge, backend_, context);
  absl::Status status = call->Admit(*request);
  if (status.ok()) status = call->Hold(static_cast<std::int64_t>(request->Length()));
  if (!status.ok()) return call->End(status);
  const auto run = [this, call, request, response](const absl::StatusOr<int>& lane) {
    if (lane.ok()) return call->End(Merge(*call, request, response));
    const bool full = absl::IsResourceExhausted(lane.status());
    return call->End(full ? WithRetryHint(lane.status(), kMergeRetryDelay) : lane.status());
  };
  lanes_.Submit(run, {.expected_us = static_cast<double>(request->Length()) / kMergedBytesPerUs,
                      .cancelled = call->cancelled(),
                      .deadline = call->deadline(),
                      .caller = call->key()});
  return call;
}

absl::Status Merges::Merge(SimpleCall& call, grpc::ByteBuffer* request, grpc::ByteBuffer* response) const {
  const auto message_bytes = static_cast<std::int64_t>(request->Length());
  RunLimit limit(backend_.limits.max_run_time);
  limit.Start();
  v1::MergeResponse answer;
  absl::Status status = MergeEncoded(
      *request, {backend_.limits.max_elements, backend_.limits.max_ops},
      [&call, &limit] { return WhyStop(call.cancelled(), call.deadline(), limit); },
      [&call, message_bytes](std::int64_t bytes) { return call.Hold(message_bytes + bytes); }, &answer);
  request->Clear();
  if (status.ok()) status = call.Encode(answer, response);
  return status;
}

}  // namespace reduced::server
