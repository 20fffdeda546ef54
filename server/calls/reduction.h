// One reduction of a ReduceRequest, or of the operands of a ReduceManyRequest, that has arrived completely, in whatever
// call.
#ifndef REDUCED_SERVER_CALLS_REDUCTION_H_
#define REDUCED_SERVER_CALLS_REDUCTION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/server_context.h"
#include "kernels/engine/memory_budget.h"
#include "kernels/engine/stopwatch.h"
#include "reduced/v1/reduced.pb.h"
#include "server/calls/admission.h"
#include "server/calls/array_reduction.h"
#include "server/calls/backend.h"
#include "server/calls/many.h"
#include "server/calls/operand.h"
#include "server/observe/call_record.h"

namespace reduced::server {

// Construct it when the request arrives, which starts the clock of total_us; destroy it in `done` or later.
class Reduction {
 public:
  using Done = absl::AnyInvocable<void(const absl::Status&) &&>;

  // `rpc`: the kind of call. `backend` must outlive the reduction.
  Reduction(Rpc rpc, Backend& backend) : rpc_(rpc), admission_(rpc, backend), call_{backend, admission_} {}
  // Arrays that were kept for a client that has gone away before it was answered are deleted.
  ~Reduction();
  Reduction(const Reduction&) = delete;
  Reduction& operator=(const Reduction&) = delete;

  // First, once: admits the request, whose message has `bytes`, before it is looked at. An error goes to Refuse. The
  // pointers must stay valid until `done`. `caller`: as Backend::CallerOf.
  absl::Status Admit(const grpc::CallbackServerContext* context, const CallTag* tag,
                     const absl::StatusOr<Caller>& caller, absl::Time deadline, std::size_t bytes);

  // Then one of these, which calls `done` exactly once. The status may have a retry hint: see RetryHint.
  //
  // Reduces, and fills `response` if that succeeds; `done` is called from a lane, or before Start returns. The pointers
  // must stay valid until then. `receive_us`: the time that the request took to arrive.
  // `outside`: the elements of a request without a source.
  void Start(const v1::ReduceRequest* request, v1::ReduceResponse* response, absl::Time deadline,
             std::optional<double> receive_us, Done done, std::optional<OutsideElements> outside = std::nullopt);
  void Start(const v1::ReduceManyRequest* request, v1::ReduceManyResponse* response, absl::Time deadline,
             std::optional<double> receive_us, Done done);
  // Answers what was not admitted, or can't be understood.
  void Refuse(const absl::Status& why, Done done);

  // Ends the reduction early with CANCELLED, unless it is done. Thread-safe.
  void Cancel() { call_.cancelled->store(true, std::memory_order_relaxed); }

  // For the decoded message: see HoldDecoded.
  MemoryLease* message_memory() { return &memory_; }
  // In `done`: who pays for the response, and what is set aside for it, as a message and encoded: see Encode.
  CallPayers payers() const { return admission_.payers(); }
  std::uint64_t key() const { return admission_.key(); }
  MemoryLease* answer_memory() { return &call_.answer_memory; }
  // Once the messages of request and response are freed: returns both.
  void ReturnMemory() {
    many_.reset();
    memory_.Return();
    call_.answer_memory.Return();
  }

  double micros() const { return since_arrival_.micros(); }

 private:
  void Answer(const absl::Status& status);
  // Releases what the request holds, and ends it. `record`: what only the kind of request knows. `timing`: of the
  // response, if there is one.
  void End(const absl::Status& status, CallRecord record, v1::Timing* timing);

  const Stopwatch since_arrival_;
  const Rpc rpc_;
  const grpc::CallbackServerContext* context_ = nullptr;
  const CallTag* tag_ = nullptr;
  v1::ReduceResponse* response_ = nullptr;
  std::optional<double> receive_us_;
  Done done_;
  Admission admission_;
  ReducingCall call_;
  MemoryLease memory_;  // for the message
  Source source_ = Source::kNone;
  ArrayReduction array_{call_};
  std::unique_ptr<ManyReduction> many_;  // instead, of a ReduceManyRequest
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_REDUCTION_H_
