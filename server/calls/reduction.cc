#include "server/calls/reduction.h"

#include <utility>

#include "server/wire/request.h"
#include "server/wire/response.h"

namespace reduced::server {
namespace {

Source SourceOf(const v1::ReduceRequest& request) {
  switch (request.source_case()) {
    case v1::ReduceRequest::kInlineData:
      return Source::kInline;
    case v1::ReduceRequest::kArrayId:
      return Source::kArray;
    case v1::ReduceRequest::kRegion:
      return Source::kRegion;
    case v1::ReduceRequest::SOURCE_NOT_SET:
      break;
  }
  return Source::kNone;
}

}  // namespace

void Reduction::Start(const grpc::CallbackServerContext* context, const CallTag* tag,
                      const absl::StatusOr<std::string>& caller, const v1::ReduceRequest* request,
                      v1::ReduceResponse* response, absl::Time deadline, std::optional<double> receive_us, Done done) {
  context_ = context;
  tag_ = tag;
  response_ = response;
  receive_us_ = receive_us;
  done_ = std::move(done);
  const absl::Status status = caller.ok() ? Begin(*caller, *request, deadline) : caller.status();
  if (!status.ok()) Answer(status);
}

// OK: End answers, and may have already.
absl::Status Reduction::Begin(const std::string& caller, const v1::ReduceRequest& request, absl::Time deadline) {
  source_kind_ = SourceOf(request);
  absl::StatusOr<ParsedRequest> parsed = ParseRequest(request, backend_, caller);
  if (!parsed.ok()) return parsed.status();
  spec_ = std::move(parsed->spec);
  bytes_ = parsed->bytes;
  return_state_ = request.return_state();
  source_ = std::move(parsed->source);

  const absl::Status entered = backend_.gate.Enter();
  if (!entered.ok()) return entered;
  entered_ = true;
  absl::StatusOr<Quotas::Lease> quota = backend_.TakeRequest(caller);
  if (!quota.ok()) {
    retry_after_ = kIdentityRetryAfter;
    return quota.status();
  }
  quota_ = *std::move(quota);
  if (deadline <= absl::Now()) return absl::DeadlineExceededError("the deadline passed before the reduction began");

  absl::StatusOr<Placement> place = backend_.engines.Place(spec_, source_.array);
  if (!place.ok()) return place.status();
  engine_ = place->engine;
  response_->mutable_execution()->set_reason(std::move(place->reason));
  engine_->Reduce(Job{spec_, source_.array, deadline, cancelled_},
                  [this](absl::StatusOr<EngineResult> result) { End(std::move(result)); });
  return absl::OkStatus();
}

void Reduction::End(absl::StatusOr<EngineResult> result) {
  if (!result.ok()) {
    if (absl::IsResourceExhausted(result.status())) retry_after_ = RetryAfter(*engine_, bytes_);
    return Answer(result.status());
  }
  const absl::Status status = FillAnswer(spec_, *result, receive_us_, bytes_, return_state_, response_);
  ran_ = std::move(result->ran);
  timing_ = result->timing;
  Answer(status);
}

void Reduction::Answer(const absl::Status& status) {
  source_ = {};     // who has the answer sees no user of the array
  quota_.Return();  // and may ask the next thing
  const double total_us = micros();
  if (status.ok()) response_->mutable_timing()->set_total_us(total_us);
  backend_.observer.End({.rpc = rpc_,
                         .tag = tag_,
                         .context = context_,
                         .spec = &spec_,
                         .source = source_kind_,
                         .engine = engine_ == nullptr ? EngineKind::kAuto : engine_->kind(),
                         .pipeline = ran_.pipeline,
                         .bytes = bytes_,
                         .receive_us = receive_us_,
                         .timing = timing_,
                         .total_us = total_us,
                         .status = status});
  std::move(done_)(status);
}

}  // namespace reduced::server
