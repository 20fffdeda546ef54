// One Reduce, or ReduceMany, from start to end:
//
//   1. gRPC has read the whole message and calls Reduce with its bytes, which makes a ReduceCall: it owns the request,
//      the response and the Reduction. The clock of total_us starts.
//   2. Admission: identity, deadline, gate, quota; then room in a queue and memory for the decoded message. What is
//      refused has not been parsed. Then it is (receive_us), into the call's own arena.
//   3. The operand is found (a resident array gets one more user), and the ops and options are checked. Of a ReduceMany
//      many.h says what happens here and in step 4.
//   4. Engines::Place chooses the engine, and Engine::Reduce queues the reduction for a lane. The gRPC thread returns.
//   5. A lane reduces the request's own bytes, or the array where it is; small arrays are reduced in step 4, on the
//      gRPC thread. OnCancel (the client went away, or the deadline passed) sets the flag that the lane checks between
//      chunks, and the queue every few milliseconds.
//   6. Reduction::End fills the response, and releases array, quota and slot. The response is encoded, and the messages
//      and their memory are freed; that of the encoded bytes once they are sent. Finish is called exactly once, and
//      last: from then on the call belongs to gRPC.
//      If the client does not read the response, the watchdog resets the call.
//   7. OnDone leaves the gate and deletes the call with the request's bytes.
#include "server/calls/service.h"

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "reduced/v1/reduced.grpc.pb.h"
#include "server/calls/calls.h"
#include "server/calls/ladder.h"
#include "server/calls/merge.h"
#include "server/calls/reduction.h"
#include "server/calls/watchdog.h"
#include "server/wire/encode.h"
#include "server/wire/status.h"

namespace reduced::server {
namespace {

// One call: the messages, the reactor and the reduction. gRPC's callbacks come in the order above, except OnCancel,
// which may come at any time until OnDone.
template <class Request, class Response>
class ReduceCall final : public grpc::ServerUnaryReactor {
 public:
  ReduceCall(Rpc rpc, Backend& backend, grpc::CallbackServerContext* context, grpc::ByteBuffer* response)
      : reduction_(rpc, backend),
        backend_(backend),
        context_(context),
        tag_(backend.observer.Begin(context)),
        encoded_(response),
        arena_(std::in_place, arena_start_, sizeof(arena_start_)) {}

  // The call finishes itself. `bytes`: of the request, which it takes.
  void Start(grpc::ByteBuffer* bytes) {
    const absl::Time deadline = absl::FromChrono(context_->deadline());
    absl::Status status = reduction_.Admit(context_, &tag_, backend_.CallerOf(*context_), deadline, bytes->Length());
    auto* const request = google::protobuf::Arena::CreateMessage<Request>(&*arena_);
    if (status.ok()) status = Decode(bytes, reduction_.payers(), reduction_.message_memory(), request);
    bytes->Clear();
    if (!status.ok()) return reduction_.Refuse(status, [this](const absl::Status& why) { End(why); });
    response_ = google::protobuf::Arena::CreateMessage<Response>(&*arena_);
    reduction_.Start(request, response_, deadline, reduction_.micros(), [this](const absl::Status& end) { End(end); });
  }

  void OnCancel() override { reduction_.Cancel(); }
  void OnDone() override { delete this; }

 private:
  void End(absl::Status status) {
    if (status.ok()) {
      status = Encode(*response_, reduction_.payers(), reduction_.answer_memory(), encoded_);
      if (!status.ok()) reduction_.Cancel();  // the client does not learn of arrays that were kept
    }
    // The client may take its time to read: only the response's bytes are left until then.
    arena_.reset();
    reduction_.ReturnMemory();
    watch_.emplace(backend_.watchdog, context_).Await(Wait::kResponse, reduction_.key());
    Finish(ToGrpc(status, context_));
  }

  Reduction reduction_;  // first: it has the clock of total_us
  Backend& backend_;
  grpc::CallbackServerContext* const context_;
  const CallTag tag_;
  grpc::ByteBuffer* const encoded_;  // the response's bytes, gRPC's
  Response* response_ = nullptr;
  // The messages of a small request, without its elements, fit into the first block, without an allocation.
  alignas(std::max_align_t) char arena_start_[1024];
  std::optional<google::protobuf::Arena> arena_;  // until the response is encoded
  std::optional<Watch> watch_;                    // from the response on
};

// The messages of all methods are handled as bytes: see calls.h.
using UnaryMethods = v1::Reduction::WithRawCallbackMethod_Reduce<
    v1::Reduction::WithRawCallbackMethod_Merge<v1::Reduction::WithRawCallbackMethod_ListArrays<
        v1::Reduction::WithRawCallbackMethod_DeleteArray<v1::Reduction::WithRawCallbackMethod_ReduceMany<
            v1::Reduction::WithRawCallbackMethod_GetServerInfo<v1::Reduction::Service>>>>>>;
using ReductionMethods = v1::Reduction::WithRawCallbackMethod_ReduceStream<
    v1::Reduction::WithRawCallbackMethod_PutArray<v1::Reduction::WithRawCallbackMethod_Session<
        v1::Reduction::WithRawCallbackMethod_GetArray<v1::Reduction::WithRawCallbackMethod_Ladder<UnaryMethods>>>>>;

using Context = grpc::CallbackServerContext;

// The request of a call, which gRPC made for this call alone, to be changed.
grpc::ByteBuffer* Taken(const grpc::ByteBuffer* request) { return const_cast<grpc::ByteBuffer*>(request); }

// Thread-safe.
class ReductionService final : public ReductionMethods {
 public:
  explicit ReductionService(Backend& backend) : backend_(backend), ladders_(backend), merges_(backend) {}

  grpc::ServerUnaryReactor* Reduce(Context* context, const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override {
    return Run<v1::ReduceRequest, v1::ReduceResponse>(Rpc::kReduce, context, request, response);
  }
  grpc::ServerUnaryReactor* ReduceMany(Context* context, const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override {
    return Run<v1::ReduceManyRequest, v1::ReduceManyResponse>(Rpc::kReduceMany, context, request, response);
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
  grpc::ServerUnaryReactor* ListArrays(Context* context, const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override {
    return RunListArrays(backend_, context, Taken(request), response);
  }
  grpc::ServerWriteReactor<grpc::ByteBuffer>* GetArray(Context* context, const grpc::ByteBuffer* request) override {
    return RunGetArray(backend_, context, Taken(request));
  }
  grpc::ServerUnaryReactor* DeleteArray(Context* context, const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override {
    return RunDeleteArray(backend_, context, Taken(request), response);
  }
  grpc::ServerUnaryReactor* Merge(Context* context, const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override {
    return merges_.Run(context, Taken(request), response);
  }
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Ladder(Context* context, const grpc::ByteBuffer* request) override {
    return ladders_.Run(context, Taken(request));
  }
  grpc::ServerUnaryReactor* GetServerInfo(Context* context, const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override {
    return RunServerInfo(backend_, context, Taken(request), response);
  }

 private:
  template <class Request, class Response>
  grpc::ServerUnaryReactor* Run(Rpc rpc, Context* context, const grpc::ByteBuffer* request,
                                grpc::ByteBuffer* response) {
    auto* const call = new ReduceCall<Request, Response>(rpc, backend_, context, response);  // OnDone deletes it
    call->Start(Taken(request));
    return call;
  }

  Backend& backend_;
  Ladders ladders_;
  Merges merges_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeService(Backend& backend) { return std::make_unique<ReductionService>(backend); }

}  // namespace reduced::server
