#include "client/lib/convert.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <new>
#include <optional>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "client/lib/names.h"
#include "kernels/system/status_macros.h"
#include "proto/codec/op_call.h"

namespace reduced::client {
namespace {

// The fields of the message that kTimingStages names. Every answer has some: reflection would take a tenth of the time
// that a request takes through a ring.
constexpr struct {
  bool (v1::Timing::*has)() const;
  double (v1::Timing::*get)() const;
  std::optional<double> Timing::*us;
} kTimingFields[] = {
    {&v1::Timing::has_receive_us, &v1::Timing::receive_us, &Timing::receive_us},
    {&v1::Timing::has_queue_us, &v1::Timing::queue_us, &Timing::queue_us},
    {&v1::Timing::has_host_copy_us, &v1::Timing::host_copy_us, &Timing::host_copy_us},
    {&v1::Timing::has_host_to_device_us, &v1::Timing::host_to_device_us, &Timing::host_to_device_us},
    {&v1::Timing::has_scratch_copy_us, &v1::Timing::scratch_copy_us, &Timing::scratch_copy_us},
    {&v1::Timing::has_kernel_us, &v1::Timing::kernel_us, &Timing::kernel_us},
    {&v1::Timing::has_device_to_host_us, &v1::Timing::device_to_host_us, &Timing::device_to_host_us},
    {&v1::Timing::has_total_us, &v1::Timing::total_us, &Timing::total_us},
};
static_assert(std::size(kTimingFields) == std::size(kTimingStages));

Timing FromProto(const v1::Timing& from) {
  Timing to{.bytes = from.bytes()};
  for (const auto& [has, get, us] : kTimingFields) {
    if ((from.*has)()) to.*us = (from.*get)();
  }
  if (from.has_kernel_gb_per_s()) to.kernel_gb_per_s = from.kernel_gb_per_s();
  return to;
}

}  // namespace

absl::Status ToProto(const ArrayView& array, v1::ArraySpec* spec) {
  ASSIGN_OR_RETURN(const std::int64_t bytes, ArrayBytes(array.dtype, array.shape));
  if (array.count.has_value()) {
    if (const std::int64_t elements = bytes / *DTypeBytes(array.dtype); elements != *array.count) {
      return absl::InvalidArgumentError(absl::StrCat("shape: got [", absl::StrJoin(array.shape, ", "), "], ", elements,
                                                     " elements; allowed: shapes of ", *array.count));
    }
  }
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;
  RETURN_IF_ERROR(Parse("dtype", array.dtype, &dtype));
  spec->set_dtype(dtype);
  spec->mutable_shape()->Assign(array.shape.begin(), array.shape.end());
  return absl::OkStatus();
}

absl::Status ToProto(const RemoteArray& array, v1::RegionPart* region) {
  region->set_token(array.token());
  const ElementLayout& layout = array.layout();
  const bool has_strides = layout.strides.has_value() && !layout.strides->empty();
  region->set_offset(has_strides || layout.big_endian ? -1 - array.offset() : array.offset());
  region->set_big_endian(layout.big_endian);
  if (!layout.strides.has_value()) return absl::OkStatus();
  const std::vector<std::int64_t>& strides = *layout.strides;
  const std::size_t dimensions = array.elements().shape.size();
  if (strides.size() != dimensions) {
    return absl::InvalidArgumentError(absl::StrCat("strides: got ", strides.size(), "; allowed: ", dimensions,
                                                   ", one for each dimension of the array"));
  }
  region->mutable_strides()->Assign(strides.begin(), strides.end());
  return absl::OkStatus();
}

absl::Status CheckElements(const ArrayView& array, bool may_have_reader) {
  if (array.reader.read != nullptr) {
    if (may_have_reader) return absl::OkStatus();
    return absl::InvalidArgumentError("reader: got one; allowed: in Client::Reduce and Client::Put");
  }
  const absl::StatusOr<std::int64_t> bytes = ArrayBytes(array.dtype, array.shape);
  if (array.data != nullptr || !bytes.ok() || *bytes == 0) return bytes.status();
  return absl::InvalidArgumentError(
      absl::StrCat("data: got null for an array of ", *bytes, " bytes; allowed: its elements"));
}

absl::Status ToProto(const std::vector<std::string>& ops, const ReduceOptions& options, v1::ReduceRequest* request) {
  if (ops.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("ops: got none; allowed: ", absl::StrJoin(OpNames(), ", ")));
  }
  if (!options.results && !options.return_state) {
    return absl::InvalidArgumentError("results: got false without return_state; allowed: true, or false with it");
  }

  v1::Engine engine = v1::ENGINE_AUTO;
  v1::Precision precision = v1::PRECISION_DEFAULT;
  v1::NanPolicy nan_policy = v1::NAN_POLICY_DEFAULT;
  v1::OverflowPolicy overflow_policy = v1::OVERFLOW_POLICY_DEFAULT;
  absl::Status status = Parse("engine", options.engine, &engine);
  if (!options.precision.empty()) status.Update(Parse("precision", options.precision, &precision));
  status.Update(Parse("nan_policy", options.nan_policy, &nan_policy));
  status.Update(Parse("overflow_policy", options.overflow_policy, &overflow_policy));
  // Ops with parameters are rare: others are the names of numbers.
  const bool called =
      std::any_of(ops.begin(), ops.end(), [](const std::string& op) { return op.find('(') != std::string::npos; });
  for (const std::string& name : ops) {
    v1::Op op = v1::OP_UNSPECIFIED;
    if (called) {
      absl::StatusOr<v1::OpCall> call = ParseOpText(name);
      status.Update(call.status());
      if (call.ok()) *request->add_calls() = *std::move(call);
    } else {
      status.Update(Parse("op", name, &op));
      request->add_ops(op);
    }
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
  request->set_omit_results(!options.results);
  request->set_op_errors(true);
  return absl::OkStatus();
}

std::vector<std::string> NamesFor(const v1::ReduceRequest& request, const std::vector<std::string>& ops) {
  return request.calls().empty() ? std::vector<std::string>() : ops;
}

absl::Status SetElements(const ArrayView& array, std::int64_t bytes, v1::ReduceRequest* request) {
  std::string& elements = *request->mutable_inline_data();
  try {
    if (array.reader.read == nullptr) {
      if (bytes > 0) elements.assign(static_cast<const char*>(array.data), static_cast<std::size_t>(bytes));
      return absl::OkStatus();
    }
    elements.resize(static_cast<std::size_t>(bytes));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        absl::StrCat("array: got ", bytes, " bytes; allowed: what the memory of this process has room for"));
  }
  return array.reader.read(0, elements.data(), bytes);
}

absl::Status CheckCalls(const v1::ReduceRequest& request) {
  const std::optional<DType> dtype = DTypeFromName(NameOf(request.array().dtype()));
  ASSIGN_OR_RETURN(std::vector<OpCall> calls, ParseCalls(request.calls(), dtype));
  for (int i = 0; i < request.ops_size(); ++i) {
    ASSIGN_OR_RETURN(const OpCall call, ParseCall(absl::StrCat("ops[", i, "]"), request.ops(i)));
    calls.push_back(call);
  }
  for (const OpCall& call : calls) {
    RETURN_IF_ERROR(dtype.has_value() ? Validate(call, *dtype) : absl::OkStatus());
  }
  return absl::OkStatus();
}

absl::Status ToProto(const PartitionOptions& partition, v1::ReduceRequest* request, SetSide set_side,
                     bool may_have_readers) {
  v1::EmptyPolicy empty = v1::EMPTY_POLICY_DEFAULT;
  absl::Status status = Parse("empty", partition.empty, &empty);
  if (!status.ok()) return status;
  request->set_empty(empty);
  const bool others = partition.segments.has_value() || partition.keys.has_value() || partition.where.has_value();
  if (partition.whole) {
    if (!partition.axis.empty() || partition.segments.has_value() || partition.keys.has_value()) {
      return absl::InvalidArgumentError("whole: got true beside axis, segments or keys; allowed: true without them");
    }
    // Ops of the distribution need no axes; nor does a mask, unless the dimensions are to be kept.
    if (const bool known = request->has_array(); known && (!others || partition.keepdims)) {
      request->mutable_axes()->set_keepdims(partition.keepdims);
      for (int i = 0; i < request->array().shape_size(); ++i) request->mutable_axes()->add_axis(i);
    } else if (partition.keepdims || (!others && !AsksForDistribution(*request))) {
      return absl::InvalidArgumentError(
          "whole: got true for a resident array; allowed: with an op of the distribution or a mask, without keepdims");
    }
  } else if (!partition.axis.empty() || !others) {
    request->mutable_axes()->mutable_axis()->Add(partition.axis.begin(), partition.axis.end());
    request->mutable_axes()->set_keepdims(partition.keepdims);
  }
  if (partition.keep.has_value()) {
    request->mutable_keep()->set_owner(partition.keep->owner);
    request->mutable_keep()->set_ttl_ms(
        absl::ToInt64Milliseconds(absl::Ceil(partition.keep->ttl, absl::Milliseconds(1))));
  }
  if (partition.write_to.has_value()) {
    request->mutable_write_to()->set_token(partition.write_to->token);
    request->mutable_write_to()->set_offset(partition.write_to->offset);
  }
  const auto set = [&](const char* field, const SideArray& side, v1::SideArray* to) {
    absl::Status wrong;
    if (const auto* const remote = std::get_if<RemoteArray>(&side)) {
      wrong = ToProto(*remote, to);
    } else {
      const ArrayView& view = std::get<ArrayView>(side);
      wrong = ToProto(view, to->mutable_array());
      wrong.Update(CheckElements(view, may_have_readers));
      if (wrong.ok()) wrong = set_side(view, to);
    }
    if (!wrong.ok()) status.Update({wrong.code(), absl::StrCat(field, ": ", std::string(wrong.message()))});
  };
  if (partition.segments.has_value()) {
    v1::Segments& to = *request->mutable_segments();
    set("segments", partition.segments->offsets,
        partition.segments->lengths ? to.mutable_lengths() : to.mutable_offsets());
  }
  if (status.ok() && partition.keys.has_value()) {
    v1::Keys& to = *request->mutable_keys();
    to.set_groups(partition.keys->groups);
    if (partition.keys->drop_outside) to.set_outside(v1::OUTSIDE_KEYS_DROP);
    set("keys", partition.keys->keys, to.mutable_keys());
  }
  if (status.ok() && partition.where.has_value()) {
    v1::Mask& to = *request->mutable_where();
    to.set_first_bit(partition.where->first_bit);
    set("where", partition.where->mask, partition.where->bits ? to.mutable_bits() : to.mutable_elements());
  }
  if (status.ok() && partition.y.has_value()) set("y", *partition.y, request->mutable_y());
  if (status.ok() && partition.weights.has_value()) set("weights", *partition.weights, request->mutable_weights());
  return status;
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

absl::Status FromProto(const v1::OpError& from) { return {static_cast<absl::StatusCode>(from.code()), from.message()}; }

HostArray FromProto(const v1::ArraySpec& from) {
  return {.dtype = NameOf(from.dtype()), .shape = {from.shape().begin(), from.shape().end()}};
}

ResultArray FromProto(v1::ArrayResult& from) {
  ResultArray to;
  if (from.op() != v1::OP_UNSPECIFIED) to.op = NameOf(from.op());
  if (from.has_error()) {
    to.error = FromProto(from.error());
    return to;
  }
  to.array = FromProto(from.array());
  to.id = from.kept().id();
  if (from.has_data()) to.array.data = std::move(*from.mutable_data());
  if (from.where_case() == v1::ArrayResult::kWrittenAt) to.written_at = from.written_at();
  return to;
}

std::vector<Result> FromProto(const google::protobuf::RepeatedPtrField<v1::Result>& from) {
  std::vector<Result> to;
  for (const v1::Result& result : from) {
    to.push_back({.op = NameOf(result.op())});
    if (result.has_error()) {
      to.back().value = FromProto(result.error());
    } else {
      to.back().value = FromProto(result.value());
    }
  }
  return to;
}

void AddAnswer(std::string name, ResultArray answer, Reply* to) {
  if (!name.empty()) answer.op = std::move(name);
  if (!answer.error.ok()) {
    to->results.push_back({std::move(answer.op), std::move(answer.error)});
  } else if (answer.array.shape.empty() && !answer.array.data.empty()) {  // not kept or written elsewhere
    to->results.push_back({std::move(answer.op), answer.array.At(0)});
  } else {
    to->arrays.push_back(std::move(answer));
  }
}

absl::StatusOr<Reply> ToReplyWithoutArrays(absl::string_view server, const Asked& asked, const v1::ReduceResponse& from,
                                           absl::string_view via) {
  if (const absl::Status right = CheckAnswer(asked, from); !right.ok()) return WrongAnswer(server, right);
  Reply to{.via = std::string(via),
           .results = FromProto(from.results()),
           .count = from.count(),
           .execution = {.engine = NameOf(from.execution().engine()),
                         .device = from.execution().device(),
                         .pipeline = from.execution().pipeline(),
                         .precision = NameOf(from.execution().precision()),
                         .reason = from.execution().reason()},
           .timing = FromProto(from.timing())};
  if (from.has_state()) to.state = from.state().SerializeAsString();
  return to;
}

absl::StatusOr<Reply> ToReply(absl::string_view server, const Asked& asked, v1::ReduceResponse& from,
                              absl::string_view via, absl::Span<const std::string> names) {
  absl::StatusOr<Reply> to = ToReplyWithoutArrays(server, asked, from, via);
  if (!to.ok() || asked.partition) return to;  // whose arrays the caller takes
  if (from.has_arrays_state()) to->state = from.arrays_state().SerializeAsString();
  for (int i = 0; i < from.arrays_size(); ++i) {
    const auto op = static_cast<std::size_t>(i);
    const bool called = op < asked.calls.size();
    AddAnswer(op < names.size() ? names[op]
              : called          ? OpText(asked.calls[op], /*counts=*/false)
                                : "",
              FromProto(*from.mutable_arrays(i)), &*to);
  }
  return to;
}

ArrayReply ToArrayReply(Reply rest, absl::Span<const std::string> names, v1::ReduceResponse& response) {
  ArrayReply reply{.via = std::move(rest.via),
                   .count = rest.count,
                   .execution = std::move(rest.execution),
                   .timing = rest.timing,
                   .attempts = rest.attempts};
  for (v1::ArrayResult& result : *response.mutable_arrays()) {
    reply.results.push_back(FromProto(result));
    reply.results.back().op = names[reply.results.size() - 1];
  }
  if (response.has_keys()) reply.keys = FromProto(*response.mutable_keys());
  if (response.has_arrays_state()) reply.state = response.arrays_state().SerializeAsString();
  return reply;
}

absl::StatusOr<Reply> ToReply(absl::string_view server, const Asked& asked, absl::StatusOr<v1::ReduceResponse> response,
                              absl::string_view via, absl::Span<const std::string> names) {
  if (!response.ok()) return response.status();
  return ToReply(server, asked, *response, via, names);
}

}  // namespace reduced::client
