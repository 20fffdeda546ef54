// Ladders: the server measures its pipelines on a generated array. ladder.cc describes the flow.
#ifndef REDUCED_SERVER_CALLS_LADDER_H_
#define REDUCED_SERVER_CALLS_LADDER_H_

#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "kernels/engine/lanes.h"
#include "server/calls/backend.h"

namespace reduced::server {

// Thread-safe.
class Ladders {
 public:
  // `backend` must outlive this object, which must outlive its calls.
  explicit Ladders(Backend& backend) : backend_(backend) {}

  // The reactor of one call. It takes the bytes of `request`.
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Run(grpc::CallbackServerContext* context, grpc::ByteBuffer* request);

 private:
  class Call;

  Backend& backend_;
  // One ladder at a time: two would disturb each other's times. The lane blocks in place of gRPC's threads.
  Lanes lanes_{/*lanes=*/1, /*queue_limit=*/4};
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_LADDER_H_
