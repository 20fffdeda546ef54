// One reduction of a ReduceRequest that is all here, whatever call it came by.
#ifndef REDUCED_SERVER_CALLS_REDUCTION_H_
#define REDUCED_SERVER_CALLS_REDUCTION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/server_context.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/stopwatch.h"
#include "reduced/v1/reduced.pb.h"
#include "server/calls/backend.h"
#include "server/observe/call_record.h"

namespace reduced::server {

// Made when the request arrives: the clock of total_us starts.
class Reduction {
 public:
  using Done = absl::AnyInvocable<void(const absl::Status&) &&>;

  // `rpc`: what it came by. `backend` must outlive it.
  Reduction(Rpc rpc, Backend& backend) : rpc_(rpc), backend_(backend) {}
  ~Reduction() {  // at the earliest in `done`
    if (entered_) backend_.gate.Leave();
  }
  Reduction(const Reduction&) = delete;
  Reduction& operator=(const Reduction&) = delete;

  // Once. Checks the request, reduces, fills `response` if that is OK and calls `done`, exactly once: from a lane, or
  // before it returns. All four pointers must stay valid until then. receive_us: what the request took until now.
  // `caller`: an identity, as of Security::CallerOf; its error is the answer.
  void Start(const grpc::CallbackServerContext* context, const CallTag* tag, const absl::StatusOr<std::string>& caller,
             const v1::ReduceRequest* request, v1::ReduceResponse* response, absl::Time deadline,
             std::optional<double> receive_us, Done done);

  // Ends it early with CANCELLED, unless it is over already. At any time, from any thread.
  void Cancel() { cancelled_->store(true, std::memory_order_relaxed); }

  double micros() const { return since_arrival_.micros(); }
  // When to try again, for the RESOURCE_EXHAUSTED of a full queue.
  std::optional<absl::Duration> retry_after() const { return retry_after_; }

 private:
  absl::Status Begin(const std::string& caller, const v1::ReduceRequest& request, absl::Time deadline);
  void End(absl::StatusOr<EngineResult> result);
  void Answer(const absl::Status& status);

  const Stopwatch since_arrival_;
  const Rpc rpc_;
  Backend& backend_;
  const CancelFlag cancelled_ = std::make_shared<std::atomic<bool>>(false);
  const grpc::CallbackServerContext* context_ = nullptr;
  const CallTag* tag_ = nullptr;
  v1::ReduceResponse* response_ = nullptr;
  std::optional<double> receive_us_;
  Done done_;
  bool entered_ = false;
  Quotas::Lease quota_;
  ReduceSpec spec_;
  std::int64_t bytes_ = 0;
  bool return_state_ = false;
  HeldArray source_;
  Source source_kind_ = Source::kNone;
  Engine* engine_ = nullptr;  // picked
  Execution ran_;
  Timing timing_;
  std::optional<absl::Duration> retry_after_;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_REDUCTION_H_
