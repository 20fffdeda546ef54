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

void Reduction::Start(const v1::ReduceManyRequest* request, v1::ReduceManyResponse* response, absl::Time deadline,
                      std::optional<double> receive_us, Done done) {
  receive_us_ = receive_us;
  done_ = std::move(done);
  call_.deadline = deadline;
  many_ = std::make_unique<ManyReduction>(rpc_, call_, *request, *response);
  many_->Start(receive_us, [this](const absl::Status& status) {
    End(status, many_->Record(), status.ok() ? many_->timing() : nullptr);
  });
}

void Reduction::Refuse(const absl::Status& why, Done done) {
  done_ = std::move(done);
  Answer(why);
}

void Reduction::Answer(const absl::Status& status) {
  array_.Release(status.ok());  // before the response: its client sees no user of the array ...
  End(status,
      {.spec = &array_.spec(),
       .source = source_,
       .engine = array_.engine() == nullptr ? EngineKind::kAuto : array_.engine()->kind(),
       .pipeline = array_.ran().pipeline,
       .bytes = array_.bytes(),
       .timing = array_.timing()},
      status.ok() ? response_->mutable_timing() : nullptr);
}

void Reduction::End(const absl::Status& status, CallRecord record, v1::Timing* timing) {
  admission_.Release();  // ... and may send its next request
  record.rpc = rpc_;
  record.tag = tag_;
  record.context = context_;
  record.caller = &admission_.admitted();
  record.receive_us = receive_us_;
  record.total_us = micros();
  record.status = status;
  if (timing != nullptr) timing->set_total_us(record.total_us);
  call_.backend.observer.End(record);
  std::move(done_)(status);
}

}  // namespace reduced::server
