// The service reduced.v1.Reduction, on gRPC's callback API. service.cc describes the flow of a Reduce; stream.cc,
// session.cc, put.cc and ladder.cc those of the other calls.
#ifndef REDUCED_SERVER_CALLS_SERVICE_H_
#define REDUCED_SERVER_CALLS_SERVICE_H_

#include <memory>

#include "grpcpp/impl/codegen/service_type.h"
#include "server/calls/backend.h"

namespace reduced::server {

// The service for grpc::ServerBuilder::RegisterService. It must outlive the gRPC server, and `backend` must outlive it.
std::unique_ptr<grpc::Service> MakeService(Backend& backend);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_SERVICE_H_
