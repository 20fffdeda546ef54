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

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/finalize.h"
#include "kernels/stopwatch.h"
#include "server/info.h"
#include "server/request.h"
#include "spdlog/spdlog.h"

namespace reduced {
namespace {

// When a refused client should try again: when about half of what waits, taken to be arrays like its own, is done.
std::string RetryAfterMs(const Engine& engine, double bytes) {
  const Calibration calibration = engine.calibration();
  const DeviceInfo device = engine.info();
  const double one_us = calibration.fixed_us + bytes / (std::max(calibration.host_gb_per_s, 0.1) * 1e3);
  const double ms = one_us * device.queue_limit / std::max(device.lanes, 1) / 2 / 1e3;
  return absl::StrCat(static_cast<int>(std::clamp(ms, 1.0, 1000.0)));
}

void FillTiming(const Timing& from, double receive_us, std::int64_t bytes, v1::Timing* to) {
  to->set_receive_us(receive_us);
  if (from.queue_us) to->set_queue_us(*from.queue_us);
  if (from.host_copy_us) to->set_host_copy_us(*from.host_copy_us);
  if (from.host_to_device_us) to->set_host_to_device_us(*from.host_to_device_us);
  if (from.scratch_copy_us) to->set_scratch_copy_us(*from.scratch_copy_us);
  if (from.kernel_us) to->set_kernel_us(*from.kernel_us);
  if (from.device_to_host_us) to->set_device_to_host_us(*from.device_to_host_us);
  to->set_bytes(bytes);
  if (bytes > 0 && from.kernel_us.value_or(0) > 0) {
    to->set_kernel_gb_per_s(static_cast<double>(bytes) / (*from.kernel_us * 1e3));
  }
}

}  // namespace

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
    bytes_ = static_cast<std::int64_t>(parsed->data.size());

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
      if (absl::IsResourceExhausted(result.status())) {
        context_->AddTrailingMetadata("grpc-retry-pushback-ms", RetryAfterMs(*engine_, static_cast<double>(bytes_)));
      }
      return Answer(result.status());
    }
    const absl::StatusOr<std::vector<Value>> values = Finalize(spec_, result->partial);
    if (!values.ok()) return Answer(values.status());
    for (std::size_t i = 0; i < values->size(); ++i) {
      v1::Result* const out = response()->add_results();
      out->set_op(ToProto(spec_.ops[i]));
      ToProto((*values)[i], out->mutable_value());
    }
    response()->set_count(spec_.count);
    v1::Execution* const execution = response()->mutable_execution();
    execution->set_engine(ToProto(result->ran.engine));
    execution->set_device(std::move(result->ran.device));
    execution->set_pipeline(std::move(result->ran.pipeline));
    execution->set_precision(v1::PRECISION_F64);
    FillTiming(result->timing, receive_us_, bytes_, response()->mutable_timing());
    Answer(absl::OkStatus());
  }

  void Answer(const absl::Status& status) {
    const double total_us = since_arrival_.micros();
    if (status.ok()) response()->mutable_timing()->set_total_us(total_us);
    if (spdlog::should_log(spdlog::level::debug)) Log(status, total_us);
    Finish(ToGrpc(status));
  }

  void Log(const absl::Status& status, double total_us) const {
    const std::string code = absl::StatusCodeToString(status.code());
    const std::string message(status.message());
    const std::string peer = absl::CHexEscape(context_->peer());
    if (spec_.ops.empty()) {  // never got through ParseRequest
      spdlog::debug("reduce peer={} status={} total_us={:.1f}: {}", peer, code, total_us, message);
      return;
    }
    const auto name = [](std::string* out, Op op) { out->append(RowOf(op).name); };
    spdlog::debug("reduce peer={} dtype={} count={} ops={} status={} engine={} total_us={:.1f}{}{}", peer,
                  RowOf(spec_.dtype).name, spec_.count, absl::StrJoin(spec_.ops, ",", name), code,
                  engine_ == nullptr ? "none" : NameOf(engine_->kind()), total_us, status.ok() ? "" : ": ", message);
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
