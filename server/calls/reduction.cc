#include "server/calls/reduction.h"

#include <utility>

#include "server/wire/request.h"
#include "server/wire/response.h"
#include "server/wire/status.h"

namespace reduced::server {

void Reduction::Start(const grpc::CallbackServerContext* context, const CallTag* tag,
                      const absl::StatusOr<std::string>& caller, const v1::ReduceRequest* request,
                      v1::ReduceResponse* response, absl::Time deadline, std::optional<double> receive_us, Done done) {
  context_ = context;
  tag_ = tag;
  response_ = response;
  receive_us_ = receive_us;
  done_ = std::move(done);
  const absl::Status status = Begin(caller, *request, deadline);
  if (!status.ok()) Answer(status);
}

// If it returns OK, End answers, and may have done so already.
absl::Status Reduction::Begin(const absl::StatusOr<std::string>& caller, const v1::ReduceRequest& request,
                              absl::Time deadline) {
  source_ = SourceOf(rpc_, request);
  const absl::Status admitted = admission_.Admit(caller, deadline);
  if (!admitted.ok()) return admitted;
  absl::StatusOr<Operand> operand = ResolveOperand(request, backend_, admission_.caller());
  if (!operand.ok()) return operand.status();
  operand_ = *std::move(operand);
  absl::StatusOr<ReduceSpec> spec = ParseQuestion(request, operand_.shape, backend_.limits);
  if (!spec.ok()) return spec.status();
  spec_ = *std::move(spec);
  return_state_ = request.return_state();

  absl::StatusOr<Placement> place = backend_.engines.Place(spec_, operand_.elements.array);
  if (!place.ok()) return place.status();
  engine_ = place->engine;
  response_->mutable_execution()->set_reason(std::move(place->reason));
  engine_->Reduce(Job{spec_, operand_.elements.array, deadline, cancelled_},
                  [this](absl::StatusOr<EngineResult> result) { End(std::move(result)); });
  return absl::OkStatus();
}

void Reduction::End(absl::StatusOr<EngineResult> result) {
  if (!result.ok()) {
    const bool full = absl::IsResourceExhausted(result.status());
    return Answer(full ? WithRetryHint(result.status(), QueueRetryDelay(*engine_, operand_.shape.bytes))
                       : result.status());
  }
  const absl::Status status = FillAnswer(spec_, *result, receive_us_, operand_.shape.bytes, return_state_, response_);
  ran_ = std::move(result->ran);
  timing_ = result->timing;
  Answer(status);
}

void Reduction::Answer(const absl::Status& status) {
  operand_.elements = {};  // before the response: its client sees no user of the array ...
  admission_.Release();    // ... and may send its next request
  const double total_us = micros();
  if (status.ok()) response_->mutable_timing()->set_total_us(total_us);
  backend_.observer.End({.rpc = rpc_,
                         .tag = tag_,
                         .context = context_,
                         .spec = &spec_,
                         .source = source_,
                         .engine = engine_ == nullptr ? EngineKind::kAuto : engine_->kind(),
                         .pipeline = ran_.pipeline,
                         .bytes = operand_.shape.bytes,
                         .receive_us = receive_us_,
                         .timing = timing_,
                         .total_us = total_us,
                         .status = status});
  std::move(done_)(status);
}

}  // namespace reduced::server
