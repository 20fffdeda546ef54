#include "server/calls/reduction.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

#include "absl/strings/str_format.h"
#include "kernels/engine/why_stop.h"
#include "kernels/exact/answers.h"
#include "proto/codec/arrays_state.h"
#include "proto/codec/values.h"
#include "server/wire/encode.h"
#include "server/wire/enums.h"
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
  const absl::StatusOr<Wanted> wanted = ParseWanted(request);
  if (!wanted.ok()) return wanted.status();
  wanted_ = *wanted;
  if (rpc_ == Rpc::kReduce && AsksForArrays(request)) return BeginSlices(request);
  absl::StatusOr<ReduceSpec> spec = ParseQuestion(request, operand_.shape, backend_.limits);
  if (!spec.ok()) return spec.status();
  spec_ = *std::move(spec);
  const absl::Status placed = Place();
  if (!placed.ok()) return placed;
  engine_->Reduce(JobOf(), [this](absl::StatusOr<EngineResult> result) { End(std::move(result)); });
  return absl::OkStatus();
}

absl::Status Reduction::BeginSlices(const v1::ReduceRequest& request) {
  absl::StatusOr<SlicesQuestion> question = ParseSlices(request, operand_.shape, operand_.dimensions, backend_.limits);
  if (!question.ok()) return question.status();
  spec_ = question->spec;
  const bool groups = request.has_segments() || request.has_keys() || request.has_where();
  // The way to a GPU takes longer than the CPU's: arrays in host memory go to the CPU, unless the request wants another
  // engine.
  const bool chosen = spec_.engine == EngineKind::kAuto && spec_.device.empty() && spec_.pipeline.empty() &&
                      operand_.elements.array.space != MemorySpace::kDevice;
  if (chosen) spec_.engine = EngineKind::kCpu;
  absl::Status status = Place();
  if (!status.ok()) return status;
  if (chosen) {
    response_->mutable_execution()->set_reason(groups ? "the array is in host memory, and reduced by groups or a mask"
                                                      : "the array is in host memory, and reduced along axes");
  }
  results_.emplace(backend_);
  if (groups) return BeginGroups(request, *std::move(question));
  positions_ = question->layout.elements;
  status = PrepareArrays(request, {question->layout.outputs, std::move(question->shape)});
  if (!status.ok()) return status;
  engine_->ReduceSlices({JobOf(), std::move(question->layout), results_->data(), StatesWanted(), OpErrorsWanted()},
                        [this](absl::StatusOr<SlicesResult> result) { EndSlices(std::move(result)); });
  return absl::OkStatus();
}

absl::Status Reduction::BeginGroups(const v1::ReduceRequest& request, SlicesQuestion question) {
  absl::StatusOr<Groups> groups = GroupsOf(request);
  if (!groups.ok()) return groups.status();
  groups->layout = std::move(question.layout);
  positions_ = request.has_keys() ? groups->rows : groups->layout.elements;
  // Before anything is made of them; how many keys there are is found out later.
  std::int64_t outputs = groups->layout.outputs, number = 1;
  if (groups->segments.has_value()) number = groups->segments->count();
  if (groups->keys.has_value()) number = groups->keys->groups;
  if (__builtin_mul_overflow(outputs, number, &outputs)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("outputs: got %d times %d; allowed: 2^63 - 1 in all", groups->layout.outputs, number));
  }
  const absl::StatusOr<std::int64_t> bytes = CheckResultBytes(request, spec_, outputs, 0, 0, backend_.limits);
  if (!bytes.ok()) return bytes.status();
  if (request.has_write_to()) {
    const absl::Status status = backend_.regions.FindWritable(request.write_to(), *bytes).status();
    if (!status.ok()) return status;
  }
  const bool grouped = request.has_segments() || request.has_keys();
  const DType key_dtype = groups->keys.has_value() ? groups->keys->keys.dtype : DType::kI64;
  // The request stays valid until the job is done.
  auto place = [this, &request, grouped, key_dtype, shape = std::move(question.shape)](
                   std::int64_t outputs, std::int64_t number,
                   const std::byte* keys) mutable -> absl::StatusOr<std::vector<std::byte*>> {
    if (grouped) shape.insert(shape.begin(), number);
    const absl::Status status = PrepareArrays(request, {outputs, std::move(shape), number, key_dtype, keys});
    if (!status.ok()) return status;
    return results_->data();
  };
  engine_->ReduceGroups({JobOf(), *std::move(groups), std::move(place), StatesWanted(), OpErrorsWanted()},
                        [this](absl::StatusOr<SlicesResult> result) { EndSlices(std::move(result)); });
  return absl::OkStatus();
}

absl::Status Reduction::PrepareArrays(const v1::ReduceRequest& request, const ArrayResults::Form& form) {
  if (wanted_.state) {
    // What each takes at least, encoded, and what it takes at most until the response has it.
    v1::ArraysState none;
    ToProto(spec_, 0, {}, &none);
    const auto least = static_cast<std::int64_t>(none.question().ByteSizeLong());
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

// But for the layout.
absl::StatusOr<Groups> Reduction::GroupsOf(const v1::ReduceRequest& request) {
  const absl::Span<const std::int64_t> shape = operand_.dimensions;
  const std::span<const std::int64_t> of(shape.data(), shape.size());
  Groups groups{.rows = shape.empty() ? 1 : shape.front()};
  if (request.has_segments()) {
    const v1::Segments& from = request.segments();
    if (from.bounds_case() == v1::Segments::BOUNDS_NOT_SET) {
      return absl::InvalidArgumentError("segments: got none; allowed: offsets, lengths");
    }
    Segments& segments = groups.segments.emplace(Segments{.lengths = from.has_lengths()});
    const absl::StatusOr<std::vector<std::int64_t>> side =
        from.has_lengths() ? Side("segments.lengths", from.lengths(), &segments.bounds)
                           : Side("segments.offsets", from.offsets(), &segments.bounds);
    if (!side.ok()) return side.status();
    if (const absl::Status status = Validate(segments, *side); !status.ok()) return status;
  }
  if (request.has_keys()) {
    const v1::Keys& from = request.keys();
    if (!v1::OutsideKeys_IsValid(from.outside())) return UnknownValue("keys.outside", from.outside());
    if (from.outside() != v1::OUTSIDE_KEYS_DEFAULT && from.groups() == 0) {
      return absl::InvalidArgumentError("keys.outside: got a policy without groups; allowed: none, or with groups");
    }
    Keys& keys = groups.keys.emplace(Keys{.groups = from.groups(), .drop = from.outside() == v1::OUTSIDE_KEYS_DROP});
    const absl::StatusOr<std::vector<std::int64_t>> side = Side("keys.keys", from.keys(), &keys.keys);
    if (!side.ok()) return side.status();
    if (const absl::Status status = Validate(keys, *side, of); !status.ok()) return status;
  }
  if (request.has_where()) {
    const v1::Mask& from = request.where();
    if (from.mask_case() == v1::Mask::MASK_NOT_SET) {
      return absl::InvalidArgumentError("where: got none; allowed: elements, bits");
    }
    Mask& mask = groups.mask.emplace(Mask{.bits = from.has_bits(), .first_bit = from.first_bit()});
    const absl::StatusOr<std::vector<std::int64_t>> side = from.has_bits()
                                                               ? Side("where.bits", from.bits(), &mask.array)
                                                               : Side("where.elements", from.elements(), &mask.array);
    if (!side.ok()) return side.status();
    if (const absl::Status status = Validate(mask, *side, of); !status.ok()) return status;
  }
  return groups;
}

// Finds an array beside the one that is reduced; its shape.
absl::StatusOr<std::vector<std::int64_t>> Reduction::Side(const char* field, const v1::SideArray& side,
                                                          SideArray* into) {
  absl::StatusOr<Operand> operand = ResolveSide(field, side, backend_, admission_.caller());
  if (!operand.ok()) return operand.status();
  *into = {operand->shape.dtype, operand->shape.count, operand->elements.array};
  sides_.push_back(std::move(operand->elements));
  return std::vector<std::int64_t>(operand->dimensions.begin(), operand->dimensions.end());
}

absl::Status Reduction::Place() {
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
  response_->mutable_execution()->set_reason(std::move(place->reason));
  return absl::OkStatus();
}

Job Reduction::JobOf() const {
  return {spec_, operand_.elements.array, deadline_, cancelled_, /*admitted=*/false, admission_.key(), limit_};
}

absl::Status Reduction::WhyFailed(const absl::Status& status) const {
  return absl::IsResourceExhausted(status) ? WithRetryHint(status, QueueRetryDelay(*engine_)) : status;
}

void Reduction::End(absl::StatusOr<EngineResult> result) {
  if (!result.ok()) return Answer(WhyFailed(result.status()));
  const absl::Status status = FillAnswer(spec_, *result, receive_us_, operand_.shape.bytes, wanted_, response_);
  ran_ = std::move(result->ran);
  timing_ = result->timing;
  Answer(status);
}

void Reduction::EndSlices(absl::StatusOr<SlicesResult> result) {
  if (!result.ok()) return Answer(WhyFailed(result.status()));
  FillExecution(spec_, *result, receive_us_, operand_.shape.bytes, response_);
  ran_ = std::move(result->ran);
  timing_ = result->timing;
  limit_.Start(absl::Microseconds(timing_.kernel_us.value_or(0)));
  absl::Status status = wanted_.state ? AnswerStates() : absl::OkStatus();
  if (status.ok())
    status = results_->Answer(
        op_errors_, [this] { return WhyStop(); }, response_);
  Answer(status);
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
