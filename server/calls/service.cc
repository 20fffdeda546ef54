// One Reduce from start to end:
//
//   1. gRPC has read the whole message and asks the allocator for an object to parse it into: a ReduceCall, which owns
//      the request, the response and the Reduction. The clock of total_us starts.
//   2. gRPC parses the message (receive_us), then calls Reduce, which starts the Reduction. Admission: identity,
//      deadline, gate, quota.
//   3. The operand is found (a resident array gets one more user), and the ops and options are checked.
//   4. Engines::Place chooses the engine, and Engine::Reduce queues the reduction for a lane. The gRPC thread returns.
//   5. A lane reduces the request's own bytes, or the array where it is; small arrays are reduced in step 4, on the
//      gRPC thread. OnCancel (the client went away, or the deadline passed) sets the flag that the lane checks between
//      chunks.
//   6. Reduction::End fills the response, and releases array, quota and slot. Finish is called exactly once, and last:
//      from then on the call belongs to gRPC.
//   7. OnDone leaves the gate; Release deletes the call with the request's bytes.
#include "server/calls/service.h"

#include <cstddef>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "reduced/v1/reduced.grpc.pb.h"
#include "server/calls/calls.h"
#include "server/calls/ladder.h"
#include "server/calls/reduction.h"
#include "server/wire/status.h"

namespace reduced::server {
namespace {

// One Reduce: the messages, the reactor and the reduction. gRPC's callbacks come in the order above, except OnCancel,
// which may come at any time until OnDone.
class ReduceCall final : public grpc::MessageHolder<v1::ReduceRequest, v1::ReduceResponse>,
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
                      [this, context](const absl::Status& status) { Finish(ToGrpc(status, context)); });
  }

  void OnCancel() override { reduction_->Cancel(); }
  void OnDone() override { reduction_.reset(); }
  void Release() override { delete this; }

 private:
  Backend& backend_;
  CallTag tag_;
  std::optional<Reduction> reduction_;
  // The messages of a small request, without its elements, fit into the first block, without an allocation.
  alignas(std::max_align_t) char arena_start_[1024];
  google::protobuf::Arena arena_;
};

class CallAllocator final : public grpc::MessageAllocator<v1::ReduceRequest, v1::ReduceResponse> {
 public:
  explicit CallAllocator(Backend& backend) : backend_(backend) {}
  grpc::MessageHolder<v1::ReduceRequest, v1::ReduceResponse>* AllocateMessages() override {
    return new ReduceCall(backend_);  // Release deletes it
  }

 private:
  Backend& backend_;
};

// The messages of these are handled as bytes: see calls.h.
using RawMethods = v1::Reduction::WithRawCallbackMethod_ReduceStream<v1::Reduction::WithRawCallbackMethod_PutArray<
    v1::Reduction::WithRawCallbackMethod_Session<v1::Reduction::WithRawCallbackMethod_Merge<v1::Reduction::Service>>>>;
using ArrayMethods =
    v1::Reduction::WithCallbackMethod_ListArrays<v1::Reduction::WithCallbackMethod_DeleteArray<RawMethods>>;
using ReductionMethods = v1::Reduction::WithCallbackMethod_Reduce<
    v1::Reduction::WithCallbackMethod_Ladder<v1::Reduction::WithCallbackMethod_GetServerInfo<ArrayMethods>>>;

using Context = grpc::CallbackServerContext;

// Thread-safe.
class ReductionService final : public ReductionMethods {
 public:
  explicit ReductionService(Backend& backend) : backend_(backend), allocator_(backend), ladders_(backend) {
    SetMessageAllocatorFor_Reduce(&allocator_);
  }

  grpc::ServerUnaryReactor* Reduce(Context* context, const v1::ReduceRequest*, v1::ReduceResponse*) override {
    auto* const call = static_cast<ReduceCall*>(context->GetRpcAllocatorState());  // which owns both messages
    call->Start(context);
    return call;
  }
  grpc::ServerReadReactor<grpc::ByteBuffer>* ReduceStream(Context* context, grpc::ByteBuffer* response) override {
    return RunStream(backend_, context, response);
  }
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Session(Context* context) override {
    return RunSession(backend_, context);
  }
  grpc::ServerReadReactor<grpc::ByteBuffer>* PutArray(Context* context, grpc::ByteBuffer* response) override {
    return RunPut(backend_, context, response);
  }
  grpc::ServerUnaryReactor* ListArrays(Context* context, const v1::ListArraysRequest* request,
                                       v1::ListArraysResponse* response) override {
    return RunListArrays(backend_, context, request, response);
  }
  grpc::ServerUnaryReactor* DeleteArray(Context* context, const v1::DeleteArrayRequest* request,
                                        v1::DeleteArrayResponse*) override {
    return RunDeleteArray(backend_, context, request);
  }
  grpc::ServerUnaryReactor* Merge(Context* context, const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override {
    return RunMerge(backend_, context, request, response);
  }
  grpc::ServerWriteReactor<v1::LadderReply>* Ladder(Context* context, const v1::LadderRequest* request) override {
    return ladders_.Run(context, *request);
  }
  grpc::ServerUnaryReactor* GetServerInfo(Context* context, const v1::GetServerInfoRequest*,
                                          v1::GetServerInfoResponse* response) override {
    return RunServerInfo(backend_, context, response);
  }

 private:
  Backend& backend_;
  CallAllocator allocator_;
  Ladders ladders_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeService(Backend& backend) { return std::make_unique<ReductionService>(backend); }

}  // namespace reduced::server
