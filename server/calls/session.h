// Sessions: many reductions over one call. The flow of one is written down in session.cc.
#ifndef REDUCED_SERVER_CALLS_SESSION_H_
#define REDUCED_SERVER_CALLS_SESSION_H_

#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/calls/backend.h"

namespace reduced::server {

// The reactor of one Session: SessionRequests in, SessionResponses out. Raw, so that receive_us is known, and a message
// that can't be parsed isn't taken for the half-close. `backend` must outlive the call.
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* RunSession(Backend& backend,
                                                                        grpc::CallbackServerContext* context);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_SESSION_H_
