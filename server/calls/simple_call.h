// The common part of simple unary calls.
#ifndef REDUCED_SERVER_CALLS_SIMPLE_CALL_H_
#define REDUCED_SERVER_CALLS_SIMPLE_CALL_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "kernels/engine/stopwatch.h"
#include "server/calls/admission.h"
#include "server/calls/backend.h"
#include "server/wire/status.h"

namespace reduced::server {

// A unary call that is answered through the context's own reactor.
class SimpleCall {
 public:
  SimpleCall(Rpc rpc, Backend& backend, grpc::CallbackServerContext* context)
      : rpc_(rpc),
        backend_(backend),
        context_(context),
        reactor_(context->DefaultReactor()),
        tag_(backend.observer.Begin(context)),
        admission_(rpc, backend) {}

  // Admission for the context's caller and deadline.
  absl::Status Admit() {
    return admission_.Admit(backend_.CallerOf(*context_), absl::FromChrono(context_->deadline()));
  }
  const std::string& caller() const { return admission_.caller(); }
  grpc::ServerUnaryReactor* reactor() const { return reactor_; }

  // Ends the call, once.
  grpc::ServerUnaryReactor* Finish(const absl::Status& status) {
    admission_.Release();
    backend_.observer.End(
        {.rpc = rpc_, .tag = &tag_, .context = context_, .total_us = since_arrival_.micros(), .status = status});
    reactor_->Finish(ToGrpc(status, context_));
    return reactor_;
  }

 private:
  const Rpc rpc_;
  Backend& backend_;
  grpc::CallbackServerContext* const context_;
  grpc::ServerUnaryReactor* const reactor_;  // the context would make a new one each time
  const CallTag tag_;
  const Stopwatch since_arrival_;
  Admission admission_;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_SIMPLE_CALL_H_
