// Streams: arrays that are reduced while they arrive. The flow of one is written down in stream.cc.
#ifndef REDUCED_SERVER_CALLS_STREAM_H_
#define REDUCED_SERVER_CALLS_STREAM_H_

#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/calls/backend.h"

namespace reduced::server {

// The reactor of one ReduceStream: ReduceStreamRequests in, a ReduceResponse into `response`. `backend` must outlive
// the call.
grpc::ServerReadReactor<grpc::ByteBuffer>* RunStream(Backend& backend, grpc::CallbackServerContext* context,
                                                     grpc::ByteBuffer* response);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_STREAM_H_
