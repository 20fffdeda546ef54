// One Reduce, start to end:
//
//   1. gRPC has the whole message and asks the allocator for one to parse it into: a ReduceCall, which holds the
//      request, the response and the Reduction. The clock of total_us starts.
//   2. gRPC parses (receive_us), then calls Reduce, which starts the Reduction: ParseRequest checks everything that can
//      be checked without the elements. Nothing has been taken so far, but that an array that is kept has one more
//      user.
//   3. The call is counted in; a draining server refuses it. A deadline that has passed ends it here.
//   4. Engines::Place picks the engine, Engine::Reduce queues the call for a lane. The gRPC thread goes back to gRPC.
//   5. A lane reduces the request's own bytes, or the array that is kept (a small array: before step 4 is over, on the
//      gRPC thread). OnCancel (the client went away, the deadline passed) sets the flag that the lane looks at between
//      chunks.
//   6. Reduction::End reads the answers off the partial, fills the response and lets go of the array. Finish is called
//      exactly once, and is the last thing done, since then the call belongs to gRPC again.
//   7. OnDone counts the call out; Release deletes it, the request's bytes included.
#include "server/calls/service.h"

#include <cstddef>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "kernels/engine/stopwatch.h"
#include "proto/codec/merge.h"
#include "server/calls/info.h"
#include "server/calls/reduction.h"
#include "server/wire/request.h"
#include "server/wire/response.h"

namespace reduced::server {
namespace {

// A unary call that is answered by its context's own reactor. Copies are of the same call.
class SimpleCall {
 public:
  SimpleCall(Rpc rpc, Backend& backend, grpc::CallbackServerContext* context)
      : rpc_(rpc),
        backend_(&backend),
        context_(context),
        reactor_(context->DefaultReactor()),
        tag_(backend.observer.Begin(context)) {}

  // Once.
  grpc::ServerUnaryReactor* Finish(const absl::Status& status) const {
    backend_->observer.End(
        {.rpc = rpc_, .tag = &tag_, .context = context_, .total_us = since_arrival_.micros(), .status = status});
    reactor_->Finish(ToGrpc(status));
    return reactor_;
  }
  grpc::ServerUnaryReactor* reactor() const { return reactor_; }

 private:
  Rpc rpc_;
  Backend* backend_;
  grpc::CallbackServerContext* context_;
  grpc::ServerUnaryReactor* reactor_;  // the context makes a new one whenever it is asked
  CallTag tag_;
  Stopwatch since_arrival_;
};

}  // namespace

// One call: the messages, the reactor, and the reduction. gRPC calls back in the order of the flow above, but OnCancel,
// which may come at any time until OnDone.
class ReductionService::ReduceCall final : public grpc::MessageHolder<v1::ReduceRequest, v1::ReduceResponse>,
                                           public grpc::ServerUnaryReactor {
 public:
  explicit ReduceCall(Backend& backend)
      : backend_(backend),
        reduction_(std::in_place, Rpc::kReduce, backend),
        arena_(arena_start_, sizeof(arena_start_)) {
    set_request(google::protobuf::Arena::CreateMessage<v1::ReduceRequest>(&arena_));
    set_response(google::protobuf::Arena::CreateMessage<v1::ReduceResponse>(&arena_));
  }

  void Start(grpc::CallbackServerContext* context) {
    tag_ = backend_.observer.Begin(context);
    reduction_->Start(context, &tag_, backend_.CallerOf(*context), request(), response(),
                      absl::FromChrono(context->deadline()), reduction_->micros(),
                      [this, context](const absl::Status& status) {
                        if (const auto after = reduction_->retry_after()) AddRetryHint(*after, context);
                        Finish(ToGrpc(status));
                      });
  }

  void OnCancel() override { reduction_->Cancel(); }
  void OnDone() override { reduction_.reset(); }
  void Release() override { delete this; }

 private:
  Backend& backend_;
  CallTag tag_;
  std::optional<Reduction> reduction_;
  // The messages of a small request, but for its elements, fit into the first block: no allocation.
  alignas(std::max_align_t) char arena_start_[1024];
  google::protobuf::Arena arena_;
};

class ReductionService::CallAllocator final : public grpc::MessageAllocator<v1::ReduceRequest, v1::ReduceResponse> {
 public:
  explicit CallAllocator(Backend& backend) : backend_(backend) {}
  grpc::MessageHolder<v1::ReduceRequest, v1::ReduceResponse>* AllocateMessages() override {
    return new ReduceCall(backend_);  // Release deletes it
  }

 private:
  Backend& backend_;
};

ReductionService::ReductionService(Backend& backend)
    : backend_(backend), allocator_(std::make_unique<CallAllocator>(backend_)) {
  SetMessageAllocatorFor_Reduce(allocator_.get());
}

grpc::ServerUnaryReactor* ReductionService::Reduce(grpc::CallbackServerContext* context, const v1::ReduceRequest*,
                                                   v1::ReduceResponse*) {
  auto* const call = static_cast<ReduceCall*>(context->GetRpcAllocatorState());  // both messages are its own
  call->Start(context);
  return call;
}

grpc::ServerReadReactor<grpc::ByteBuffer>* ReductionService::ReduceStream(grpc::CallbackServerContext* context,
                                                                          grpc::ByteBuffer* response) {
  return RunStream(backend_, context, response);
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ReductionService::Session(
    grpc::CallbackServerContext* context) {
  return RunSession(backend_, context);
}

grpc::ServerReadReactor<grpc::ByteBuffer>* ReductionService::PutArray(grpc::CallbackServerContext* context,
                                                                      grpc::ByteBuffer* response) {
  return RunPut(backend_, context, response);
}

grpc::ServerUnaryReactor* ReductionService::ListArrays(grpc::CallbackServerContext* context,
                                                       const v1::ListArraysRequest* request,
                                                       v1::ListArraysResponse* response) {
  const SimpleCall call(Rpc::kListArrays, backend_, context);
  const absl::StatusOr<std::string> caller = backend_.CallerOf(*context);
  const absl::StatusOr<std::string> owner = caller.ok() ? OwnerFor(request->owner(), *caller) : caller;
  if (owner.ok()) {
    for (v1::ArrayInfo& array : backend_.arrays.List(*owner, *caller)) *response->add_arrays() = std::move(array);
  }
  return call.Finish(owner.status());
}

// Waits for the array's users, if there are any, whether or not the client does: until then the reactor stays.
grpc::ServerUnaryReactor* ReductionService::DeleteArray(grpc::CallbackServerContext* context,
                                                        const v1::DeleteArrayRequest* request,
                                                        v1::DeleteArrayResponse*) {
  const SimpleCall call(Rpc::kDeleteArray, backend_, context);
  const absl::StatusOr<std::string> caller = backend_.CallerOf(*context);
  const absl::StatusOr<std::string> owner = caller.ok() ? OwnerFor(request->owner(), *caller) : caller;
  if (!owner.ok()) return call.Finish(owner.status());
  backend_.arrays.Delete(
      request->id(), *owner, [call](const absl::Status& status) { call.Finish(status); }, *caller);
  return call.reactor();
}

// On the gRPC thread: a state takes about a microsecond.
grpc::ServerUnaryReactor* ReductionService::Merge(grpc::CallbackServerContext* context, const v1::MergeRequest* request,
                                                  v1::MergeResponse* response) {
  const SimpleCall call(Rpc::kMerge, backend_, context);
  const absl::StatusOr<std::string> caller = backend_.CallerOf(*context);
  absl::StatusOr<Quotas::Lease> quota;
  if (caller.ok()) quota = backend_.TakeRequest(*caller);
  if (!quota.ok() && caller.ok()) AddRetryHint(kIdentityRetryAfter, context);
  absl::Status status = caller.status();
  status.Update(quota.status());
  if (status.ok()) status = backend_.gate.Enter();
  if (status.ok()) {
    const StateLimits limits{backend_.limits.max_elements, backend_.limits.max_ops};
    status = MergeStates(*request, limits, {}, response);
    backend_.gate.Leave();
  }
  quota = Quotas::Lease();  // who has the answer may ask the next thing
  return call.Finish(status);
}

grpc::ServerWriteReactor<v1::LadderReply>* ReductionService::Ladder(grpc::CallbackServerContext* context,
                                                                    const v1::LadderRequest* request) {
  return ladders_.Run(context, *request);
}

grpc::ServerUnaryReactor* ReductionService::GetServerInfo(grpc::CallbackServerContext* context,
                                                          const v1::GetServerInfoRequest*,
                                                          v1::GetServerInfoResponse* response) {
  const SimpleCall call(Rpc::kGetServerInfo, backend_, context);
  FillServerInfo(backend_, response);
  return call.Finish(absl::OkStatus());
}

}  // namespace reduced::server
