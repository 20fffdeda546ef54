#include "client/local/local.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>
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
#include "proto/codec/arrays_state.h"
#include "proto/codec/state_codec.h"
#include "reduced/v1/reduced.pb.h"
#include "reduced/version.h"

namespace reduced::client {
namespace {

// The question, whose names have been understood: the numbers of the proto's enums are those of the kernels'.
ReduceSpec SpecOf(const v1::ReduceRequest& request, std::int64_t count) {
  const v1::ReduceOptions& options = request.options();
  ReduceSpec spec;
  spec.dtype = static_cast<DType>(request.array().dtype());
  spec.count = count;
  for (const int op : request.ops()) spec.ops.push_back(static_cast<Op>(op));
  spec.engine = static_cast<EngineKind>(options.engine());
  spec.device = options.device();
  spec.pipeline = options.pipeline();
  spec.block_size = options.block_size();
  spec.ddof = options.ddof();
  spec.precision = options.precision() == v1::PRECISION_DEFAULT ? DefaultPrecision(options.pipeline())
                                                                : static_cast<Precision>(options.precision());
  if (options.nan_policy() != v1::NAN_POLICY_DEFAULT) spec.nan_policy = static_cast<NanPolicy>(options.nan_policy());
  if (options.overflow_policy() != v1::OVERFLOW_POLICY_DEFAULT) {
    spec.overflow_policy = static_cast<OverflowPolicy>(options.overflow_policy());
  }
  return spec;
}

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

bool HasGroups(const PartitionOptions& partition) {
  return partition.segments.has_value() || partition.keys.has_value() || partition.where.has_value();
}

// Which dimensions are reduced.
absl::StatusOr<std::vector<bool>> ReducedBy(const PartitionOptions& partition, std::size_t dimensions) {
  const bool grouped = partition.segments.has_value() || partition.keys.has_value();
  if (partition.segments.has_value() + partition.keys.has_value() + !partition.axis.empty() > 1) {
    return absl::InvalidArgumentError("partition: got several; allowed: one of axis, segments, keys");
  }
  if (!grouped && (!partition.axis.empty() || !HasGroups(partition))) {
    return ReducedDimensions(partition.axis, dimensions);
  }
  if (grouped && dimensions == 0) {
    return absl::InvalidArgumentError("array.shape: got a scalar; allowed: 1 dimension or more with segments and keys");
  }
  std::vector<bool> reduced(dimensions, !grouped);
  if (grouped) reduced.front() = true;
  return reduced;
}

// An array beside the one that is reduced; its shape.
absl::StatusOr<std::vector<std::int64_t>> Side(const char* field, const SideArray& side, reduced::SideArray* into) {
  const auto within = [field](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(field, ": ", std::string(status.message())));
  };
  const auto* const view = std::get_if<ArrayView>(&side);
  if (view == nullptr) return within(absl::InvalidArgumentError("got an array of a server; allowed: in memory"));
  v1::ArraySpec spec;
  absl::Status status = ToProto(*view, &spec);
  status.Update(CheckElements(*view));
  if (!status.ok()) return within(status);
  *into = {
      static_cast<DType>(spec.dtype()), *ArrayBytes(view->dtype, view->shape) / *DTypeBytes(view->dtype), {view->data}};
  return view->shape;
}

// But for the layout.
absl::StatusOr<Groups> GroupsOf(const PartitionOptions& partition, const std::vector<std::int64_t>& shape) {
  Groups groups{.rows = shape.empty() ? 1 : shape.front()};
  absl::StatusOr<std::vector<std::int64_t>> side;
  absl::Status status;
  if (partition.segments.has_value()) {
    reduced::Segments& to = groups.segments.emplace();
    to.lengths = partition.segments->lengths;
    side = Side("segments", partition.segments->offsets, &to.bounds);
    status = side.ok() ? Validate(to, *side) : side.status();
  }
  if (status.ok() && partition.keys.has_value()) {
    reduced::Keys& to = groups.keys.emplace();
    to.groups = partition.keys->groups;
    to.drop = partition.keys->drop_outside;
    side = Side("keys", partition.keys->keys, &to.keys);
    status = side.ok() ? Validate(to, *side, shape) : side.status();
  }
  if (status.ok() && partition.where.has_value()) {
    reduced::Mask& to = groups.mask.emplace();
    to.bits = partition.where->bits;
    to.first_bit = partition.where->first_bit;
    side = Side("where", partition.where->mask, &to.array);
    status = side.ok() ? Validate(to, *side, shape) : side.status();
  }
  if (!status.ok()) return status;
  return groups;
}

// Adds memory for results of each op to the reply.
absl::StatusOr<std::vector<std::byte*>> PlaceIn(const ReduceSpec& spec, std::int64_t outputs,
                                                const std::vector<std::int64_t>& shape, ArrayReply* reply) {
  for (const Op op : spec.ops) {
    const DTypeRow& dtype = RowOf(ResultDType(op, spec.dtype));
    std::int64_t size = 0;
    if (__builtin_mul_overflow(outputs, std::int64_t{dtype.bytes}, &size) || size > kMaxLocalResultBytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("axes: got ", outputs, " outputs; allowed: results of ", kMaxLocalResultBytes, " bytes"));
    }
    ResultArray result{.op = std::string(RowOf(op).name)};
    result.array = {.dtype = std::string(dtype.name), .shape = shape};
    FillWithZeros(static_cast<std::size_t>(size), &result.array.data);
    reply->results.push_back(std::move(result));
  }
  std::vector<std::byte*> answers;
  for (ResultArray& result : reply->results) answers.push_back(reinterpret_cast<std::byte*>(result.array.data.data()));
  return answers;
}

// The bytes that are read of an array with a reader before they are reduced, while those before them are.
constexpr std::int64_t kPieceBytes = std::int64_t{8} << 20;

// One reduction of an engine, which this waits for.
class Running {
 public:
  Running(Engine& engine, Job job) {
    engine.Reduce(std::move(job), [this](absl::StatusOr<EngineResult> answer) {
      result_ = std::move(answer);
      done_.Notify();
    });
  }
  ~Running() { done_.WaitForNotification(); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  absl::StatusOr<EngineResult> Wait(InterruptClock& clock, std::atomic<bool>& cancelled) {
    while (!done_.WaitForNotificationWithDeadline(clock.due())) {
      if (clock.Ask()) cancelled.store(true, std::memory_order_relaxed);
    }
    return std::move(result_);
  }

 private:
  absl::StatusOr<EngineResult> result_ = absl::UnknownError("");
  absl::Notification done_;
};

// Reduces `bytes` bytes: from memory at once, from a reader piece by piece, each while the next one is read.
absl::StatusOr<EngineResult> ReduceAll(Engine& engine, const ReduceSpec& spec, const ArrayView& array,
                                       std::int64_t bytes, absl::Duration timeout, const ReduceOptions& options) {
  const bool reads = array.reader.read != nullptr;
  const std::int64_t width = RowOf(spec.dtype).bytes;
  const auto cancelled = std::make_shared<std::atomic<bool>>(false);
  Job job{.spec = spec, .deadline = absl::Now() + timeout, .cancelled = cancelled};
  InterruptClock clock(options.interrupted);
  EngineResult whole;
  std::vector<char> buffers[2];  // must outlive what runs
  std::optional<Running> running;
  std::int64_t begin = 0;  // of what runs, in bytes
  // Adds the result of what runs.
  const auto finish = [&]() -> absl::Status {
    if (!running.has_value()) return absl::OkStatus();
    absl::StatusOr<EngineResult> piece = running->Wait(clock, *cancelled);
    running.reset();
    if (!piece.ok()) return clock.interrupted() ? InterruptedError() : piece.status();
    Shift(begin / width, &piece->state);
    Combine(*piece, &whole);
    return absl::OkStatus();
  };
  std::int64_t at = 0;
  do {
    const std::int64_t size = reads ? std::min(kPieceBytes, bytes - at) : bytes;
    const void* data = array.data;
    if (reads && size > 0) {
      std::swap(buffers[0], buffers[1]);
      buffers[0].resize(static_cast<std::size_t>(size));
      if (absl::Status status = array.reader.read(at, buffers[0].data(), size); !status.ok()) return status;
      if (options.on_progress != nullptr) options.on_progress(at + size, bytes);
      data = buffers[0].data();
    }
    if (absl::Status status = finish(); !status.ok()) return status;
    if (clock.Ask()) return InterruptedError();
    job.spec.count = size / width;
    job.array = {data};
    running.emplace(engine, job);
    begin = at;
    at += size;
  } while (at < bytes);
  if (absl::Status status = finish(); !status.ok()) return status;
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
  v1::ArraysState none;
  ToProto(spec, 0, {}, &none);
  const auto least = static_cast<std::int64_t>(none.question().ByteSizeLong());
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
    if (const absl::Status status = ToProto(found.View(), keys.mutable_array()); !status.ok()) return status;
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
  EngineResult result;
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
  const std::int64_t bytes = *ArrayBytes(array.dtype, array.shape);
  ReduceSpec spec = SpecOf(request, bytes / *DTypeBytes(array.dtype));
  status = ValidateSpec(spec, /*op_errors=*/true);
  if (status.ok()) status = CheckHere(spec);
  if (!status.ok()) return status;

  absl::StatusOr<EngineResult> result = ReduceAll(*engine_, spec, array, bytes, timeout, options);
  if (!result.ok()) return result.status();
  return Reduced{std::move(spec), *std::move(result)};
}

absl::StatusOr<Reply> LocalEngine::Reduce(const ArrayView& array, const std::vector<std::string>& ops,
                                          const ReduceOptions& options) const {
  const Stopwatch since_call;
  const absl::StatusOr<Reduced> ran = Run(array, ops, options);
  if (!ran.ok()) return ran.status();
  const auto& [spec, result] = *ran;
  std::vector<Result> results;
  if (options.results) {
    const absl::StatusOr<std::vector<absl::StatusOr<reduced::Value>>> values =
        FinalizeEach(spec, result.state, /*op_errors=*/true);
    if (!values.ok()) return values.status();
    results = ResultsOf(spec, *values);
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
    OpInfo& op = info.ops.emplace_back(OpInfo{.name = std::string(row.name), .summary = std::string(row.summary)});
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

absl::StatusOr<ArrayReply> LocalEngine::ReduceArray(const ArrayView& array, const std::vector<std::string>& ops,
                                                    const PartitionOptions& partition,
                                                    const ReduceOptions& options) const {
  const Stopwatch since_call;
  v1::ReduceRequest request;
  v1::EmptyPolicy empty = v1::EMPTY_POLICY_DEFAULT;
  const absl::Duration timeout = options.timeout.value_or(absl::InfiniteDuration());
  absl::Status status = CheckTimeout(timeout);
  status.Update(ToProto(array, request.mutable_array()));
  status.Update(ToProto(ops, options, &request));
  status.Update(Parse("empty", partition.empty, &empty));
  status.Update(CheckElements(array));
  if (partition.keep.has_value()) {
    status.Update(absl::InvalidArgumentError("keep: got it at local:; allowed: at a server"));
  }
  if (options.return_state && partition.segments.has_value()) {
    status.Update(absl::InvalidArgumentError(
        "return_state: got true with segments; allowed: false, or true with axes, keys or where"));
  }
  if (!options.results && !options.return_state) {
    status.Update(
        absl::InvalidArgumentError("results: got false without return_state; allowed: true, or false with it"));
  }
  if (partition.write_to.has_value()) {
    status.Update(absl::InvalidArgumentError("write_to: got it at local:; allowed: at a server"));
  }
  if (!status.ok()) return status;
  const std::int64_t bytes = *ArrayBytes(array.dtype, array.shape);
  ReduceSpec spec = SpecOf(request, bytes / *DTypeBytes(array.dtype));
  spec.empty_policy = static_cast<EmptyPolicy>(empty);
  const absl::StatusOr<std::vector<bool>> reduced = ReducedBy(partition, array.shape.size());
  if (!reduced.ok()) return reduced.status();
  const Layout layout = LayoutOf(array.shape, *reduced);
  const bool groups = HasGroups(partition);
  Layout one = layout;
  if (groups) one.elements = 1;  // whether an output has none is found out later
  status = ValidateSlices(spec, one, /*op_errors=*/true);
  if (status.ok()) status = CheckHere(spec);
  if (!status.ok()) return status;

  ArrayReply reply{.via = "local", .count = spec.count};
  const auto cancelled = std::make_shared<std::atomic<bool>>(false);
  Job job{.spec = spec, .array = {array.data}, .deadline = absl::Now() + timeout, .cancelled = cancelled};
  absl::StatusOr<SlicesResult> result = absl::UnknownError("");
  absl::Notification done;
  auto ended = [&](absl::StatusOr<SlicesResult> answer) {
    result = std::move(answer);
    done.Notify();
  };
  ReduceSpec answered = spec;
  if (!options.results) answered.ops.clear();
  std::vector<reduced::State> states;
  std::vector<reduced::State>* const states_wanted = options.return_state ? &states : nullptr;
  std::vector<absl::Status> errors;          // of ops
  std::int64_t positions = layout.elements;  // as in ArraysState
  std::vector<std::int64_t> shape = ResultShape(array.shape, *reduced, partition.keepdims);
  if (groups) {
    absl::StatusOr<Groups> parsed = GroupsOf(partition, array.shape);
    if (!parsed.ok()) return parsed.status();
    parsed->layout = layout;
    if (parsed->keys.has_value()) positions = parsed->rows;
    const DType key_dtype = parsed->keys.has_value() ? parsed->keys->keys.dtype : DType::kI64;
    auto place = [&, key_dtype](std::int64_t outputs, std::int64_t number, const std::byte* keys) {
      if (partition.segments.has_value() || partition.keys.has_value()) shape.insert(shape.begin(), number);
      if (keys != nullptr) {
        const DTypeRow& dtype = RowOf(key_dtype);
        reply.keys.array = {.dtype = std::string(dtype.name), .shape = {number}};
        reply.keys.array.data.assign(reinterpret_cast<const char*>(keys),
                                     static_cast<std::size_t>(number * dtype.bytes));
      }
      if (options.return_state) {
        if (absl::Status fits = CheckStates(spec, outputs); !fits.ok()) {
          return absl::StatusOr<std::vector<std::byte*>>(std::move(fits));
        }
      }
      return PlaceIn(answered, outputs, shape, &reply);
    };
    engine_->ReduceGroups({std::move(job), *std::move(parsed), place, states_wanted, &errors}, ended);
  } else {
    if (options.return_state) status = CheckStates(spec, layout.outputs);
    if (!status.ok()) return status;
    absl::StatusOr<std::vector<std::byte*>> answers = PlaceIn(answered, layout.outputs, shape, &reply);
    if (!answers.ok()) return answers.status();
    engine_->ReduceSlices({std::move(job), layout, *std::move(answers), states_wanted, &errors}, ended);
  }
  InterruptClock clock(options.interrupted);
  while (!done.WaitForNotificationWithDeadline(clock.due())) {
    if (clock.Ask()) cancelled->store(true, std::memory_order_relaxed);
  }
  if (!result.ok()) return clock.interrupted() ? InterruptedError() : result.status();
  status = AddErrors(errors, &reply);
  if (!status.ok()) return status;
  reply.execution = {.engine = "cpu",
                     .device = result->ran.device,
                     .pipeline = result->ran.pipeline,
                     .precision = WantsExactSums(spec) ? "exact" : "f64",
                     .reason = "local: has no other"};
  reply.timing = {.queue_us = result->timing.queue_us, .kernel_us = result->timing.kernel_us, .bytes = bytes};
  if (options.return_state) {
    status = AddState(spec, positions, shape, states, &reply);
    if (!status.ok()) return status;
  }
  reply.timing.total_us = since_call.micros();
  return reply;
}

}  // namespace reduced::client
