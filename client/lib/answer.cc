#include "client/lib/answer.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/lib/checks.h"
#include "client/lib/names.h"
#include "kernels/algebra/dtype.h"
#include "kernels/algebra/op.h"
#include "kernels/system/quoted.h"
#include "kernels/system/status_macros.h"
#include "proto/codec/arrays_state.h"
#include "proto/codec/op_call.h"
#include "proto/codec/state_codec.h"
#include "reduced/array.h"

namespace reduced::client {
namespace {

using google::protobuf::RepeatedPtrField;

constexpr int kMaxDimensions = 64;

// The dtypes of arrays, as bits.
using ArrayTypes = std::uint32_t;
constexpr ArrayTypes BitOf(DType dtype) { return ArrayTypes{1} << static_cast<int>(dtype); }

// Of `among`, the arrays for which `op` has a result of dtype `result`.
ArrayTypes ArraysWith(Op op, int result, ArrayTypes among) {
  ArrayTypes found = 0;
  for (const DTypeRow& row : kDTypes) {
    if ((among & BitOf(row.dtype)) != 0 && static_cast<int>(ResultDType(op, row.dtype)) == result) {
      found |= BitOf(row.dtype);
    }
  }
  return found;
}

// The values that an op can have for `count` elements, as far as they follow from the count alone.
absl::Status CheckRange(Op op, const v1::Value& value, std::int64_t count) {
  const auto elements = static_cast<std::uint64_t>(count);
  switch (op) {
    case Op::kArgmin:
    case Op::kArgmax:
      if (value.u() >= elements) return Wrong("value", value.u(), absl::StrCat("indexes below ", count));
      break;
    case Op::kCount:
    case Op::kCountNonzero:
    case Op::kNanCount:
      if (value.u() > elements) return Wrong("value", value.u(), absl::StrCat("0 to ", count));
      break;
    case Op::kVar:
    case Op::kStd:
    case Op::kL2:
      if (value.f() < 0) return Wrong("value", value.f(), "0, positive numbers, NaN");
      break;
    default:
      break;
  }
  return absl::OkStatus();
}

// Why an op has no result.
absl::Status CheckOpError(const Asked& asked, const v1::OpError& error) {
  constexpr int kCodes = 17;  // of gRPC
  if (!asked.op_errors) return Wrong("error", "one", "none, because none was asked for");
  if (error.code() <= 0 || error.code() >= kCodes) return Wrong("error.code", error.code(), "1 to 16");
  return absl::OkStatus();
}

absl::Status CheckResults(const Asked& asked, const RepeatedPtrField<v1::Result>& results, std::int64_t count) {
  if (!asked.results && !results.empty()) return Wrong("results", results.size(), "none, because they were not wanted");
  if (asked.results && static_cast<std::size_t>(results.size()) != asked.ops.size()) {
    return Wrong("results", results.size(), absl::StrCat(asked.ops.size(), ", one for each op"));
  }
  const std::optional<DType> dtype = DTypeFromNumber(asked.dtype);
  ArrayTypes arrays = dtype.has_value() ? BitOf(*dtype) : ~ArrayTypes{0};
  for (int i = 0; i < results.size(); ++i) {
    const v1::Result& result = results[i];
    const int number = asked.ops[static_cast<std::size_t>(i)];
    const std::optional<Op> op = OpFromNumber(number);
    absl::Status status;
    if (result.op() != number || !op.has_value()) {
      status = Wrong("op", NameOf(result.op()), NameOf(static_cast<v1::Op>(number)));
    } else if (result.has_error()) {
      status = result.has_value() ? Wrong("value", "one beside an error", "one of them")
                                  : CheckOpError(asked, result.error());
    } else {
      status = CheckValue(result.value());
      arrays = ArraysWith(*op, result.value().dtype(), arrays);
      if (status.ok() && arrays == 0) {
        status = Wrong("value.dtype", NameOf(result.value().dtype()),
                       dtype.has_value() ? DTypeName(ResultDType(*op, *dtype)) : "what goes with the other results");
      }
      if (status.ok()) status = CheckRange(*op, result.value(), count);
    }
    if (!status.ok()) return Within(Element("results", i), status);
  }
  return absl::OkStatus();
}

absl::Status CheckElements(const Asked& asked, std::int64_t count) {
  if (asked.count.has_value() && count != *asked.count) return Wrong("count", count, *asked.count);
  return count < 0 ? Wrong("count", count, "0 and more") : absl::OkStatus();
}

// A policy whose value 0 means 1.
bool SamePolicy(int asked, int got) { return std::max(asked, 1) == got; }

// Whether a state has the op of a call, and of its other operand the dtype that was asked for, if that is known.
bool IsOfCall(const Asked& asked, const OpCall& call, const OpCall& got) {
  if (call.given().shard.has_value()) {  // a state has no more use for where the part began
    const std::optional<Shard>& shard = got.given().shard;
    return got.op == call.op && shard.has_value() && shard->whole == call.given().shard->whole;
  }
  const std::optional<DType> other = got.given().other;
  if (!other.has_value() || call.given().other.has_value()) return call == got;
  const int known = OtherOf(call.op) == OtherOperand::kY ? asked.y : asked.weights;
  return (known == 0 || DTypeFromNumber(known) == other) && call.With(*other) == got;
}

absl::Status CheckStateOf(const Asked& asked, bool present, const v1::State& state, std::int64_t count) {
  if (present != asked.return_state) {
    return Wrong("state", present ? "one" : "none", present ? "none, because none was asked for" : "a state");
  }
  if (!present) return absl::OkStatus();
  const StateLimits limits{.max_elements = count, .max_ops = static_cast<int>(asked.ops.size()), .calls = asked.arrays};
  const absl::StatusOr<StateOfSpec> parsed = ParseState(state, limits);
  if (!parsed.ok()) return Within("state", parsed.status());
  if (state.count() != count) return Wrong("state.count", state.count(), count);
  if (asked.dtype != 0 && state.dtype() != asked.dtype) {
    return Wrong("state.dtype", NameOf(state.dtype()), NameOf(static_cast<v1::DType>(asked.dtype)));
  }
  const std::vector<OpCall>& got = parsed->spec.ops;
  const bool same_calls =
      asked.calls.empty() || state.calls().empty() ||
      std::equal(asked.calls.begin(), asked.calls.end(), got.begin(), got.end(),
                 [&](const OpCall& call, const OpCall& each) { return IsOfCall(asked, call, each); });
  if (!same_calls || !std::equal(asked.ops.begin(), asked.ops.end(), got.begin(), got.end(),
                                 [](int number, Op op) { return number == static_cast<int>(op); })) {
    return Wrong("state.ops", "others", "the ops of the request");
  }
  const v1::ReduceOptions& options = asked.options;
  if (!SamePolicy(options.nan_policy(), state.nan_policy()) ||
      !SamePolicy(options.overflow_policy(), state.overflow_policy()) || options.ddof() != state.ddof()) {
    return Wrong("state", "other policies or ddof", "those of the request");
  }
  return absl::OkStatus();
}

absl::Status CheckExecution(const v1::ReduceOptions& asked, const v1::Execution& ran) {
  if (ran.engine() == v1::ENGINE_AUTO || (asked.engine() != v1::ENGINE_AUTO && ran.engine() != asked.engine())) {
    return Wrong("engine", NameOf(ran.engine()),
                 asked.engine() == v1::ENGINE_AUTO ? absl::StrJoin(NamesOf(v1::Engine_descriptor()), ", ")
                                                   : NameOf(asked.engine()));
  }
  if (ran.precision() == v1::PRECISION_DEFAULT ||
      (asked.precision() == v1::PRECISION_F64 && ran.precision() != v1::PRECISION_F64)) {
    return Wrong("precision", NameOf(ran.precision()), asked.precision() == v1::PRECISION_F64 ? "f64" : "f64, exact");
  }
  absl::Status status = CheckChosen("device", ran.device(), asked.device());
  status.Update(CheckChosen("pipeline", ran.pipeline(), asked.pipeline()));
  return status;
}

absl::Status CheckTiming(const Asked& asked, const v1::Timing& timing) {
  const std::optional<DType> dtype = DTypeFromNumber(asked.dtype);
  if (dtype.has_value() && asked.count.has_value() && timing.bytes() != *asked.count * RowOf(*dtype).bytes) {
    return Wrong("bytes", timing.bytes(), *asked.count * RowOf(*dtype).bytes);
  }
  return CheckAmounts({{"receive_us", timing.receive_us()},
                       {"queue_us", timing.queue_us()},
                       {"host_copy_us", timing.host_copy_us()},
                       {"host_to_device_us", timing.host_to_device_us()},
                       {"scratch_copy_us", timing.scratch_copy_us()},
                       {"kernel_us", timing.kernel_us()},
                       {"device_to_host_us", timing.device_to_host_us()},
                       {"total_us", timing.total_us()},
                       {"kernel_gb_per_s", timing.kernel_gb_per_s()},
                       {"bytes", timing.bytes()}});
}

// ---- resident arrays

absl::Status CheckArray(const v1::ArrayInfo& array) {
  if (!IsId(array.id())) {
    return Wrong("id", Quoted(array.id()), kIds);
  }
  const v1::DType dtype = array.array().dtype();
  if (dtype == v1::DTYPE_UNSPECIFIED) return Wrong("array.dtype", "none", "a dtype");
  const std::vector<std::int64_t> shape(array.array().shape().begin(), array.array().shape().end());
  if (shape.size() > kMaxDimensions) return Wrong("array.shape", shape.size(), "at most 64 dimensions");
  if (v1::DType_IsValid(dtype)) {
    const absl::StatusOr<std::int64_t> bytes = ArrayBytes(NameOf(dtype), shape);
    if (!bytes.ok()) return Within("array", bytes.status());
    if (array.bytes() != *bytes) return Wrong("bytes", array.bytes(), *bytes);
  }
  if (array.owner().size() > kMaxOwnerBytes) {
    return Wrong("owner", absl::StrCat(array.owner().size(), " bytes"), kMaxOwnerBytes);
  }
  absl::Status status = CheckName("device", array.device());
  for (const v1::ArrayShard& shard : array.shards()) {
    status.Update(CheckName("shards.device", shard.device()));
    status.Update(Within("shards", CheckAmounts(shard)));
  }
  status.Update(CheckAmounts(array));
  return status;
}

const char* PlaceName(v1::ArrayResult::WhereCase place) {
  switch (place) {
    case v1::ArrayResult::kData:
      return "data";
    case v1::ArrayResult::kKept:
      return "kept";
    case v1::ArrayResult::kWrittenAt:
      return "written_at";
    case v1::ArrayResult::kError:
      return "error";
    case v1::ArrayResult::WHERE_NOT_SET:
      break;
  }
  return "none";
}

// The shape of an array of results: it ends with that of the op's answer, and has no more of the whole array.
absl::Status CheckShape(const Asked& asked, const OpCall& op, const v1::ArrayResult& result) {
  const auto& got = result.array().shape();
  const std::vector<std::int64_t> answer = AnswerShape(op);
  const auto outputs = static_cast<std::size_t>(got.size()) - answer.size();  // dimensions
  if (static_cast<std::size_t>(got.size()) >= answer.size() && (asked.partition || outputs == 0) &&
      std::equal(answer.begin(), answer.end(), got.end() - static_cast<std::ptrdiff_t>(answer.size()))) {
    return absl::OkStatus();
  }
  return Wrong("array.shape", absl::StrCat("(", absl::StrJoin(got, ", "), ")"),
               absl::StrCat(asked.partition ? "one that ends with (" : "(", absl::StrJoin(answer, ", "), ")"));
}

// An array of results: kept, written to a region or here, with all of its elements. `end`: the byte of the region where
// the previous results end; becomes where these do.
absl::Status CheckResultArray(const Asked& asked, const v1::ArrayResult& result, std::int64_t* end) {
  constexpr std::int64_t kAlignment = 64;  // as reduced.proto has it
  const v1::ArrayResult::WhereCase place = asked.keep                   ? v1::ArrayResult::kKept
                                           : asked.write_to.has_value() ? v1::ArrayResult::kWrittenAt
                                                                        : v1::ArrayResult::kData;
  const bool has_error = result.has_error();
  if (has_error) {
    RETURN_IF_ERROR(CheckOpError(asked, result.error()));
  }
  // The bytes of an array without elements need not be there.
  const bool none = place == v1::ArrayResult::kData && result.where_case() == v1::ArrayResult::WHERE_NOT_SET;
  if (result.where_case() != place && !none && !has_error) {
    return Wrong("where", PlaceName(result.where_case()), PlaceName(place));
  }
  if (asked.keep) return has_error ? absl::OkStatus() : CheckArray(result.kept());
  const std::vector<std::int64_t> shape(result.array().shape().begin(), result.array().shape().end());
  ASSIGN_OR_RETURN(const std::int64_t bytes, ArrayBytes(NameOf(result.array().dtype()), shape));
  if (place == v1::ArrayResult::kWrittenAt) {
    std::int64_t at = 0;
    if (__builtin_add_overflow(*end, kAlignment - 1, &at) ||
        __builtin_add_overflow(at / kAlignment * kAlignment, bytes, end)) {
      return Wrong("written_at", result.written_at(), "results of less than 2^63 bytes");
    }
    at = *end - bytes;
    return has_error || result.written_at() == at ? absl::OkStatus() : Wrong("written_at", result.written_at(), at);
  }
  if (has_error || static_cast<std::int64_t>(result.data().size()) == bytes) return absl::OkStatus();
  return Wrong("data", absl::StrCat(result.data().size(), " bytes"), bytes);
}

// Whether an array of results has the dtype of an op's for elements of `dtype`.
bool IsResultDType(const Asked& asked, const OpCall& op, DType dtype, int result) {
  const OtherOperand operand = OtherOf(op.op);
  if (operand == OtherOperand::kNone) return result == static_cast<int>(ResultDType(op, dtype));
  const std::optional<DType> other = DTypeFromNumber(operand == OtherOperand::kY ? asked.y : asked.weights);
  if (other.has_value()) return result == static_cast<int>(ResultDType(op.With(*other), dtype));
  // Whether it has a sign depends on the other array.
  return result == static_cast<int>(ResultDType(op, dtype)) ||
         (!RowOf(dtype).is_float && result == static_cast<int>(ResultDType(op.With(DType::kI64), dtype)));
}

// Of an answer with arrays: one for each op, of its dtype, and the keys, of which each has an output.
template <class Answer>
absl::Status CheckArrays(const Asked& asked, const Answer& answer) {
  const auto count = static_cast<std::size_t>(answer.arrays_size());
  const std::size_t wanted = asked.results ? asked.ops.size() : 0;
  if (count != wanted || answer.results_size() > 0) {
    return Wrong("arrays", count, absl::StrCat(wanted, asked.results ? ", one for each op, and no results" : ""));
  }
  const std::optional<DType> dtype = DTypeFromNumber(asked.dtype);
  std::int64_t end = asked.write_to.value_or(0);
  for (int i = 0; i < answer.arrays_size(); ++i) {
    const v1::ArrayResult& result = answer.arrays(i);
    const auto index = static_cast<std::size_t>(i);
    const std::optional<Op> number = OpFromNumber(result.op());
    const OpCall op = !asked.calls.empty() ? asked.calls[index] : OpCall(number.value_or(Op::kCount));
    absl::Status status;
    if (result.op() != asked.ops[index] || !number.has_value()) {
      status = Wrong("op", NameOf(result.op()), NameOf(static_cast<v1::Op>(asked.ops[index])));
    } else if (dtype.has_value() && !IsResultDType(asked, op, *dtype, result.array().dtype())) {
      status = Wrong("array.dtype", NameOf(result.array().dtype()), DTypeName(ResultDType(op, *dtype)));
    } else if (status = CheckShape(asked, op, result); !status.ok()) {
      // what it says
    } else if (asked.keys && (result.array().shape().empty() || answer.keys().array().shape_size() != 1 ||
                              result.array().shape(0) != answer.keys().array().shape(0))) {
      status = Wrong("array.shape", "another number of outputs", "that of the keys");
    } else {
      status = CheckResultArray(asked, result, &end);
    }
    if (!status.ok()) return Within(Element("arrays", i), status);
  }
  if (answer.has_keys() != asked.keys) {
    return Wrong("keys", asked.keys ? "none" : "some", asked.keys ? "those of the outputs" : "none");
  }
  return asked.keys ? Within("keys", CheckResultArray(asked, answer.keys(), &end)) : absl::OkStatus();
}

// The state of an answer with arrays: one that can be merged, to the question, of the same outputs.
template <class Answer>
absl::Status CheckArraysStateOf(const Asked& asked, const Answer& answer) {
  const bool present = answer.has_arrays_state();
  if (present != asked.return_state) {
    return Wrong("arrays_state", present ? "one" : "none", present ? "none, because none was asked for" : "a state");
  }
  if (answer.has_state()) return Wrong("state", "one", "none, because the results are arrays");
  if (!present) return absl::OkStatus();
  const v1::ArraysState& state = answer.arrays_state();
  ArraysMerger merger({.max_elements = answer.count(), .max_ops = static_cast<int>(asked.ops.size())});
  if (const absl::Status status = merger.Append(state, "arrays_state"); !status.ok()) {
    return absl::InternalError(status.message());
  }
  if (state.count() != answer.count()) return Wrong("arrays_state.count", state.count(), answer.count());
  Asked about = asked;
  about.return_state = true;
  const absl::Status question = CheckStateOf(about, true, state.question(), 0);
  if (!question.ok()) return Within("arrays_state.question", question);
  if (state.has_keys() != asked.keys) {
    return Wrong("arrays_state.keys", asked.keys ? "none" : "some", asked.keys ? "those of the outputs" : "none");
  }
  for (int i = 0; i < answer.arrays_size(); ++i) {
    const auto& shape = answer.arrays(i).array().shape();
    const auto op = static_cast<std::size_t>(i);  // CheckShape has seen that the shape ends with that of its answer
    const OpCall call = op < asked.calls.size() ? asked.calls[op] : OpCall(*OpFromNumber(asked.ops[op]));
    const auto own = std::ssize(AnswerShape(call));
    if (!std::equal(shape.begin(), shape.end() - own, state.shape().begin(), state.shape().end())) {
      return Wrong("arrays_state.shape", "another", "that of the results");
    }
  }
  return absl::OkStatus();
}

}  // namespace

Asked::Asked(const v1::ReduceRequest& request)
    : ops(request.ops().begin(), request.ops().end()),
      options(request.options()),
      return_state(request.return_state()),
      results(!request.omit_results()),
      op_errors(request.op_errors()),
      arrays(request.has_axes() || request.has_segments() || request.has_keys() || request.has_where() ||
             AsksForDistribution(request)),
      partition(request.has_axes() || request.has_segments() || request.has_keys() || request.has_where()),
      keep(request.has_keep()),
      keys(request.has_keys() && request.keys().groups() == 0),
      y(request.y().array().dtype()),
      weights(request.weights().array().dtype()) {
  if (request.has_write_to()) write_to = request.write_to().offset();
  for (const v1::OpCall& call : request.calls()) {
    ops.push_back(call.op());
    // One with wrong parameters is the server's to refuse.
    calls.push_back(ParseCall("calls", call).value_or(OpCall(Op::kCount)));
  }
  SetArray(request);
}

void Asked::SetArray(const v1::ArraySpec* array) {
  dtype = 0;
  count.reset();
  if (array == nullptr) return;
  dtype = array->dtype();
  const auto& shape = array->shape();
  // ArrayBytes has checked the shape: the product can only overflow if it is 0.
  std::int64_t product = std::count(shape.begin(), shape.end(), 0) > 0 ? 0 : 1;
  for (const std::int64_t extent : shape) product = product == 0 ? 0 : product * extent;
  count = product;
}

Asked::Asked(const v1::MergeRequest& request)
    : return_state(request.return_state()),
      results(!request.omit_results()),
      op_errors(request.op_errors()),
      arrays(request.arrays_size() > 0),
      partition(arrays) {
  if (request.states().empty() && !arrays) return;
  const v1::State& first = arrays ? request.arrays(0).question() : request.states(0);
  if (arrays) keys = request.arrays(0).has_keys();
  ops.assign(first.ops().begin(), first.ops().end());
  for (const v1::OpCall& call : first.calls()) {
    ops.push_back(call.op());
    calls.push_back(ParseCall("calls", call).value_or(OpCall(Op::kCount)));
  }
  dtype = first.dtype();
  options.set_nan_policy(first.nan_policy());
  options.set_overflow_policy(first.overflow_policy());
  options.set_ddof(first.ddof());
  std::int64_t sum = 0;
  for (const v1::State& state : request.states()) {
    if (__builtin_add_overflow(sum, state.count(), &sum)) return;
  }
  for (const v1::ArraysState& state : request.arrays()) {
    if (__builtin_add_overflow(sum, state.count(), &sum)) return;
  }
  count = sum;
}

absl::Status WrongAnswer(absl::string_view server, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::InternalError(absl::StrCat("the answer of ", server, " is wrong: ", status.message()));
}

absl::Status CheckAnswer(const Asked& asked, const v1::ReduceResponse& answer) {
  absl::Status status = CheckElements(asked, answer.count());
  if (status.ok()) {
    status = asked.arrays ? CheckArrays(asked, answer) : CheckResults(asked, answer.results(), answer.count());
  }
  if (status.ok()) status = Within("execution", CheckExecution(asked.options, answer.execution()));
  if (status.ok()) status = Within("timing", CheckTiming(asked, answer.timing()));
  if (status.ok() && asked.arrays) return CheckArraysStateOf(asked, answer);
  if (status.ok()) status = CheckStateOf(asked, answer.has_state(), answer.state(), answer.count());
  return status;
}

absl::Status CheckAnswer(const Asked& asked, const v1::MergeResponse& answer) {
  if (asked.arrays) {
    absl::Status status = CheckElements(asked, answer.count());
    if (status.ok()) status = CheckArrays(asked, answer);
    return status.ok() ? CheckArraysStateOf(asked, answer) : status;
  }
  absl::Status status = CheckElements(asked, answer.count());
  if (status.ok()) status = CheckResults(asked, answer.results(), answer.count());
  if (status.ok()) status = CheckStateOf(asked, answer.has_state(), answer.state(), answer.count());
  return status;
}

absl::Status CheckAnswer(const v1::PutArrayHeader& asked, const v1::PutArrayResponse& answer) {
  const v1::ArrayInfo& array = answer.array();
  absl::Status status = CheckArray(array);
  if (array.array().dtype() != asked.array().dtype()) {
    status.Update(Wrong("array.dtype", NameOf(array.array().dtype()), NameOf(asked.array().dtype())));
  }
  const auto& got = array.array().shape();
  const auto& sent = asked.array().shape();
  if (!std::equal(got.begin(), got.end(), sent.begin(), sent.end())) {
    status.Update(Wrong("array.shape", absl::StrCat("(", absl::StrJoin(got, ", "), ")"),
                        absl::StrCat("(", absl::StrJoin(sent, ", "), ")")));
  }
  status.Update(CheckChosen("device", array.device(), asked.device()));
  if (!asked.owner().empty()) status.Update(CheckChosen("owner", array.owner(), asked.owner()));
  return Within("array", status);
}

absl::Status CheckAnswer(const v1::ListArraysRequest& asked, const v1::ListArraysResponse& answer) {
  std::set<absl::string_view> ids;
  for (int i = 0; i < answer.arrays_size(); ++i) {
    const v1::ArrayInfo& array = answer.arrays(i);
    absl::Status status = CheckArray(array);
    if (!asked.owner().empty()) status.Update(CheckChosen("owner", array.owner(), asked.owner()));
    if (!ids.insert(array.id()).second) status.Update(Wrong("id", Quoted(array.id()), "each id once"));
    if (!status.ok()) return Within(Element("arrays", i), status);
  }
  return absl::OkStatus();
}

}  // namespace reduced::client
