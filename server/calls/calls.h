// The calls of the service, each implemented in a file of its own. `backend` must outlive the call; the context, the
// request and the response are gRPC's, and valid until the call is done. All messages are bytes: what gRPC itself
// cannot decode or finds too large it answers without a request id, and nothing counts or logs it. A request that is
// not const is taken: its memory is free once it is decoded.
#ifndef REDUCED_SERVER_CALLS_CALLS_H_
#define REDUCED_SERVER_CALLS_CALLS_H_

#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/calls/backend.h"

namespace reduced::server {

// stream.cc: an array that is reduced while it arrives. ReduceStreamRequests in, a ReduceResponse into `response`.
grpc::ServerReadReactor<grpc::ByteBuffer>* RunStream(Backend& backend, grpc::CallbackServerContext* context,
                                                     grpc::ByteBuffer* response);

// put.cc: an array that becomes resident while it arrives. PutArrayRequests in, a PutArrayResponse into `response`.
grpc::ServerReadReactor<grpc::ByteBuffer>* RunPut(Backend& backend, grpc::CallbackServerContext* context,
                                                  grpc::ByteBuffer* response);

// session.cc: many reductions in one call. SessionRequests in, SessionResponses out, both raw, so that the time of
// parsing is measured, and a message that can't be parsed is not mistaken for the half-close.
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* RunSession(Backend& backend,
                                                                        grpc::CallbackServerContext* context);

// arrays.cc: the caller's resident arrays. A ListArraysRequest in, a ListArraysResponse out.
grpc::ServerUnaryReactor* RunListArrays(Backend& backend, grpc::CallbackServerContext* context,
                                        grpc::ByteBuffer* request, grpc::ByteBuffer* response);
grpc::ServerUnaryReactor* RunDeleteArray(Backend& backend, grpc::CallbackServerContext* context,
                                         grpc::ByteBuffer* request, grpc::ByteBuffer* response);

// get.cc: the elements of a resident array. A GetArrayRequest in, GetArrayResponses out.
grpc::ServerWriteReactor<grpc::ByteBuffer>* RunGetArray(Backend& backend, grpc::CallbackServerContext* context,
                                                        grpc::ByteBuffer* request);

// info.cc: the version, devices, ops, dtypes, pipelines, limits, usage and flags of the server.
grpc::ServerUnaryReactor* RunServerInfo(Backend& backend, grpc::CallbackServerContext* context,
                                        grpc::ByteBuffer* request, grpc::ByteBuffer* response);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_CALLS_H_
