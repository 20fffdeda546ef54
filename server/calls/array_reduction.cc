#include "server/calls/array_reduction.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/engine/pipelines.h"
#include "kernels/engine/why_stop.h"
#include "kernels/exact/answers.h"
#include "kernels/system/quoted.h"
#include "kernels/system/status_macros.h"
#include "proto/codec/arrays_state.h"
#include "proto/codec/values.h"
#include "server/calls/shard_reduction.h"
#include "server/wire/request.h"
#include "server/wire/response.h"
#include "server/wire/status.h"

namespace reduced::server {
namespace {

// What the state of an output takes at most, as a State and as a message with its encoding, without exact sums and what
// these add.
constexpr std::int64_t kStateBytes = 2048;
constexpr std::int64_t kExactStateBytes = 4096;

}  // namespace

absl::Status ArrayReduction::Prepare(const v1::ReduceRequest& request, Operand operand, v1::ReduceResponse* response) {
  response_ = response;
  operand_ = std::move(operand);
  absl::StatusOr<Question> question = ParseQuestion(
      request, {operand_.shape.dtype, operand_.shape.count, operand_.dimensions}, call_.backend.limits.max_ops,
      [this](const char* field, const v1::SideArray& side) { return FindSide(field, side); });
  if (!question.ok()) return question.status();
  spec_ = std::move(question->spec);
  wanted_ = question->wanted;
  RETURN_IF_ERROR(Place(question->partition));
  job_ = {.spec = spec_,
          .array = operand_.elements.array,
          .deadline = call_.deadline,
          .cancelled = call_.cancelled,
          .caller = call_.admission.key()};
  return question->partition.has_value() ? SetPartition(request, *std::move(question)) : absl::OkStatus();
}

absl::Status ArrayReduction::CheckSharded() const {
  if (operand_.sharded != nullptr) return CheckShardable(job_, *operand_.sharded, sharded_sides_);
  if (sharded_sides_.empty()) return absl::OkStatus();
  const ShardedSide& side = sharded_sides_.front();
  return absl::FailedPreconditionError(
      absl::StrFormat("%s: got an array that is cut over %s, beside one that is not; allowed: in host memory, or in "
                      "the memory of the GPU that reduces",
                      side.field, side.array->DeviceNames()));
}

Job ArrayReduction::TakeJob(bool admitted) {
  job_.admitted = admitted;
  job_.limit = call_.limit;
  return std::move(job_);
}

void ArrayReduction::Reduce(bool admitted, Engine::Done done) {
  if (operand_.sharded == nullptr) return engine_->Reduce(TakeJob(admitted), std::move(done));
  const absl::StatusOr<Engine*> host = call_.backend.engines.Get(EngineKind::kCpu);
  if (!host.ok()) return std::move(done)(host.status());
  ReduceShards({.job = TakeJob(admitted),
                .array = operand_.sharded,
                .host = *host,
                .sides = sharded_sides_,
                .results = wanted_.results,
                .payers = payers()},
               std::move(done));
}

absl::Status ArrayReduction::Finish(const absl::StatusOr<reduced::Answer>& answer, std::optional<double> receive_us) {
  if (!answer.ok()) {
    const bool full = absl::IsResourceExhausted(answer.status());
    return full ? WithRetryHint(answer.status(), QueueRetryDelay(*engine_)) : answer.status();
  }
  ran_ = answer->ran;
  timing_ = answer->timing;
  return results_.has_value() ? FillArrays(*answer, receive_us)
                              : FillAnswer(spec_, *answer, receive_us, operand_.shape.bytes, wanted_, response_);
}

void ArrayReduction::Release(bool answered) {
  if (!answered) results_.reset();
  sides_.clear();
  operand_.elements = {};
}

void ArrayReduction::Forget() {
  if (results_.has_value()) results_->Forget();
}

absl::Status ArrayReduction::SetPartition(const v1::ReduceRequest& request, Question question) {
  Job* const job = &job_;
  const Partition& partition = job->partition.emplace(*std::move(question.partition));
  positions_ = partition.positions();
  results_.emplace(call_.backend);
  job->y = std::move(question.y);
  job->weights = std::move(question.weights);
  if (wanted_.state) job->states = &states_;
  if (wanted_.op_errors) job->errors = &op_errors_;
  RETURN_IF_ERROR(CheckSharded());
  // The request stays valid until the job is done.
  job->place = [this, &request, grouped = partition.grouped(), shape = std::move(question.shape),
                key_dtype = partition.keys.has_value() ? partition.keys->keys.dtype : DType::kI64](
                   std::int64_t outputs, std::int64_t groups,
                   const std::byte* keys) -> absl::StatusOr<std::vector<std::byte*>> {
    ArrayResults::Form form{outputs, shape, groups, key_dtype, keys};
    if (grouped) form.shape.insert(form.shape.begin(), groups);
    RETURN_IF_ERROR(PrepareArrays(request, form));
    return results_->data();
  };
  if (partition.uniform()) {  // what has no memory for its results waits for no lane
    absl::StatusOr<std::vector<std::byte*>> answers = job->place(partition.layout.outputs, /*groups=*/1, nullptr);
    job->place = [answers](std::int64_t, std::int64_t, const std::byte*) { return answers; };
    return answers.status();
  }
  // Before the groups are found; how many keys there are is known then.
  ReduceSpec answered = spec_;
  if (!wanted_.results) answered.ops.clear();
  const absl::StatusOr<std::int64_t> bytes =
      CheckResultBytes(request, answered, partition.layout.outputs * partition.groups(), /*groups=*/0, /*key_bytes=*/0,
                       call_.backend.limits);
  if (!bytes.ok() || !request.has_write_to()) return bytes.status();
  return call_.backend.regions.FindWritable(request.write_to(), *bytes).status();
}

absl::Status ArrayReduction::PrepareArrays(const v1::ReduceRequest& request, const ArrayResults::Form& form) {
  if (wanted_.state) {
    // What each takes at least, encoded, and what it takes at most until the response has it.
    const std::int64_t least = LeastStateBytes(spec_);
    const std::int64_t most = kStateBytes + (ExactAccumulatorsFor(spec_) == 0 ? 0 : kExactStateBytes);
    std::int64_t bytes = 0;
    if (__builtin_mul_overflow(form.outputs, std::max(least, most), &bytes)) {
      bytes = std::numeric_limits<std::int64_t>::max();
    } else {
      RETURN_IF_ERROR(CheckStateBytes(form.outputs, form.outputs * least, call_.backend.limits));
    }
    const absl::Status memory = call_.answer_memory.Grow(payers().Of(bytes), bytes, "the states of a request");
    if (!memory.ok()) return WithRetryHint(memory, kMemoryRetryDelay);
    v1::ArraysState& state = *response_->mutable_arrays_state();
    state.mutable_shape()->Add(form.shape.begin(), form.shape.end());
    if (form.keys != nullptr) {
      v1::ArrayResult& keys = *state.mutable_keys();
      keys.mutable_array()->set_dtype(ToProto(form.key_dtype));
      keys.mutable_array()->add_shape(form.groups);
      keys.set_data(form.keys, static_cast<std::size_t>(form.groups * RowOf(form.key_dtype).bytes));
    }
  }
  ReduceSpec answered = spec_;
  if (!wanted_.results) answered.ops.clear();
  return results_->Prepare(
      request, answered, form, call_.admission, &call_.answer_memory, [this] { return call_.WhyStop(); }, response_);
}

// The states are as many as their limit allows; now their size is known.
absl::Status ArrayReduction::AnswerStates() {
  constexpr std::int64_t kCopies = 3;  // of entries: in states, as a message, and encoded
  std::int64_t entries = 0;
  for (const State& state : states_) entries += EntriesBytes(state);
  const absl::Status memory =
      call_.answer_memory.Grow(payers().Of(kCopies * entries), kCopies * entries, "the states of a request");
  if (!memory.ok()) return WithRetryHint(memory, kMemoryRetryDelay);
  v1::ArraysState& state = *response_->mutable_arrays_state();
  ToProto(spec_, positions_, {}, &state);
  for (std::size_t i = 0; i < states_.size(); ++i) {
    constexpr std::size_t kBetweenLooks = 1024;
    if (i % kBetweenLooks == 0) {
      RETURN_IF_ERROR(call_.WhyStop());
    }
    AddOutput(spec_, states_[i], &state);
  }
  const auto outputs = static_cast<std::int64_t>(states_.size());
  states_ = {};
  auto bytes = static_cast<std::int64_t>(state.ByteSizeLong() + response_->keys().data().size());
  for (const v1::ArrayResult& result : response_->arrays()) bytes += static_cast<std::int64_t>(result.data().size());
  return CheckStateBytes(outputs, bytes, call_.backend.limits);
}

absl::StatusOr<FoundSide> ArrayReduction::FindSide(const char* field, const v1::SideArray& side) {
  ASSIGN_OR_RETURN(Operand operand, ResolveSide(field, side, call_.backend, call_.admission.caller()));
  FoundSide found{{operand.shape.dtype, operand.shape.count, operand.elements.array},
                  {operand.dimensions.begin(), operand.dimensions.end()}};
  sides_.push_back(std::move(operand.elements));
  if (operand.sharded != nullptr) sharded_sides_.push_back({field, operand.sharded});
  return found;
}

absl::Status ArrayReduction::Place(const std::optional<Partition>& partition) {
  if (operand_.sharded != nullptr) return PlaceShards();
  // The way to a GPU takes longer than the CPU's: arrays in host memory that fall apart go to the CPU, unless the
  // request wants another engine.
  const bool cpu = partition.has_value() && spec_.engine == EngineKind::kAuto && spec_.device.empty() &&
                   spec_.pipeline.empty() && operand_.elements.array.space != MemorySpace::kDevice;
  if (cpu) spec_.engine = EngineKind::kCpu;
  ASSIGN_OR_RETURN(Placement place, call_.backend.engines.Place(spec_, operand_.elements.array));
  engine_ = place.engine;
  expected_us_ = ExpectedUs(engine_->calibration(), spec_, operand_.elements.array);
  RETURN_IF_ERROR(CheckRunTime());
  if (cpu) {
    place.reason = !partition->uniform()            ? "the array is in host memory, and reduced by groups or a mask"
                   : partition->layout.outputs == 1 ? "the array is in host memory, and answered with arrays"
                                                    : "the array is in host memory, and reduced along axes";
  }
  response_->mutable_execution()->set_reason(std::move(place.reason));
  return absl::OkStatus();
}

absl::Status ArrayReduction::PlaceShards() {
  const std::string devices = operand_.sharded->DeviceNames();
  const auto refused = [&](const char* field, absl::string_view got, absl::string_view allowed) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s: got %s; allowed: %s, since the array is cut over %s", field, got, allowed, devices));
  };
  if (spec_.engine == EngineKind::kCpu) return refused("engine", "cpu", "cuda");
  if (!spec_.pipeline.empty() && FindPipeline(spec_.pipeline)->engine == EngineKind::kCpu) {
    return refused("pipeline", spec_.pipeline, "a pipeline of engine cuda");
  }
  if (!spec_.device.empty() && spec_.device != kAllGpus) {
    return refused("device", Quoted(spec_.device), "none, or cuda:*");
  }
  for (const ArrayShard& shard : operand_.sharded->shards()) {
    ReduceSpec part = spec_;
    part.count = shard.count;
    const double us = ExpectedUs(shard.engine->calibration(), part, shard.memory->array());
    if (engine_ != nullptr && us <= expected_us_) continue;
    engine_ = shard.engine;
    expected_us_ = us;
  }
  response_->mutable_execution()->set_reason(absl::StrCat("the array is cut over ", devices));
  return CheckRunTime();
}

absl::Status ArrayReduction::CheckRunTime() const {
  const absl::Duration predicted = absl::Microseconds(expected_us_);
  if (predicted <= call_.backend.limits.max_run_time) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("array: got %d elements, which take %s about %s; allowed: %s (--max_run_time)", spec_.count,
                      engine_->info().name, absl::FormatDuration(absl::Trunc(predicted, absl::Milliseconds(1))),
                      absl::FormatDuration(call_.backend.limits.max_run_time)));
}

absl::Status ArrayReduction::FillArrays(const reduced::Answer& answer, std::optional<double> receive_us) {
  FillExecution(spec_, answer, receive_us, operand_.shape.bytes, response_);
  call_.limit.Start(absl::Microseconds(answer.timing.kernel_us.value_or(0)));
  const absl::Status status = wanted_.state ? AnswerStates() : absl::OkStatus();
  return status.ok() ? results_->Answer(
                           op_errors_, [this] { return call_.WhyStop(); }, response_)
                     : status;
}

}  // namespace reduced::server
