// Streams: arrays that are reduced while they arrive. The flow of one is written down in stream.cc.
#ifndef REDUCED_SERVER_STREAM_H_
#define REDUCED_SERVER_STREAM_H_

#include <atomic>

#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "kernels/engines.h"
#include "server/gate.h"
#include "server/options.h"

namespace reduced {

// Thread-safe.
class Streams {
 public:
  // All three must outlive it, and it the calls that it runs.
  Streams(const Engines& engines, const RequestLimits& limits, Gate& gate)
      : engines_(engines), limits_(limits), gate_(gate) {}

  // The reactor of one call: of ReduceStreamRequests in, a ReduceResponse into `response`.
  grpc::ServerReadReactor<grpc::ByteBuffer>* Run(grpc::CallbackServerContext* context, grpc::ByteBuffer* response);

 private:
  class Call;

  const Engines& engines_;
  const RequestLimits& limits_;
  Gate& gate_;
  std::atomic<int> running_ = 0;  // not more than limits_.max_streams, but while one is being refused
};

}  // namespace reduced

#endif  // REDUCED_SERVER_STREAM_H_
