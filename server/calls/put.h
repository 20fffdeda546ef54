// Arrays that are kept while they arrive. The flow of one is written down in put.cc.
#ifndef REDUCED_SERVER_CALLS_PUT_H_
#define REDUCED_SERVER_CALLS_PUT_H_

#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/calls/backend.h"

namespace reduced::server {

// The reactor of one PutArray: PutArrayRequests in, a PutArrayResponse into `response`. `backend` must outlive the
// call.
grpc::ServerReadReactor<grpc::ByteBuffer>* RunPut(Backend& backend, grpc::CallbackServerContext* context,
                                                  grpc::ByteBuffer* response);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_PUT_H_
