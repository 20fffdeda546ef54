// The reductions of a ReduceManyRequest that has arrived completely, in a call that has been admitted:
//
//   1. Every operand is found, the question about it parsed, and its engine chosen: see ArrayReduction::Prepare.
//   2. If there is more than a little for the CPU's engine, the request waits for one of its lanes, once. The calling
//      thread returns.
//   3. The operands are reduced one after the other, those of the CPU first: on the lane, without a further hand-off,
//      or on the calling thread. One that an engine reduces on a lane of its own goes on with the next one there. Those
//      of a GPU are one job of its engine.
#ifndef REDUCED_SERVER_CALLS_MANY_H_
#define REDUCED_SERVER_CALLS_MANY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/memory_budget.h"
#include "kernels/engine/stopwatch.h"
#include "reduced/v1/reduced.pb.h"
#include "server/calls/array_reduction.h"
#include "server/config/rpc.h"
#include "server/observe/call_record.h"

namespace reduced::server {

// Not thread-safe. The references must outlive it.
class ManyReduction {
 public:
  using Done = absl::AnyInvocable<void(const absl::Status&) &&>;

  // `rpc`: the kind of call. `response`: is filled if all succeeds.
  ManyReduction(Rpc rpc, ReducingCall& call, const v1::ReduceManyRequest& request, v1::ReduceManyResponse& response)
      : rpc_(rpc), call_(call), request_(request), response_(response) {}
  ManyReduction(const ManyReduction&) = delete;
  ManyReduction& operator=(const ManyReduction&) = delete;

  // Reduces, once. `done` is called exactly once, from a lane, or before Start returns; this may end in it.
  // `receive_us`: the time that the request took to arrive.
  void Start(std::optional<double> receive_us, Done done);

  // In `done`: what a record of the call has of it, valid as long as this is; and the timing of the response, which
  // lacks total_us.
  CallRecord Record() const;
  v1::Timing* timing() { return response_.mutable_timing(); }

 private:
  absl::Status Prepare();
  bool TakesLane() const;
  void Continue();
  void Step();
  void ReduceTogether(Engine& engine, std::size_t end, bool admitted);
  void Answered(const absl::StatusOr<reduced::Answer>& answer, double reduced_us = 0);
  absl::Status CheckResults(std::size_t index, const v1::ReduceResponse& response);
  void End(const absl::Status& status);

  const Rpc rpc_;
  ReducingCall& call_;
  const v1::ReduceManyRequest& request_;
  v1::ReduceManyResponse& response_;
  std::optional<double> receive_us_;
  Done done_;
  MemoryLease objects_;                  // for the operands, and the messages of their answers
  std::deque<ArrayReduction> operands_;  // in the order of the request
  std::vector<std::size_t> order_;       // in which they are reduced
  std::size_t next_ = 0;                 // of these
  bool admitted_ = false;                // by the queue of an engine: later ones are part of what runs
  std::int64_t cpu_bytes_ = 0;           // of the operands that the CPU reduces
  std::int64_t bytes_ = 0;
  std::int64_t elements_ = 0;
  std::int64_t result_bytes_ = 0;  // of the arrays and states so far
  Timing timing_;                  // of all so far
  Stopwatch since_;                // the operand that is reduced
  absl::Status status_;            // the first error
  std::atomic<int> steps_ = 0;     // that have ended, of that operand: its answer, and the call that asked for it
  // Of the first operand, for the record.
  ReduceSpec spec_;
  std::string pipeline_;
  Source source_ = Source::kNone;
  EngineKind engine_ = EngineKind::kAuto;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_MANY_H_
