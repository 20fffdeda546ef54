#include "server/calls/reduction.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "kernels/engine/why_stop.h"
#include "kernels/exact/answers.h"
#include "proto/codec/arrays_state.h"
#include "proto/codec/values.h"
#include "server/wire/encode.h"
#include "server/wire/request.h"
#include "server/wire/response.h"
#include "server/wire/status.h"

namespace reduced::server {
namespace {

// What the state of an output takes at most, as a State and as a message with its encoding, without exact sums and what
// these add.
constexpr std::int64_t kStateBytes = 2048;
constexpr std::int64_t kExactStateBytes = 4096;

// The message of a request whose elements are reduced at once, and never wait for a lane.
constexpr std::size_t kSmallBytes = 256 << 10;

// RESOURCE_EXHAUSTED: no engine has room for a request of the caller that must wait for a lane: it is refused before
// its message is parsed. The reason is that of the engine where it would wait least.
absl::Status CheckQueues(const Engines& engines, std::uint64_t caller, absl::Time deadline) {
  const Engine* shortest = nullptr;
  absl::Status why;
  for (const auto& engine : engines.all()) {
    absl::Status status = engine->CheckRoom(caller, deadline);
    if (status.ok()) return status;
    if (shortest != nullptr && engine->waiting_us(kSmallBytes) >= shortest->waiting_us(kSmallBytes)) continue;
    shortest = engine.get();
    why = std::move(status);
  }
  return shortest == nullptr ? why : WithRetryHint(std::move(why), QueueRetryDelay(*shortest));
}

}  // namespace

Reduction::~Reduction() {
  if (results_.has_value() && cancelled_->load(std::memory_order_relaxed)) results_->Forget();
}

absl::Status Reduction::Admit(const grpc::CallbackServerContext* context, const CallTag* tag,
                              const absl::StatusOr<Caller>& caller, absl::Time deadline, std::size_t bytes) {
  context_ = context;
  tag_ = tag;
  absl::Status status = admission_.Admit(caller, deadline);
  if (!status.ok()) return status;
  status = CheckMessageSize(bytes, backend_.limits.max_message_bytes);
  if (!status.ok()) return status;
  return bytes > kSmallBytes ? CheckQueues(backend_.engines, admission_.key(), deadline) : absl::OkStatus();
}

void Reduction::Start(const v1::ReduceRequest* request, v1::ReduceResponse* response, absl::Time deadline,
                      std::optional<double> receive_us, Done done, std::optional<OutsideElements> outside) {
  response_ = response;
  receive_us_ = receive_us;
  done_ = std::move(done);
  deadline_ = deadline;
  const absl::Status status = Begin(*request, std::move(outside));
  if (!status.ok()) Answer(status);
}

void Reduction::Refuse(const absl::Status& why, Done done) {
  done_ = std::move(done);
  Answer(why);
}

// If it returns OK, End answers, and may have done so already.
absl::Status Reduction::Begin(const v1::ReduceRequest& request, std::optional<OutsideElements> outside) {
  source_ = SourceOf(rpc_, request, outside.has_value());
  absl::StatusOr<Operand> operand = outside.has_value() ? ResolveOperand(request, *std::move(outside), backend_.limits)
                                                        : ResolveOperand(request, backend_, admission_.caller());
  if (!operand.ok()) return operand.status();
  operand_ = *std::move(operand);
  absl::StatusOr<Question> question =
      ParseQuestion(request, {operand_.shape.dtype, operand_.shape.count, operand_.dimensions}, backend_.limits.max_ops,
                    [this](const char* field, const v1::SideArray& side) { return FindSide(field, side); });
  if (!question.ok()) return question.status();
  spec_ = std::move(question->spec);
  wanted_ = question->wanted;
  absl::Status status = Place(question->partition);
  if (!status.ok()) return status;
  const auto job_of = [this] {
    return Job{spec_, operand_.elements.array, deadline_, cancelled_, /*admitted=*/false, admission_.key(), limit_};
  };
  const auto end = [this](absl::StatusOr<reduced::Answer> answer) { End(std::move(answer)); };
  if (!question->partition.has_value()) {
    engine_->Reduce(job_of(), end);
    return absl::OkStatus();
  }
  Job job = job_of();
  status = SetPartition(request, *std::move(question), &job);
  if (status.ok()) engine_->Reduce(std::move(job), end);
  return status;
}

absl::Status Reduction::SetPartition(const v1::ReduceRequest& request, Question question, Job* job) {
  const Partition& partition = job->partition.emplace(*std::move(question.partition));
  positions_ = partition.positions();
  results_.emplace(backend_);
  job->y = std::move(question.y);
  job->weights = std::move(question.weights);
  if (wanted_.state) job->states = &states_;
  if (wanted_.op_errors) job->errors = &op_errors_;
  // The request stays valid until the job is done.
  job->place = [this, &request, grouped = partition.grouped(), shape = std::move(question.shape),
                key_dtype = partition.keys.has_value() ? partition.keys->keys.dtype : DType::kI64](
                   std::int64_t outputs, std::int64_t groups,
                   const std::byte* keys) -> absl::StatusOr<std::vector<std::byte*>> {
    ArrayResults::Form form{outputs, shape, groups, key_dtype, keys};
    if (grouped) form.shape.insert(form.shape.begin(), groups);
    const absl::Status status = PrepareArrays(request, form);
    if (!status.ok()) return status;
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
  const absl::StatusOr<std::int64_t> bytes = CheckResultBytes(
      request, answered, partition.layout.outputs * partition.groups(), /*groups=*/0, /*key_bytes=*/0, backend_.limits);
  if (!bytes.ok() || !request.has_write_to()) return bytes.status();
  return backend_.regions.FindWritable(request.write_to(), *bytes).status();
}

absl::Status Reduction::PrepareArrays(const v1::ReduceRequest& request, const ArrayResults::Form& form) {
  if (wanted_.state) {
    // What each takes at least, encoded, and what it takes at most until the response has it.
    const std::int64_t least = LeastStateBytes(spec_);
    const std::int64_t most = kStateBytes + (ExactAccumulatorsFor(spec_) == 0 ? 0 : kExactStateBytes);
    std::int64_t bytes = 0;
    if (__builtin_mul_overflow(form.outputs, std::max(least, most), &bytes)) {
      bytes = std::numeric_limits<std::int64_t>::max();
    } else {
      const absl::Status status = CheckStateBytes(form.outputs, form.outputs * least, backend_.limits);
      if (!status.ok()) return status;
    }
    const absl::Status memory = answer_memory_.Grow(payers().Of(bytes), bytes, "the states of a request");
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
      request, answered, form, admission_, &answer_memory_, [this] { return WhyStop(); }, response_);
}

// The states are as many as their limit allows; now their size is known.
absl::Status Reduction::AnswerStates() {
  constexpr std::int64_t kCopies = 3;  // of entries: in states, as a message, and encoded
  std::int64_t entries = 0;
  for (const State& state : states_) entries += EntriesBytes(state);
  const absl::Status memory =
      answer_memory_.Grow(payers().Of(kCopies * entries), kCopies * entries, "the states of a request");
  if (!memory.ok()) return WithRetryHint(memory, kMemoryRetryDelay);
  v1::ArraysState& state = *response_->mutable_arrays_state();
  ToProto(spec_, positions_, {}, &state);
  for (std::size_t i = 0; i < states_.size(); ++i) {
    constexpr std::size_t kBetweenLooks = 1024;
    if (i % kBetweenLooks == 0) {
      if (absl::Status why = WhyStop(); !why.ok()) return why;
    }
    AddOutput(spec_, states_[i], &state);
  }
  const auto outputs = static_cast<std::int64_t>(states_.size());
  states_ = {};
  auto bytes = static_cast<std::int64_t>(state.ByteSizeLong() + response_->keys().data().size());
  for (const v1::ArrayResult& result : response_->arrays()) bytes += static_cast<std::int64_t>(result.data().size());
  return CheckStateBytes(outputs, bytes, backend_.limits);
}

absl::StatusOr<FoundSide> Reduction::FindSide(const char* field, const v1::SideArray& side) {
  absl::StatusOr<Operand> operand = ResolveSide(field, side, backend_, admission_.caller());
  if (!operand.ok()) return operand.status();
  FoundSide found{{operand->shape.dtype, operand->shape.count, operand->elements.array},
                  {operand->dimensions.begin(), operand->dimensions.end()}};
  sides_.push_back(std::move(operand->elements));
  return found;
}

absl::Status Reduction::Place(const std::optional<Partition>& partition) {
  // The way to a GPU takes longer than the CPU's: arrays in host memory that fall apart go to the CPU, unless the
  // request wants another engine.
  const bool cpu = partition.has_value() && spec_.engine == EngineKind::kAuto && spec_.device.empty() &&
                   spec_.pipeline.empty() && operand_.elements.array.space != MemorySpace::kDevice;
  if (cpu) spec_.engine = EngineKind::kCpu;
  absl::StatusOr<Placement> place = backend_.engines.Place(spec_, operand_.elements.array);
  if (!place.ok()) return place.status();
  engine_ = place->engine;
  const absl::Duration predicted =
      absl::Microseconds(ExpectedUs(engine_->calibration(), spec_, operand_.elements.array));
  if (predicted > backend_.limits.max_run_time) {
    return absl::InvalidArgumentError(
        absl::StrFormat("array: got %d elements, which take %s about %s; allowed: %s (--max_run_time)", spec_.count,
                        engine_->info().name, absl::FormatDuration(absl::Trunc(predicted, absl::Milliseconds(1))),
                        absl::FormatDuration(backend_.limits.max_run_time)));
  }
  if (cpu) {
    place->reason = !partition->uniform()            ? "the array is in host memory, and reduced by groups or a mask"
                    : partition->layout.outputs == 1 ? "the array is in host memory, and answered with arrays"
                                                     : "the array is in host memory, and reduced along axes";
  }
  response_->mutable_execution()->set_reason(std::move(place->reason));
  return absl::OkStatus();
}

absl::Status Reduction::WhyFailed(const absl::Status& status) const {
  return absl::IsResourceExhausted(status) ? WithRetryHint(status, QueueRetryDelay(*engine_)) : status;
}

void Reduction::End(absl::StatusOr<reduced::Answer> answer) {
  if (!answer.ok()) return Answer(WhyFailed(answer.status()));
  const absl::Status status = results_.has_value()
                                  ? FillArrays(*answer)
                                  : FillAnswer(spec_, *answer, receive_us_, operand_.shape.bytes, wanted_, response_);
  ran_ = std::move(answer->ran);
  timing_ = answer->timing;
  Answer(status);
}

absl::Status Reduction::FillArrays(const reduced::Answer& answer) {
  FillExecution(spec_, answer, receive_us_, operand_.shape.bytes, response_);
  limit_.Start(absl::Microseconds(answer.timing.kernel_us.value_or(0)));
  const absl::Status status = wanted_.state ? AnswerStates() : absl::OkStatus();
  return status.ok() ? results_->Answer(
                           op_errors_, [this] { return WhyStop(); }, response_)
                     : status;
}

void Reduction::Answer(const absl::Status& status) {
  if (!status.ok()) results_.reset();
  sides_.clear();
  operand_.elements = {};  // before the response: its client sees no user of the array ...
  admission_.Release();    // ... and may send its next request
  const double total_us = micros();
  if (status.ok()) response_->mutable_timing()->set_total_us(total_us);
  backend_.observer.End({.rpc = rpc_,
                         .tag = tag_,
                         .context = context_,
                         .caller = &admission_.admitted(),
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
