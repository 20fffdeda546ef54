#include "client/local/local.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/lib/call.h"
#include "client/lib/convert.h"
#include "client/lib/names.h"
#include "kernels/algebra/finalize.h"
#include "kernels/algebra/state.h"
#include "kernels/cpu/engine.h"
#include "kernels/engine/pipelines.h"
#include "kernels/engine/stopwatch.h"
#include "kernels/system/memory.h"
#include "kernels/system/status_macros.h"
#include "proto/codec/arrays_state.h"
#include "proto/codec/op_call.h"
#include "proto/codec/state_codec.h"
#include "proto/question/question.h"
#include "reduced/ops.h"
#include "reduced/v1/reduced.pb.h"
#include "reduced/version.h"

namespace reduced::client {
namespace {

// Beyond it the results would be most of a machine's memory.
constexpr std::int64_t kMaxLocalResultBytes = std::int64_t{1} << 36;

// FAILED_PRECONDITION: this process has the CPU engine only.
absl::Status CheckHere(const ReduceSpec& spec) {
  const auto not_here = [](const char* field, std::string_view got, const char* allowed) {
    return absl::FailedPreconditionError(
        absl::StrCat(field, ": got ", std::string(got), "; allowed: ", allowed, ", which is all that local: has"));
  };
  if (spec.engine == EngineKind::kCuda) return not_here("engine", "cuda", "auto, cpu");
  if (!spec.device.empty() && spec.device != "cpu") return not_here("device", spec.device, "cpu");
  if (!spec.pipeline.empty() && FindPipeline(spec.pipeline)->engine != EngineKind::kCpu) {
    return not_here("pipeline", spec.pipeline, "pipelines of the CPU engine");
  }
  return absl::OkStatus();
}

std::int64_t CountOf(const ArrayView& array) {
  return *ArrayBytes(array.dtype, array.shape) / *DTypeBytes(array.dtype);
}

// The arrays beside the one that a request reduces, and the memory that has them.
using Sides = std::vector<std::pair<const v1::SideArray*, const ArrayView*>>;

// What a request asks of an array in this process.
absl::StatusOr<Question> QuestionOf(const v1::ReduceRequest& request, const ArrayView& array, const Sides& sides) {
  const auto find_side = [&](const char* field, const v1::SideArray& side) -> absl::StatusOr<FoundSide> {
    for (const auto& [message, view] : sides) {
      if (message != &side) continue;
      return FoundSide{{static_cast<DType>(side.array().dtype()), CountOf(*view), {view->data}}, view->shape};
    }
    return absl::InvalidArgumentError(absl::StrCat(field, ": got an array of a server; allowed: in memory"));
  };
  absl::StatusOr<Question> question =
      ParseQuestion(request, {static_cast<DType>(request.array().dtype()), CountOf(array), array.shape},
                    /*max_ops=*/std::numeric_limits<int>::max(), find_side);
  if (!question.ok()) return question;
  RETURN_IF_ERROR(CheckHere(question->spec));
  return question;
}

// Adds memory for results of each op to the reply.
absl::StatusOr<std::vector<std::byte*>> PlaceIn(const ReduceSpec& spec, const std::vector<std::string>& names,
                                                const char* field, std::int64_t outputs,
                                                const std::vector<std::int64_t>& shape, ArrayReply* reply) {
  for (std::size_t i = 0; i < spec.ops.size(); ++i) {
    const OpCall& op = spec.ops[i];
    std::int64_t size = 0;
    if (__builtin_mul_overflow(outputs, ResultBytes(op, spec.dtype), &size) || size > kMaxLocalResultBytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat(field, ": got ", outputs, " outputs; allowed: results of ", kMaxLocalResultBytes, " bytes"));
    }
    ResultArray result{.op = names[i]};
    result.array = {.dtype = std::string(RowOf(ResultDType(op, spec.dtype)).name), .shape = shape};
    const std::vector<std::int64_t> answer = AnswerShape(op);
    result.array.shape.insert(result.array.shape.end(), answer.begin(), answer.end());
    FillWithZeros(static_cast<std::size_t>(size), &result.array.data);
    reply->results.push_back(std::move(result));
  }
  std::vector<std::byte*> answers;
  for (ResultArray& result : reply->results) answers.push_back(reinterpret_cast<std::byte*>(result.array.data.data()));
  return answers;
}

// An array in memory, as the engine takes it.
ArrayRef ArrayOf(const ArrayView& array) {
  return array.reader.in_memory ? ArrayRef{.read = &array.reader.read} : ArrayRef{.data = array.data};
}

// The bytes that are read of an array with a reader before they are reduced, while those before them are.
constexpr std::int64_t kPieceBytes = std::int64_t{8} << 20;

// One reduction of an engine, which this waits for.
class Running {
 public:
  Running(Engine& engine, Job job) {
    engine.Reduce(std::move(job), [this](absl::StatusOr<reduced::Answer> answer) {
      result_ = std::move(answer);
      done_.Notify();
    });
  }
  ~Running() { done_.WaitForNotification(); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  absl::StatusOr<reduced::Answer> Wait(InterruptClock& clock, std::atomic<bool>& cancelled) {
    while (!done_.WaitForNotificationWithDeadline(clock.due())) {
      if (clock.Ask()) cancelled.store(true, std::memory_order_relaxed);
    }
    return std::move(result_);
  }

 private:
  absl::StatusOr<reduced::Answer> result_ = absl::UnknownError("");
  absl::Notification done_;
};

// Reduces an array: from memory at once, from another reader piece by piece, each while the next one is read.
absl::StatusOr<reduced::Answer> ReduceAll(Engine& engine, const ReduceSpec& spec, const ArrayView& array,
                                          absl::Duration timeout, const ReduceOptions& options) {
  const bool reads = array.reader.read != nullptr && !array.reader.in_memory;
  const std::int64_t width = RowOf(spec.dtype).bytes;
  const std::int64_t bytes = spec.count * width;
  const auto cancelled = std::make_shared<std::atomic<bool>>(false);
  Job job{.spec = spec, .deadline = absl::Now() + timeout, .cancelled = cancelled};
  InterruptClock clock(options.interrupted);
  reduced::Answer whole;
  std::vector<char> buffers[2];  // must outlive what runs
  std::optional<Running> running;
  std::int64_t begin = 0;  // of what runs, in bytes
  // Adds the result of what runs.
  const auto finish = [&]() -> absl::Status {
    if (!running.has_value()) return absl::OkStatus();
    absl::StatusOr<reduced::Answer> piece = running->Wait(clock, *cancelled);
    running.reset();
    if (!piece.ok()) return clock.interrupted() ? InterruptedError() : piece.status();
    Shift(begin / width, &piece->state);
    Combine(*piece, &whole);
    return absl::OkStatus();
  };
  std::int64_t at = 0;
  do {
    const std::int64_t size = reads ? std::min(kPieceBytes, bytes - at) : bytes;
    const void* data = nullptr;
    if (reads && size > 0) {
      std::swap(buffers[0], buffers[1]);
      buffers[0].resize(static_cast<std::size_t>(size));
      RETURN_IF_ERROR(array.reader.read(at, buffers[0].data(), size));
      if (options.on_progress != nullptr) options.on_progress(at + size, bytes);
      data = buffers[0].data();
    }
    RETURN_IF_ERROR(finish());
    if (clock.Ask()) return InterruptedError();
    job.spec.count = size / width;
    for (OpCall& call : job.spec.ops) call = StartingAt(at / width, call);
    job.array = reads ? ArrayRef{.data = data} : ArrayOf(array);
    running.emplace(engine, job);
    begin = at;
    at += size;
  } while (at < bytes);
  RETURN_IF_ERROR(finish());
  return whole;
}

std::vector<Result> ResultsOf(const ReduceSpec& spec, const std::vector<absl::StatusOr<reduced::Value>>& values) {
  std::vector<Result> results;
  for (std::size_t i = 0; i < values.size(); ++i) {
    Result& result = results.emplace_back(Result{.op = std::string(RowOf(spec.ops[i]).name)});
    if (values[i].ok()) {
      result.value = Value{.dtype = std::string(RowOf(values[i]->dtype).name), .value = values[i]->value};
    } else {
      result.value = values[i].status();
    }
  }
  return results;
}

// Adds the errors of ops to their results. The first of them, if no op has results.
absl::Status AddErrors(const std::vector<absl::Status>& errors, ArrayReply* reply) {
  bool some = errors.empty();
  for (std::size_t i = 0; i < errors.size(); ++i) {
    some = some || errors[i].ok();
    if (!errors[i].ok()) reply->results[i] = {.op = reply->results[i].op, .error = errors[i]};
  }
  return some ? absl::OkStatus() : errors.front();
}

std::string Encoded(const ReduceSpec& spec, const reduced::State& state) {
  v1::State encoded;
  ToProto(spec, state, &encoded);
  return encoded.SerializeAsString();
}

// Before anything is made of them: whether the states of so many outputs fit in a message.
absl::Status CheckStates(const ReduceSpec& spec, std::int64_t outputs) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  const std::int64_t least = LeastStateBytes(spec);
  if (outputs <= kMost / least) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("return_state: got states of ", outputs, " outputs, of ", least,
                                                   " bytes or more each; allowed: ", kMost, " bytes"));
}

// The state of arrays of results, which the reply has without it.
absl::Status AddState(const ReduceSpec& spec, std::int64_t positions, const std::vector<std::int64_t>& shape,
                      const std::vector<reduced::State>& outputs, ArrayReply* reply) {
  v1::ArraysState state;
  ToProto(spec, positions, outputs, &state);
  state.mutable_shape()->Add(shape.begin(), shape.end());
  if (const HostArray& found = reply->keys.array; !found.dtype.empty()) {
    v1::ArrayResult& keys = *state.mutable_keys();
    RETURN_IF_ERROR(ToProto(found.View(), keys.mutable_array()));
    keys.set_data(found.data);
  }
  constexpr auto kMost = static_cast<std::size_t>(std::numeric_limits<int>::max());  // of a message
  if (state.ByteSizeLong() > kMost) {
    return absl::ResourceExhaustedError(absl::StrCat("return_state: got states of ", outputs.size(), " outputs, of ",
                                                     state.ByteSizeLong(), " bytes; allowed: ", kMost));
  }
  reply->state = state.SerializeAsString();
  return absl::OkStatus();
}

}  // namespace

// The engine's answer, and what it answers.
struct LocalEngine::Reduced {
  ReduceSpec spec;
  reduced::Answer result;
};

LocalEngine::LocalEngine() : engine_(MakeCpuEngine({})) {}

absl::StatusOr<LocalEngine::Reduced> LocalEngine::Run(const ArrayView& array, const std::vector<std::string>& ops,
                                                      const ReduceOptions& options) const {
  v1::ReduceRequest request;
  const absl::Duration timeout = options.timeout.value_or(absl::InfiniteDuration());
  absl::Status status = CheckTimeout(timeout);
  status.Update(ToProto(array, request.mutable_array()));
  status.Update(ToProto(ops, options, &request));
  status.Update(CheckElements(array, /*may_have_reader=*/true));
  if (!status.ok()) return status;
  ASSIGN_OR_RETURN(Question question, QuestionOf(request, array, {}));
  ASSIGN_OR_RETURN(reduced::Answer answer, ReduceAll(*engine_, question.spec, array, timeout, options));
  return Reduced{std::move(question.spec), std::move(answer)};
}

absl::StatusOr<Reply> LocalEngine::Reduce(const ArrayView& array, const std::vector<std::string>& ops,
                                          const ReduceOptions& options) const {
  const Stopwatch since_call;
  if (std::any_of(ops.begin(), ops.end(), [](const std::string& op) { return IsOfDistribution(op); })) {
    return ReduceWhole(array, ops, options);
  }
  ASSIGN_OR_RETURN(const Reduced ran, Run(array, ops, options));
  const auto& [spec, result] = ran;
  std::vector<Result> results;
  if (options.results) {
    ASSIGN_OR_RETURN(const std::vector<absl::StatusOr<reduced::Value>> values,
                     FinalizeEach(spec, result.state, /*op_errors=*/true));
    results = ResultsOf(spec, values);
  }
  Reply reply{.via = "local",
              .results = std::move(results),
              .count = spec.count,
              .execution = {.engine = "cpu",
                            .device = result.ran.device,
                            .pipeline = result.ran.pipeline,
                            .precision = result.state.exact != nullptr ? "exact" : "f64",
                            .reason = "local: has no other"},
              .timing = {.queue_us = result.timing.queue_us,
                         .scratch_copy_us = result.timing.scratch_copy_us,
                         .kernel_us = result.timing.kernel_us,
                         .bytes = spec.count * RowOf(spec.dtype).bytes}};
  if (reply.timing.bytes > 0 && reply.timing.kernel_us.value_or(0) > 0) {
    reply.timing.kernel_gb_per_s = static_cast<double>(reply.timing.bytes) / (*reply.timing.kernel_us * 1e3);
  }
  if (options.return_state) reply.state = Encoded(spec, result.state);
  reply.timing.total_us = since_call.micros();
  return reply;
}

ServerInfo LocalEngine::Info() const {
  ServerInfo info{
      .version = absl::StrCat(REDUCED_VERSION_MAJOR, ".", REDUCED_VERSION_MINOR, ".", REDUCED_VERSION_PATCH),
      .max_elements = StateLimits().max_elements};
  const reduced::DeviceInfo device = engine_->info();
  const Calibration calibration = engine_->calibration();
  info.devices.push_back({.name = device.name,
                          .engine = "cpu",
                          .model = device.model,
                          .memory_bytes = device.memory_bytes,
                          .parallel_units = device.parallel_units,
                          .details = device.details,
                          .lanes = device.lanes,
                          .lanes_busy = device.lanes_busy,
                          .queue_limit = device.queue_limit,
                          .queue_length = device.queue_length,
                          .fixed_us = calibration.fixed_us,
                          .host_gb_per_s = calibration.host_gb_per_s});
  for (const DTypeRow& row : kDTypes) info.dtypes.emplace_back(row.name);
  for (const OpRow& row : kOps) {
    OpInfo& op = info.ops.emplace_back(OpInfo{
        .name = std::string(row.name), .summary = std::string(row.summary), .usage = std::string(OpUsage(row.op))});
    for (const DTypeRow& dtype : kDTypes) {
      if (Supports(row.op, dtype.dtype)) op.dtypes.emplace_back(dtype.name);
    }
  }
  for (const PipelineRow& row : Pipelines()) {
    if (row.engine != EngineKind::kCpu) continue;
    PipelineInfo& pipeline =
        info.pipelines.emplace_back(PipelineInfo{.name = std::string(row.name),
                                                 .engine = "cpu",
                                                 .summary = std::string(row.summary),
                                                 .origin = std::string(row.origin),
                                                 .default_of_engine = &row == &DefaultPipeline(row.engine),
                                                 .fused = !row.rung,
                                                 .fixed_order = row.fixed_order,
                                                 .exact = row.exact});
    for (const Op op : OpsOf(row)) pipeline.ops.emplace_back(RowOf(op).name);
    for (const DType dtype : DTypesOf(row)) pipeline.dtypes.emplace_back(RowOf(dtype).name);
    if (row.block_sizes) pipeline.block_sizes.assign(kBlockSizes.begin(), kBlockSizes.end());
  }
  return info;
}

absl::StatusOr<Reply> LocalEngine::ReduceWhole(const ArrayView& array, const std::vector<std::string>& ops,
                                               const ReduceOptions& options) const {
  ArrayView read = array;
  std::unique_ptr<char[]> elements;
  if (array.reader.read != nullptr && !array.reader.in_memory) {
    ASSIGN_OR_RETURN(const std::int64_t bytes, ArrayBytes(array.dtype, array.shape));
    // Memory that is not touched before elements arrive: a header may promise more of them than there are.
    elements.reset(new (std::nothrow) char[static_cast<std::size_t>(bytes)]);
    if (elements == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("array: got ", bytes, " bytes; allowed: what the memory of this process has room for"));
    }
    RETURN_IF_ERROR(array.reader.read(0, elements.get(), bytes));
    read = {elements.get(), array.dtype, array.shape, {}};
  }
  ASSIGN_OR_RETURN(ArrayReply arrays, ReduceArray(read, ops, {.whole = true}, options));
  Reply reply{.via = std::move(arrays.via),
              .count = arrays.count,
              .execution = std::move(arrays.execution),
              .timing = arrays.timing,
              .state = std::move(arrays.state)};
  for (ResultArray& result : arrays.results) AddAnswer("", std::move(result), &reply);
  return reply;
}

absl::StatusOr<ArrayReply> LocalEngine::ReduceArray(const ArrayView& array, const std::vector<std::string>& ops,
                                                    const PartitionOptions& partition,
                                                    const ReduceOptions& options) const {
  const Stopwatch since_call;
  const absl::Duration timeout = options.timeout.value_or(absl::InfiniteDuration());
  absl::Status status = CheckTimeout(timeout);
  if (partition.keep.has_value()) {
    status.Update(absl::InvalidArgumentError("keep: got it at local:; allowed: at a server"));
  }
  if (partition.write_to.has_value()) {
    status.Update(absl::InvalidArgumentError("write_to: got it at local:; allowed: at a server"));
  }
  v1::ReduceRequest request;
  Sides sides;
  status.Update(ToProto(array, request.mutable_array()));
  status.Update(ToProto(ops, options, &request));
  status.Update(CheckElements(array, /*may_have_reader=*/array.reader.in_memory));
  if (status.ok()) {
    status = ToProto(partition, &request, [&](const ArrayView& side, v1::SideArray* message) {
      sides.emplace_back(message, &side);
      return absl::OkStatus();
    });
  }
  if (!status.ok()) return status;
  ASSIGN_OR_RETURN(Question question, QuestionOf(request, array, sides));
  const ReduceSpec& spec = question.spec;
  const std::int64_t positions = question.partition->positions();

  ArrayReply reply{.via = "local", .count = spec.count};
  std::vector<std::int64_t> shape = std::move(question.shape);
  std::vector<reduced::State> states;
  std::vector<absl::Status> errors;  // of ops
  const auto place = [&, grouped = question.partition->grouped(),
                      key_dtype = static_cast<DType>(request.keys().keys().array().dtype())](
                         std::int64_t outputs, std::int64_t groups,
                         const std::byte* keys) -> absl::StatusOr<std::vector<std::byte*>> {
    if (grouped) shape.insert(shape.begin(), groups);
    if (keys != nullptr) {
      const DTypeRow& dtype = RowOf(key_dtype);
      reply.keys.array = {.dtype = std::string(dtype.name), .shape = {groups}};
      reply.keys.array.data.assign(reinterpret_cast<const char*>(keys), static_cast<std::size_t>(groups * dtype.bytes));
    }
    if (options.return_state) {
      RETURN_IF_ERROR(CheckStates(spec, outputs));
    }
    ReduceSpec answered = spec;
    if (!options.results) answered.ops.clear();
    return PlaceIn(answered, ops, ArraysField(request), outputs, shape, &reply);
  };
  const auto cancelled = std::make_shared<std::atomic<bool>>(false);
  InterruptClock clock(options.interrupted);
  Running running(*engine_, {.spec = spec,
                             .array = ArrayOf(array),
                             .deadline = absl::Now() + timeout,
                             .cancelled = cancelled,
                             .partition = std::move(question.partition),
                             .y = std::move(question.y),
                             .weights = std::move(question.weights),
                             .place = place,
                             .states = options.return_state ? &states : nullptr,
                             .errors = &errors});
  const absl::StatusOr<reduced::Answer> answer = running.Wait(clock, *cancelled);
  if (!answer.ok()) return clock.interrupted() ? InterruptedError() : answer.status();
  status = AddErrors(errors, &reply);
  if (!status.ok()) return status;
  reply.execution = {.engine = "cpu",
                     .device = answer->ran.device,
                     .pipeline = answer->ran.pipeline,
                     .precision = WantsExactSums(spec) ? "exact" : "f64",
                     .reason = "local: has no other"};
  reply.timing = {.queue_us = answer->timing.queue_us,
                  .kernel_us = answer->timing.kernel_us,
                  .bytes = spec.count * RowOf(spec.dtype).bytes};
  if (options.return_state) {
    status = AddState(spec, positions, shape, states, &reply);
    if (!status.ok()) return status;
  }
  reply.timing.total_us = since_call.micros();
  return reply;
}

}  // namespace reduced::client
