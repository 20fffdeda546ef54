// Ladders: the server measures its pipelines on an array of its own making. The flow of one is written down in
// ladder.cc.
#ifndef REDUCED_SERVER_CALLS_LADDER_H_
#define REDUCED_SERVER_CALLS_LADDER_H_

#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "kernels/engine/lanes.h"
#include "reduced/v1/reduced.pb.h"
#include "server/calls/backend.h"

namespace reduced::server {

// Thread-safe.
class Ladders {
 public:
  // `backend` must outlive it, and it the calls that it runs.
  explicit Ladders(Backend& backend) : backend_(backend) {}

  // The reactor of one call. `request` is read before it returns.
  grpc::ServerWriteReactor<v1::LadderReply>* Run(grpc::CallbackServerContext* context,
                                                 const v1::LadderRequest& request);

 private:
  class Call;

  Backend& backend_;
  // One at a time: two would disturb each other's times. It does what blocks, so that no thread of gRPC has to.
  Lanes lanes_{/*lanes=*/1, /*queue_limit=*/4};
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_LADDER_H_
