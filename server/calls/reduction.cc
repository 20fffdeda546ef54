#include "server/calls/reduction.h"

#include <utility>

#include "server/wire/encode.h"

namespace reduced::server {

Reduction::~Reduction() {
  if (call_.cancelled->load(std::memory_order_relaxed)) array_.Forget();
}

absl::Status Reduction::Admit(const grpc::CallbackServerContext* context, const CallTag* tag,
                              const absl::StatusOr<Caller>& caller, absl::Time deadline, std::size_t bytes) {
  context_ = context;
  tag_ = tag;
  absl::Status status = admission_.Admit(caller, deadline);
  if (!status.ok()) return status;
  status = CheckMessageSize(bytes, call_.backend.limits.max_message_bytes);
  return status.ok() ? CheckQueues(call_.backend.engines, admission_.key(), deadline, bytes) : status;
}

void Reduction::Start(const v1::ReduceRequest* request, v1::ReduceResponse* response, absl::Time deadline,
                      std::optional<double> receive_us, Done done, std::optional<OutsideElements> outside) {
  response_ = response;
  receive_us_ = receive_us;
  done_ = std::move(done);
  call_.deadline = deadline;
  source_ = SourceOf(rpc_, *request, outside.has_value());
  Backend& backend = call_.backend;
  absl::StatusOr<Operand> operand = outside.has_value() ? ResolveOperand(*request, *std::move(outside), backend.limits)
                                                        : ResolveOperand(*request, backend, admission_.caller());
  absl::Status status = operand.status();
  if (status.ok()) status = array_.Prepare(*request, *std::move(operand), response);
  if (!status.ok()) return Answer(status);
  array_.Reduce(/*admitted=*/false,
                [this](const absl::StatusOr<reduced::Answer>& answer) { Answer(array_.Finish(answer, receive_us_)); });
}

void Reduction::Refuse(const absl::Status& why, Done done) {
  done_ = std::move(done);
  Answer(why);
}

void Reduction::Answer(const absl::Status& status) {
  array_.Release(status.ok());  // before the response: its client sees no user of the array ...
  admission_.Release();         // ... and may send its next request
  const double total_us = micros();
  if (status.ok()) response_->mutable_timing()->set_total_us(total_us);
  call_.backend.observer.End({.rpc = rpc_,
                              .tag = tag_,
                              .context = context_,
                              .caller = &admission_.admitted(),
                              .spec = &array_.spec(),
                              .source = source_,
                              .engine = array_.engine() == nullptr ? EngineKind::kAuto : array_.engine()->kind(),
                              .pipeline = array_.ran().pipeline,
                              .bytes = array_.bytes(),
                              .receive_us = receive_us_,
                              .timing = array_.timing(),
                              .total_us = total_us,
                              .status = status});
  std::move(done_)(status);
}

}  // namespace reduced::server
