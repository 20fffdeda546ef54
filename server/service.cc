// One Reduce, start to end:
//
//   1. gRPC has the whole message and asks the allocator for one to parse it into: a ReduceCall, which holds the
//      request, the response and everything else of this call. The clock of total_us starts.
//   2. gRPC parses (receive_us), then calls Reduce: ParseRequest checks everything that can be checked without the
//      elements. Nothing has been taken so far.
//   3. The call is counted in; a draining server refuses it. A deadline that has passed ends it here.
//   4. Engines::Place picks the engine, Engine::Reduce queues the call for a lane. The gRPC thread goes back to gRPC.
//   5. A lane reduces the request's own bytes and calls Done (a small array: before step 4 is over, on the gRPC
//      thread). OnCancel (the client went away, the deadline passed) sets the flag that the lane looks at between
//      chunks.
//   6. Done reads the answers off the partial, fills the response and calls Finish: exactly once, and the last thing it
//      does, since then the call belongs to gRPC again.
//   7. OnDone counts the call out; Release deletes it, the request's bytes included.
#include "server/service.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "kernels/stopwatch.h"
#include "server/answer.h"
#include "server/info.h"
#include "server/request.h"

namespace reduced {

// One call: the messages, the reactor, and what is known on the way. gRPC calls back in the order of the flow above,
// but OnCancel, which may come at any time until OnDone.
class ReductionService::ReduceCall final : public grpc::MessageHolder<v1::ReduceRequest, v1::ReduceResponse>,
                                           public grpc::ServerUnaryReactor {
 public:
  explicit ReduceCall(ReductionService* service) : service_(*service), arena_(arena_start_, sizeof(arena_start_)) {
    set_request(google::protobuf::Arena::CreateMessage<v1::ReduceRequest>(&arena_));
    set_response(google::protobuf::Arena::CreateMessage<v1::ReduceResponse>(&arena_));
  }

  void Start(grpc::CallbackServerContext* context) {
    receive_us_ = since_arrival_.micros();
    context_ = context;
    const absl::Status status = Begin();
    if (!status.ok()) Answer(status);
  }

  void OnCancel() override { cancelled_->store(true, std::memory_order_relaxed); }
  void OnDone() override {
    if (entered_) service_.gate_.Leave();
  }
  void Release() override { delete this; }

 private:
  // Steps 2 to 4. OK: Done answers, and may have already.
  absl::Status Begin() {
    absl::StatusOr<ParsedRequest> parsed = ParseRequest(*request(), service_.limits_);
    if (!parsed.ok()) return parsed.status();
    spec_ = std::move(parsed->spec);
    bytes_ = parsed->bytes;

    const absl::Status entered = service_.gate_.Enter();
    if (!entered.ok()) return entered;
    entered_ = true;
    const absl::Time deadline = absl::FromChrono(context_->deadline());
    if (deadline <= absl::Now()) return absl::DeadlineExceededError("the deadline passed before the reduction began");

    const ArrayRef array{parsed->data.data(), MemorySpace::kHost};
    absl::StatusOr<Placement> place = service_.engines_.Place(spec_, array);
    if (!place.ok()) return place.status();
    engine_ = place->engine;
    response()->mutable_execution()->set_reason(std::move(place->reason));
    engine_->Reduce(Job{spec_, array, deadline, cancelled_},
                    [this](absl::StatusOr<EngineResult> result) { Done(std::move(result)); });
    return absl::OkStatus();
  }

  // Steps 5 and 6.
  void Done(absl::StatusOr<EngineResult> result) {
    if (!result.ok()) {
      if (absl::IsResourceExhausted(result.status())) AddRetryHint(*engine_, bytes_, context_);
      return Answer(result.status());
    }
    Answer(FillAnswer(spec_, *result, receive_us_, bytes_, response()));
  }

  void Answer(const absl::Status& status) {
    const double total_us = since_arrival_.micros();
    if (status.ok()) response()->mutable_timing()->set_total_us(total_us);
    LogReduce("reduce", *context_, spec_, engine_, status, total_us);
    Finish(ToGrpc(status));
  }

  const Stopwatch since_arrival_;
  ReductionService& service_;
  // The messages of a small request, but for its elements, fit into the first block: no allocation.
  alignas(std::max_align_t) char arena_start_[1024];
  google::protobuf::Arena arena_;
  const CancelFlag cancelled_ = std::make_shared<std::atomic<bool>>(false);
  grpc::CallbackServerContext* context_ = nullptr;
  double receive_us_ = 0;
  ReduceSpec spec_;
  std::int64_t bytes_ = 0;
  bool entered_ = false;
  Engine* engine_ = nullptr;  // picked
};

class ReductionService::CallAllocator final : public grpc::MessageAllocator<v1::ReduceRequest, v1::ReduceResponse> {
 public:
  explicit CallAllocator(ReductionService* service) : service_(service) {}
  grpc::MessageHolder<v1::ReduceRequest, v1::ReduceResponse>* AllocateMessages() override {
    return new ReduceCall(service_);  // Release deletes it
  }

 private:
  ReductionService* const service_;
};

ReductionService::ReductionService(const Engines& engines, const RequestLimits& limits)
    : engines_(engines), limits_(limits), allocator_(std::make_unique<CallAllocator>(this)) {
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
  return streams_.Run(context, response);
}

grpc::ServerWriteReactor<v1::LadderReply>* ReductionService::Ladder(grpc::CallbackServerContext* context,
                                                                    const v1::LadderRequest* request) {
  return ladders_.Run(context, *request);
}

grpc::ServerUnaryReactor* ReductionService::GetServerInfo(grpc::CallbackServerContext* context,
                                                          const v1::GetServerInfoRequest*,
                                                          v1::GetServerInfoResponse* response) {
  FillServerInfo(engines_, limits_, absl::Now() - started_, response);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace reduced
