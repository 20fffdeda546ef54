#include "client/lib/convert.h"

#include <array>
#include <cstddef>
#include <iterator>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/lib/names.h"

namespace reduced::client {
namespace {

using google::protobuf::FieldDescriptor;

// The fields of the message that kTimingStages names.
Timing FromProto(const v1::Timing& from) {
  static const auto fields = [] {
    std::array<const FieldDescriptor*, std::size(kTimingStages)> found{};
    for (std::size_t i = 0; i < found.size(); ++i) {
      found[i] = v1::Timing::descriptor()->FindFieldByName(absl::StrCat(kTimingStages[i].name, "_us"));
    }
    return found;
  }();
  const google::protobuf::Reflection* const reflection = v1::Timing::GetReflection();
  Timing to{.bytes = from.bytes()};
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (reflection->HasField(from, fields[i])) to.*kTimingStages[i].us = reflection->GetDouble(from, fields[i]);
  }
  if (from.has_kernel_gb_per_s()) to.kernel_gb_per_s = from.kernel_gb_per_s();
  return to;
}

}  // namespace

absl::Status ToProto(const ArrayView& array, v1::ArraySpec* spec) {
  const absl::StatusOr<std::int64_t> bytes = ArrayBytes(array.dtype, array.shape);
  if (!bytes.ok()) return bytes.status();
  if (const std::int64_t elements = *bytes / *DTypeBytes(array.dtype); array.count.value_or(elements) != elements) {
    return absl::InvalidArgumentError(absl::StrCat("shape: got [", absl::StrJoin(array.shape, ", "), "], ", elements,
                                                   " elements; allowed: shapes of ", *array.count));
  }
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;
  const absl::Status status = Parse("dtype", array.dtype, &dtype);
  if (!status.ok()) return status;
  spec->set_dtype(dtype);
  spec->mutable_shape()->Assign(array.shape.begin(), array.shape.end());
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

  v1::Engine engine = v1::ENGINE_AUTO;
  v1::Precision precision = v1::PRECISION_DEFAULT;
  v1::NanPolicy nan_policy = v1::NAN_POLICY_DEFAULT;
  v1::OverflowPolicy overflow_policy = v1::OVERFLOW_POLICY_DEFAULT;
  absl::Status status = Parse("engine", options.engine, &engine);
  if (!options.precision.empty()) status.Update(Parse("precision", options.precision, &precision));
  status.Update(Parse("nan_policy", options.nan_policy, &nan_policy));
  status.Update(Parse("overflow_policy", options.overflow_policy, &overflow_policy));
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
  request->set_omit_results(!options.results);
  request->set_op_errors(true);
  return absl::OkStatus();
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

absl::StatusOr<Reply> ToReply(absl::string_view server, const Asked& asked, const v1::ReduceResponse& from,
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

absl::StatusOr<Reply> ToReply(absl::string_view server, const Asked& asked,
                              const absl::StatusOr<v1::ReduceResponse>& response, absl::string_view via) {
  if (!response.ok()) return response.status();
  return ToReply(server, asked, *response, via);
}

}  // namespace reduced::client
