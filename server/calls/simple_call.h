// What unary calls without a flow of their own have in common: GetServerInfo, Merge, ListArrays and DeleteArray.
#ifndef REDUCED_SERVER_CALLS_SIMPLE_CALL_H_
#define REDUCED_SERVER_CALLS_SIMPLE_CALL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "kernels/engine/memory_budget.h"
#include "kernels/engine/stopwatch.h"
#include "kernels/engine/why_stop.h"
#include "server/calls/admission.h"
#include "server/calls/backend.h"
#include "server/calls/watchdog.h"
#include "server/observe/call_record.h"
#include "server/wire/encode.h"
#include "server/wire/status.h"

namespace reduced::server {

// A unary call, which is its own reactor. Made with new; OnDone deletes it, at some time after End.
class SimpleCall final : public grpc::ServerUnaryReactor {
 public:
  SimpleCall(Rpc rpc, Backend& backend, grpc::CallbackServerContext* context)
      : rpc_(rpc),
        backend_(backend),
        context_(context),
        tag_(backend.observer.Begin(context)),
        admission_(rpc, backend),
        watch_(backend.watchdog, context) {}

  // Admission for the context's caller and deadline; then the size of the message.
  absl::Status Admit(const grpc::ByteBuffer& request) {
    const absl::Status status = admission_.Admit(backend_.CallerOf(*context_), deadline_);
    return status.ok() ? CheckMessageSize(request.Length(), backend_.limits.max_message_bytes) : status;
  }
  // After Admit: holds so much memory in all until End. RESOURCE_EXHAUSTED, with a retry hint: there is none.
  absl::Status Hold(std::int64_t bytes) {
    const absl::Status status = memory_.Resize(admission_.payers().Of(bytes), bytes, "the states of a request");
    return status.ok() ? status : WithRetryHint(status, kMemoryRetryDelay);
  }
  // After Admit: decodes the request, whose memory the call holds until End. As server::Decode.
  template <class Message>
  absl::Status Decode(grpc::ByteBuffer* request, Message* message) {
    return server::Decode(request, admission_.payers(), &memory_, message);
  }
  // After Admit: encodes the response, which is counted until it is sent. As server::Encode.
  template <class Message>
  absl::Status Encode(const Message& message, grpc::ByteBuffer* response) {
    MemoryLease memory;
    return server::Encode(message, admission_.payers(), &memory, response);
  }
  const Admission& admission() const { return admission_; }
  const std::string& caller() const { return admission_.caller(); }
  std::uint64_t key() const { return admission_.key(); }
  absl::Time deadline() const { return deadline_; }
  const CancelFlag& cancelled() const { return cancelled_; }

  double micros() const { return since_arrival_.micros(); }

  // Ends the call and returns it; is called once. `record`: fields for the log and the metrics that the call does not
  // know.
  SimpleCall* End(const absl::Status& status, CallRecord record = {}) {
    memory_ = {};
    admission_.Release();
    record.rpc = rpc_;
    record.tag = &tag_;
    record.context = context_;
    record.caller = &admission_.admitted();
    record.total_us = micros();
    record.status = status;
    backend_.observer.End(record);
    watch_.Await(Wait::kResponse, key());
    steps_.fetch_add(1, std::memory_order_release);
    Finish(ToGrpc(status, context_));
    return this;
  }

  void OnCancel() override {
    cancelled_->store(true, std::memory_order_relaxed);
    steps_.fetch_add(1, std::memory_order_release);
  }
  void OnDone() override {
    static_cast<void>(steps_.load(std::memory_order_acquire));
    delete this;
  }

 private:
  ~SimpleCall() override = default;

  const Rpc rpc_;
  Backend& backend_;
  grpc::CallbackServerContext* const context_;
  const CallTag tag_;
  const absl::Time deadline_ = absl::FromChrono(context_->deadline());
  const CancelFlag cancelled_ = std::make_shared<std::atomic<bool>>(false);
  const Stopwatch since_arrival_;
  Admission admission_;
  MemoryLease memory_;  // for the request
  Watch watch_;
  // gRPC calls OnDone after both End and OnCancel. ThreadSanitizer does not see how, but that OnDone reads this.
  std::atomic<int> steps_ = 0;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_SIMPLE_CALL_H_
