// Merges: states are merged into one. merge.cc describes the flow.
#ifndef REDUCED_SERVER_CALLS_MERGE_H_
#define REDUCED_SERVER_CALLS_MERGE_H_

#include "absl/status/status.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "kernels/engine/lanes.h"
#include "server/calls/backend.h"
#include "server/calls/simple_call.h"

namespace reduced::server {

// Thread-safe.
class Merges {
 public:
  // `backend` must outlive this object, which must outlive its calls.
  explicit Merges(Backend& backend) : backend_(backend) {}

  // The reactor of one call: a MergeRequest, which is decoded a state at a time, and a MergeResponse. It takes the
  // bytes of `request`.
  grpc::ServerUnaryReactor* Run(grpc::CallbackServerContext* context, grpc::ByteBuffer* request,
                                grpc::ByteBuffer* response);

 private:
  absl::Status Merge(SimpleCall& call, grpc::ByteBuffer* request, grpc::ByteBuffer* response) const;

  Backend& backend_;
  // Two, so that long merges leave one to short ones. They work in place of gRPC's threads, beside the engines.
  Lanes lanes_{/*lanes=*/2, /*queue_limit=*/256};
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_MERGE_H_
