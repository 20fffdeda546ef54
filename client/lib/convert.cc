#include "client/lib/convert.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "client/lib/names.h"

namespace reduced::client {
namespace {

// Sets *number to the value called `name`.
template <class Enum>
absl::Status Parse(absl::string_view what, absl::string_view name, Enum* value) {
  const absl::StatusOr<int> number = NumberOf(google::protobuf::GetEnumDescriptor<Enum>(), what, name);
  if (number.ok()) *value = static_cast<Enum>(*number);
  return number.status();
}

template <class Enums>
std::vector<std::string> NamesOfAll(const Enums& values, const google::protobuf::EnumDescriptor* type) {
  std::vector<std::string> names;
  for (const int value : values) names.push_back(NameOf(type, value));
  return names;
}

Value FromProto(const v1::Value& from) {
  Value to{.dtype = NameOf(from.dtype())};
  switch (from.value_case()) {
    case v1::Value::kF:
      to.value = from.f();
      break;
    case v1::Value::kI:
      to.value = from.i();
      break;
    case v1::Value::kU:
      to.value = from.u();
      break;
    case v1::Value::kB:
      to.value = from.b();
      break;
    case v1::Value::VALUE_NOT_SET:
      break;
  }
  return to;
}

std::vector<Result> FromProto(const google::protobuf::RepeatedPtrField<v1::Result>& from) {
  std::vector<Result> to;
  for (const v1::Result& result : from) to.push_back({.op = NameOf(result.op()), .value = FromProto(result.value())});
  return to;
}

DeviceInfo FromProto(const v1::DeviceInfo& from) {
  return {.name = from.name(),
          .engine = NameOf(from.engine()),
          .model = from.model(),
          .memory_bytes = from.memory_bytes(),
          .parallel_units = from.parallel_units(),
          .details = from.details(),
          .lanes = from.lanes(),
          .lanes_busy = from.lanes_busy(),
          .queue_limit = from.queue_limit(),
          .queue_length = from.queue_length(),
          .fixed_us = from.fixed_us(),
          .host_gb_per_s = from.host_gb_per_s(),
          .array_bytes = from.array_bytes(),
          .array_bytes_limit = from.array_bytes_limit()};
}

}  // namespace

absl::Status ToProto(const ArrayView& array, v1::ArraySpec* spec) {
  const absl::StatusOr<std::int64_t> bytes = ArrayBytes(array.dtype, array.shape);
  if (!bytes.ok()) return bytes.status();
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;
  const absl::Status status = Parse("dtype", array.dtype, &dtype);
  if (!status.ok()) return status;
  spec->set_dtype(dtype);
  spec->mutable_shape()->Assign(array.shape.begin(), array.shape.end());
  return absl::OkStatus();
}

absl::Status ToProto(const RemoteArray& array, v1::ReduceRequest* request) {
  if (!array.id().empty()) {
    request->set_array_id(array.id());
    return absl::OkStatus();
  }
  request->mutable_region()->set_token(array.token());
  request->mutable_region()->set_offset(array.offset());
  return ToProto(array.elements(), request->mutable_array());
}

absl::Status ToProto(const ArrayView& array, const PutOptions& options, v1::PutArrayHeader* header) {
  const absl::Status status = ToProto(array, header->mutable_array());
  if (!status.ok()) return status;
  if (options.ttl < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("ttl ", absl::FormatDuration(options.ttl), " is not allowed; it can't be negative"));
  }
  header->set_device(options.device);
  header->set_owner(options.owner);
  header->set_ttl_ms(absl::ToInt64Milliseconds(absl::Ceil(options.ttl, absl::Milliseconds(1))));
  return absl::OkStatus();
}

absl::Status ToProto(const std::vector<std::string>& ops, const ReduceOptions& options, v1::ReduceRequest* request) {
  if (ops.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("no op; allowed: ", absl::StrJoin(OpNames(), ", ")));
  }

  v1::Engine engine = v1::ENGINE_AUTO;
  v1::Precision precision = v1::PRECISION_DEFAULT;
  v1::NanPolicy nan_policy = v1::NAN_POLICY_DEFAULT;
  v1::OverflowPolicy overflow_policy = v1::OVERFLOW_POLICY_DEFAULT;
  absl::Status status = Parse("engine", options.engine, &engine);
  if (!options.precision.empty()) status.Update(Parse("precision", options.precision, &precision));
  status.Update(Parse("NaN policy", options.nan_policy, &nan_policy));
  status.Update(Parse("overflow policy", options.overflow_policy, &overflow_policy));
  for (const std::string& name : ops) {
    v1::Op op = v1::OP_UNSPECIFIED;
    status.Update(Parse("op", name, &op));
    request->add_ops(op);
  }
  if (!status.ok()) return status;

  request->mutable_options()->set_engine(engine);
  request->mutable_options()->set_device(options.device);
  request->mutable_options()->set_pipeline(options.pipeline);
  request->mutable_options()->set_precision(precision);
  request->mutable_options()->set_nan_policy(nan_policy);
  request->mutable_options()->set_overflow_policy(overflow_policy);
  request->mutable_options()->set_ddof(options.ddof);
  request->mutable_options()->set_block_size(options.block_size);
  request->set_return_state(options.return_state);
  return absl::OkStatus();
}

absl::Status ToProto(const std::vector<std::string>& states, const MergeOptions& options, v1::MergeRequest* request) {
  if (states.empty()) return absl::InvalidArgumentError("no state, at least 1 is needed");
  for (std::size_t i = 0; i < states.size(); ++i) {
    v1::State* const state = request->add_states();
    if (state->ParseFromString(states[i]) && state->version() != 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("states[", i, "]: its ", states[i].size(), " bytes aren't a state"));
  }
  request->set_return_state(options.return_state);
  return absl::OkStatus();
}

absl::Status ToProto(const LadderOptions& options, v1::LadderRequest* request) {
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;
  v1::Op op = v1::OP_UNSPECIFIED;
  absl::Status status = Parse("dtype", options.dtype, &dtype);
  status.Update(Parse("op", options.op, &op));
  if (!status.ok()) return status;

  request->set_dtype(dtype);
  request->set_count(options.count);
  request->set_op(op);
  if (options.fill.has_value()) request->set_fill(*options.fill);
  request->set_seed(options.seed);
  request->mutable_pipelines()->Assign(options.pipelines.begin(), options.pipelines.end());
  request->mutable_block_sizes()->Assign(options.block_sizes.begin(), options.block_sizes.end());
  request->set_repeats(options.repeats);
  return absl::OkStatus();
}

Reply FromProto(const v1::ReduceResponse& from) {
  Reply to{.count = from.count(),
           .execution = {.engine = NameOf(from.execution().engine()),
                         .device = from.execution().device(),
                         .pipeline = from.execution().pipeline(),
                         .precision = NameOf(from.execution().precision()),
                         .reason = from.execution().reason()}};
  to.results = FromProto(from.results());
  if (from.has_state()) to.state = from.state().SerializeAsString();
  const v1::Timing& timing = from.timing();
  if (timing.has_receive_us()) to.timing.receive_us = timing.receive_us();
  if (timing.has_queue_us()) to.timing.queue_us = timing.queue_us();
  if (timing.has_host_copy_us()) to.timing.host_copy_us = timing.host_copy_us();
  if (timing.has_host_to_device_us()) to.timing.host_to_device_us = timing.host_to_device_us();
  if (timing.has_scratch_copy_us()) to.timing.scratch_copy_us = timing.scratch_copy_us();
  if (timing.has_kernel_us()) to.timing.kernel_us = timing.kernel_us();
  if (timing.has_device_to_host_us()) to.timing.device_to_host_us = timing.device_to_host_us();
  if (timing.has_total_us()) to.timing.total_us = timing.total_us();
  if (timing.has_kernel_gb_per_s()) to.timing.kernel_gb_per_s = timing.kernel_gb_per_s();
  to.timing.bytes = timing.bytes();
  return to;
}

MergeReply FromProto(const v1::MergeResponse& from) {
  MergeReply to{.results = FromProto(from.results()), .count = from.count()};
  if (from.has_state()) to.state = from.state().SerializeAsString();
  return to;
}

ArrayInfo FromProto(const v1::ArrayInfo& from) {
  return {.id = from.id(),
          .dtype = NameOf(from.array().dtype()),
          .shape = {from.array().shape().begin(), from.array().shape().end()},
          .bytes = from.bytes(),
          .device = from.device(),
          .owner = from.owner(),
          .age = absl::Milliseconds(from.age_ms()),
          .expires_in = absl::Milliseconds(from.expires_in_ms()),
          .users = from.users()};
}

LadderStart FromProto(const v1::LadderStart& from) {
  return {.bytes = from.bytes(), .steps = from.steps(), .expected = FromProto(from.expected())};
}

LadderStep FromProto(const v1::LadderStep& from) {
  LadderStep to{.pipeline = from.pipeline(),
                .engine = NameOf(from.engine()),
                .device = from.device(),
                .kernel_us = {from.kernel_us().begin(), from.kernel_us().end()},
                .value = FromProto(from.value()),
                .correct = from.correct(),
                .same_bits = from.same_bits()};
  if (from.has_scratch_copy_us()) to.scratch_copy_us = from.scratch_copy_us();
  if (from.has_read_gb_per_s()) to.read_gb_per_s = from.read_gb_per_s();
  if (from.has_occupancy()) {
    to.occupancy = {.block_size = from.occupancy().block_size(),
                    .registers = from.occupancy().registers(),
                    .shared_bytes = from.occupancy().shared_bytes(),
                    .blocks_per_multiprocessor = from.occupancy().blocks_per_multiprocessor(),
                    .max_threads_per_multiprocessor = from.occupancy().max_threads_per_multiprocessor()};
  }
  return to;
}

ServerInfo FromProto(const v1::GetServerInfoResponse& from) {
  ServerInfo to{.version = from.version(),
                .uptime = absl::Milliseconds(from.uptime_ms()),
                .max_message_bytes = from.limits().max_message_bytes(),
                .max_elements = from.limits().max_elements(),
                .max_ops = from.limits().max_ops(),
                .max_ladder_bytes = from.limits().max_ladder_bytes(),
                .max_streams = from.limits().max_streams(),
                .max_sessions = from.limits().max_sessions(),
                .max_session_requests = from.limits().max_session_requests(),
                .default_array_ttl = absl::Milliseconds(from.limits().default_array_ttl_ms()),
                .max_array_ttl = absl::Milliseconds(from.limits().max_array_ttl_ms()),
                .region_socket = from.region_socket(),
                .usage = {.streams = from.usage().streams(),
                          .sessions = from.usage().sessions(),
                          .arrays = from.usage().arrays(),
                          .regions = from.usage().regions()},
                .no_cuda_reason = from.no_cuda_reason()};
  for (const v1::DeviceInfo& device : from.devices()) to.devices.push_back(FromProto(device));
  for (const v1::LeftOutDevice& device : from.left_out()) to.left_out.push_back({device.name(), device.reason()});
  for (const v1::OpInfo& op : from.ops()) {
    to.ops.push_back({op.name(), op.summary(), NamesOfAll(op.dtypes(), v1::DType_descriptor())});
  }
  for (const v1::Flag& flag : from.flags()) to.flags.push_back({flag.name(), flag.value(), flag.source()});
  for (const v1::DTypeInfo& dtype : from.dtypes()) to.dtypes.push_back(dtype.name());
  for (const v1::PipelineInfo& pipeline : from.pipelines()) {
    to.pipelines.push_back({.name = pipeline.name(),
                            .engine = NameOf(pipeline.engine()),
                            .summary = pipeline.summary(),
                            .origin = pipeline.origin(),
                            .default_of_engine = pipeline.default_of_engine(),
                            .ops = NamesOfAll(pipeline.ops(), v1::Op_descriptor()),
                            .dtypes = NamesOfAll(pipeline.dtypes(), v1::DType_descriptor()),
                            .fused = pipeline.fused(),
                            .fixed_order = pipeline.fixed_order(),
                            .exact = pipeline.exact(),
                            .block_sizes = {pipeline.block_sizes().begin(), pipeline.block_sizes().end()}});
  }
  return to;
}

}  // namespace reduced::client
