// The reduction of one array, in a call that has been admitted: a Reduction has one, a ReduceMany one for each operand.
#ifndef REDUCED_SERVER_CALLS_ARRAY_REDUCTION_H_
#define REDUCED_SERVER_CALLS_ARRAY_REDUCTION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/memory_budget.h"
#include "proto/question/question.h"
#include "reduced/v1/reduced.pb.h"
#include "server/calls/admission.h"
#include "server/calls/array_results.h"
#include "server/calls/backend.h"
#include "server/calls/operand.h"
#include "server/calls/shard_jobs.h"

namespace reduced::server {

// What the reductions of a call share. The references must outlive them.
struct ReducingCall {
  Backend& backend;
  const Admission& admission;
  CancelFlag cancelled = std::make_shared<std::atomic<bool>>(false);
  absl::Time deadline = absl::InfiniteFuture();
  RunLimit limit{backend.limits.max_run_time};  // of the jobs; for results and states started again, less their time
  MemoryLease answer_memory{};                  // for results and states, and the response that has them

  absl::Status WhyStop() const { return reduced::WhyStop(cancelled, deadline, limit); }
};

// Prepare, Reduce or TakeJob, and Finish are called in this order, each at most once. Not thread-safe. `call` must
// outlive it.
class ArrayReduction {
 public:
  explicit ArrayReduction(ReducingCall& call) : call_(call) {}
  ArrayReduction(const ArrayReduction&) = delete;
  ArrayReduction& operator=(const ArrayReduction&) = delete;

  // Parses the question about `operand`, chooses the engine, and sets memory aside for results whose size is known.
  // Every error that does not depend on the elements is found here. The request and the response, which gets the
  // results, must stay valid until Finish.
  absl::Status Prepare(const v1::ReduceRequest& request, Operand operand, v1::ReduceResponse* response);

  // Has the engine reduce, as Engine::Reduce. `admitted`: as Job::admitted.
  void Reduce(bool admitted, Engine::Done done);
  // Or takes it together with others: the engine whose ReduceMany is to be called with the job; null: only Reduce may
  // be.
  Engine* together() const { return operand_.sharded == nullptr && engine_->TakesMany() ? engine_ : nullptr; }
  Job TakeJob(bool admitted);

  // Fills the response but for its total_us. `receive_us`: the time that the request took to arrive.
  absl::Status Finish(const absl::StatusOr<reduced::Answer>& answer, std::optional<double> receive_us);

  // After Finish, or without it: lets go of the arrays, and of results that are not answered with.
  void Release(bool answered);
  // Deletes results that were kept: their client does not learn of them.
  void Forget();

  // After Prepare, whether it failed or not: without ops, an engine or bytes where it has not found them.
  const ReduceSpec& spec() const { return spec_; }
  Engine* engine() const { return engine_; }
  std::int64_t bytes() const { return operand_.shape.bytes; }
  double expected_us() const { return expected_us_; }
  // After Finish.
  const Execution& ran() const { return ran_; }
  const Timing& timing() const { return timing_; }

 private:
  CallPayers payers() const { return call_.admission.payers(); }
  // Of the arrays beside the one that is reduced.
  absl::StatusOr<FoundSide> FindSide(const char* field, const v1::SideArray& side);
  // Chooses the engine, or takes those of the shards.
  absl::Status Place(const std::optional<Partition>& partition);
  absl::Status PlaceShards();
  // INVALID_ARGUMENT: the engine, or any of those, is predicted to take longer than a request may.
  absl::Status CheckRunTime() const;
  // What can't be answered because the array, or one beside it, is sharded.
  absl::Status CheckSharded() const;
  // Checks the results of a partition, and has the job answer it.
  absl::Status SetPartition(const v1::ReduceRequest& request, Question question);
  // Sets memory aside for the results, and for the states if they are wanted.
  absl::Status PrepareArrays(const v1::ReduceRequest& request, const ArrayResults::Form& form);
  absl::Status FillArrays(const reduced::Answer& answer, std::optional<double> receive_us);
  absl::Status AnswerStates();

  ReducingCall& call_;
  v1::ReduceResponse* response_ = nullptr;
  ReduceSpec spec_;
  Wanted wanted_;
  Operand operand_;
  Job job_;                                 // moved from by Reduce and TakeJob
  std::vector<HeldArray> sides_;            // bounds, keys, masks and the other operands
  std::vector<ShardedSide> sharded_sides_;  // those of them that are sharded
  std::optional<ArrayResults> results_;     // of a partition
  std::vector<State> states_;               // of its outputs, if they are wanted
  std::vector<absl::Status> op_errors_;     // likewise
  std::int64_t positions_ = 0;              // of each output: ArraysState.positions
  // Null until it is chosen; of a sharded array one of those that reduce it.
  Engine* engine_ = nullptr;
  double expected_us_ = 0;  // that it takes
  Execution ran_;
  Timing timing_;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_ARRAY_REDUCTION_H_
