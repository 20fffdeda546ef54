#include "proto/question/question.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/algebra/layout.h"
#include "kernels/algebra/op.h"
#include "kernels/engine/pipelines.h"
#include "kernels/system/status_macros.h"
#include "proto/codec/enums.h"
#include "proto/codec/op_call.h"

namespace reduced {
namespace {

// Longer names can't be right, and would not fit in the status that quotes them.
constexpr std::size_t kMaxPipelineName = 64;
constexpr std::size_t kMaxDeviceName = 64;

absl::Status ParseOptions(const v1::ReduceOptions& options, ReduceSpec* spec) {
  if (!v1::Engine_IsValid(options.engine())) return UnknownValue("options.engine", options.engine());
  if (!v1::Precision_IsValid(options.precision())) return UnknownValue("options.precision", options.precision());
  if (!v1::NanPolicy_IsValid(options.nan_policy())) return UnknownValue("options.nan_policy", options.nan_policy());
  if (!v1::OverflowPolicy_IsValid(options.overflow_policy())) {
    return UnknownValue("options.overflow_policy", options.overflow_policy());
  }
  if (options.pipeline().size() > kMaxPipelineName) {
    return absl::InvalidArgumentError(
        absl::StrFormat("options.pipeline: got %d bytes; allowed: %d bytes; GetServerInfo lists the pipelines",
                        options.pipeline().size(), kMaxPipelineName));
  }
  if (options.device().size() > kMaxDeviceName) {
    return absl::InvalidArgumentError(
        absl::StrFormat("options.device: got %d bytes; allowed: %d bytes; GetServerInfo lists the devices",
                        options.device().size(), kMaxDeviceName));
  }
  spec->engine = static_cast<EngineKind>(options.engine());
  spec->device = options.device();
  spec->pipeline = options.pipeline();
  spec->block_size = options.block_size();
  spec->ddof = options.ddof();
  spec->precision = options.precision() == v1::PRECISION_DEFAULT ? DefaultPrecision(options.pipeline())
                                                                 : static_cast<Precision>(options.precision());
  if (options.nan_policy() != v1::NAN_POLICY_DEFAULT) spec->nan_policy = static_cast<NanPolicy>(options.nan_policy());
  if (options.overflow_policy() != v1::OVERFLOW_POLICY_DEFAULT) {
    spec->overflow_policy = static_cast<OverflowPolicy>(options.overflow_policy());
  }
  return absl::OkStatus();
}

// The ops and options, which ValidateSpec has not seen.
absl::Status ParseSpec(const v1::ReduceRequest& request, int max_ops, ReduceSpec* spec) {
  const bool called = request.calls_size() > 0;
  const int count = called ? request.calls_size() : request.ops_size();
  if (called && request.ops_size() > 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("calls: got %d beside %d ops; allowed: one of ops, calls", count, request.ops_size()));
  }
  if (count == 0 || count > max_ops) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: got %d operations; allowed: 1 to %d", called ? "calls" : "ops", count, max_ops));
  }
  ASSIGN_OR_RETURN(spec->ops, ParseCalls(request.calls(), spec->dtype));
  spec->ops.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < request.ops_size(); ++i) {
    const std::optional<Op> op = OpFromNumber(request.ops(i));
    if (!op.has_value()) return UnknownValue(absl::StrCat("ops[", i, "]"), request.ops(i));
    if (IsOfDistribution(request.ops(i))) {  // may need parameters, which it has not here
      ASSIGN_OR_RETURN(const OpCall call, ParseCall(absl::StrCat("ops[", i, "]"), request.ops(i)));
    }
    spec->ops.push_back(*op);
  }
  return ParseOptions(request.options(), spec);
}

// Fields that go with arrays of answers only, or exclude each other. `arrays`: as ArraysField.
absl::Status CheckFields(const v1::ReduceRequest& request, const char* arrays) {
  const auto wrong = [](auto... what) { return absl::InvalidArgumentError(absl::StrCat(what...)); };
  if (request.omit_results() && !request.return_state()) {
    return wrong("omit_results: got true without return_state; allowed: false, or with it");
  }
  if (arrays == nullptr) {
    constexpr const char* kWith = "axes, segments, keys or where";
    if (request.empty() != v1::EMPTY_POLICY_DEFAULT) {
      return wrong("empty: got a policy without axes; allowed: none, or with ", kWith);
    }
    if (request.has_y()) return wrong("y: got an array without an op that takes it; allowed: none");
    if (request.has_weights()) return wrong("weights: got an array without an op that takes it; allowed: none");
    if (request.has_keep()) return wrong("keep: got it without axes; allowed: with ", kWith);
    if (request.has_write_to()) return wrong("write_to: got it without axes; allowed: with ", kWith);
    return absl::OkStatus();
  }
  if (request.has_axes() + request.has_segments() + request.has_keys() > 1) {
    return wrong(request.has_keys() ? "keys" : "segments", ": got it beside ", arrays,
                 "; allowed: one of axes, segments, keys");
  }
  if (request.return_state() && request.has_segments()) {
    return wrong("return_state: got true with segments; allowed: false, or true with axes, keys or where");
  }
  if (request.omit_results() && (request.has_keep() || request.has_write_to())) {
    return wrong("omit_results: got true beside keep or write_to; allowed: false, or neither");
  }
  if (request.has_keep() && request.has_write_to()) {
    return wrong("write_to: got it beside keep; allowed: one of them");
  }
  return v1::EmptyPolicy_IsValid(request.empty()) ? absl::OkStatus() : UnknownValue("empty", request.empty());
}

// Sets `side`, which is a part of `what`; whether `what` is valid with it.
template <class What, class... Shape>
absl::Status ParseSide(const char* field, const v1::SideArray& from, FindSide find_side, SideArray* side,
                       const What& what, Shape... shape) {
  ASSIGN_OR_RETURN(FoundSide found, find_side(field, from));
  *side = found.array;
  return Validate(what, found.shape, shape...);
}

absl::Status ParseSegments(const v1::Segments& from, FindSide find_side, Segments* to) {
  if (from.bounds_case() == v1::Segments::BOUNDS_NOT_SET) {
    return absl::InvalidArgumentError("segments: got none; allowed: offsets, lengths");
  }
  to->lengths = from.has_lengths();
  return to->lengths ? ParseSide("segments.lengths", from.lengths(), find_side, &to->bounds, *to)
                     : ParseSide("segments.offsets", from.offsets(), find_side, &to->bounds, *to);
}

absl::Status ParseKeys(const v1::Keys& from, std::span<const std::int64_t> shape, FindSide find_side, Keys* to) {
  if (!v1::OutsideKeys_IsValid(from.outside())) return UnknownValue("keys.outside", from.outside());
  if (from.outside() != v1::OUTSIDE_KEYS_DEFAULT && from.groups() == 0) {
    return absl::InvalidArgumentError("keys.outside: got a policy without groups; allowed: none, or with groups");
  }
  to->groups = from.groups();
  to->drop = from.outside() == v1::OUTSIDE_KEYS_DROP;
  return ParseSide("keys.keys", from.keys(), find_side, &to->keys, *to, shape);
}

absl::Status ParseMask(const v1::Mask& from, std::span<const std::int64_t> shape, FindSide find_side, Mask* to) {
  if (from.mask_case() == v1::Mask::MASK_NOT_SET) {
    return absl::InvalidArgumentError("where: got none; allowed: elements, bits");
  }
  to->bits = from.has_bits();
  to->first_bit = from.first_bit();
  return to->bits ? ParseSide("where.bits", from.bits(), find_side, &to->array, *to, shape)
                  : ParseSide("where.elements", from.elements(), find_side, &to->array, *to, shape);
}

// One of the other operands, if an op takes it; its dtype becomes a parameter of these ops.
absl::Status ParseOther(const char* field, OtherOperand operand, bool given, const v1::SideArray& from,
                        std::span<const std::int64_t> shape, FindSide find_side, ReduceSpec* spec,
                        std::optional<OtherArray>* to) {
  const auto takes = [operand](const OpCall& call) { return OtherOf(call.op) == operand; };
  const auto taker = std::find_if(spec->ops.begin(), spec->ops.end(), takes);
  const bool taken = taker != spec->ops.end();
  if (taken != given) {
    return absl::InvalidArgumentError(
        taken ? absl::StrCat(field, ": got none with op ", std::string(RowOf(taker->op).name), "; allowed: an array")
              : absl::StrCat(field, ": got an array without an op that takes it; allowed: none"));
  }
  if (!given) return absl::OkStatus();
  ASSIGN_OR_RETURN(FoundSide found, find_side(field, from));
  ASSIGN_OR_RETURN(std::vector<Dimension> broadcast, Broadcast(field, found.shape, shape));
  to->emplace(OtherArray{found.array, std::move(broadcast)});
  for (OpCall& call : spec->ops) {
    if (!takes(call)) continue;
    const std::optional<DType> other = call.given().other;
    if (other.has_value() && *other != found.array.dtype) {
      return absl::InvalidArgumentError(
          absl::StrFormat("calls.other: got %s with %s of %s; allowed: none, or its dtype", RowOf(*other).name, field,
                          RowOf(found.array.dtype).name));
    }
    call = call.With(found.array.dtype);
    RETURN_IF_ERROR(reduced::Validate(call, spec->dtype));
  }
  return absl::OkStatus();
}

// That outputs have whole rows of the ops that take such: keys or a mask of elements would leave parts of them, and the
// last of several dimensions has the columns.
absl::Status CheckRows(const v1::ReduceRequest& request, std::span<const std::int64_t> shape,
                       const std::vector<bool>& reduced, const ReduceSpec& spec) {
  for (const OpCall& call : spec.ops) {
    if (!IsMatrix(call.op)) continue;
    const auto wrong = [&](auto... what) {
      return absl::InvalidArgumentError(absl::StrCat("op ", std::string(RowOf(call.op).name), ": got ", what...));
    };
    if (request.has_keys() || request.has_where()) {
      return wrong(request.has_keys() ? "keys" : "where", "; allowed: axes, segments");
    }
    if (shape.size() < 2) continue;
    if (!reduced.back()) return wrong("axes without the last dimension; allowed: axes with it");
    if (shape.back() != call.given().columns) {
      return wrong(call.given().columns, " columns; allowed: ", shape.back(), ", the size of the last dimension");
    }
  }
  return absl::OkStatus();
}

// That states are wanted of ops that have them.
absl::Status CheckStates(const v1::ReduceRequest& request, const ReduceSpec& spec) {
  const auto without = std::ranges::find_if(spec.ops, IsWeightedQuantile);
  if (!request.return_state() || without == spec.ops.end()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrFormat(
      "return_state: got true with op %s, whose parts do not merge; allowed: false, for all of the array at once",
      RowOf(without->op).name));
}

// Tells fingerprints of a part of a larger array what shape the part has.
absl::Status PlaceShards(const char* field, const Partition& partition, std::span<const std::int64_t> shape,
                         ReduceSpec* spec) {
  for (OpCall& call : spec->ops) {
    if (!call.given().shard.has_value()) continue;
    OpParameters parameters = call.given();
    Shard& shard = *parameters.shard;
    if (partition.grouped() || partition.layout.outputs != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("fingerprint.shape: got it with ", field, "; allowed: with where, and with one output"));
    }
    if (shard.whole.size() != shape.size()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("fingerprint.shape: got %s for an array of shape %s; allowed: "
                          "as many dimensions",
                          ShapeText(shard.whole), ShapeText(shape)));
    }
    for (std::size_t i = 0; i < shape.size(); ++i) {
      const std::int64_t offset = shard.offset.empty() ? 0 : shard.offset[i];
      if (shape[i] <= shard.whole[i] - offset) continue;
      return absl::InvalidArgumentError(
          absl::StrFormat("fingerprint.offset[%d]: got %d with a part of %d; allowed: a part within the %d of shape", i,
                          offset, shape[i], shard.whole[i]));
    }
    shard.part.assign(shape.begin(), shape.end());
    call = OpCall(call.op, std::move(parameters));
  }
  return absl::OkStatus();
}

absl::Status ParsePartition(const v1::ReduceRequest& request, const char* field, std::span<const std::int64_t> shape,
                            FindSide find_side, Question* question) {
  if (shape.size() > kMaxDimensions) {
    return absl::InvalidArgumentError(
        absl::StrFormat("array.shape: got %d dimensions; allowed: %d with %s", shape.size(), kMaxDimensions, field));
  }
  if (!request.omit_results()) {
    for (std::size_t i = 0; i < question->spec.ops.size(); ++i) {
      if (question->spec.ops[i].given().counts.within.empty()) continue;
      return absl::InvalidArgumentError(absl::StrFormat(
          "calls[%d].quantile.counts.within: got prefixes without omit_results; allowed: none, or with it", i));
    }
  }
  const bool grouped = request.has_segments() || request.has_keys();
  if (grouped && shape.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("array.shape: got a scalar; allowed: 1 dimension or more with ", field));
  }
  absl::StatusOr<std::vector<bool>> reduced = std::vector<bool>(shape.size(), !grouped);  // without axes: all of them
  if (grouped) reduced->front() = true;
  if (request.has_axes()) {
    const auto& axes = request.axes().axis();
    reduced = ReducedDimensions({axes.data(), static_cast<std::size_t>(axes.size())}, shape.size());
    if (!reduced.ok()) return reduced.status();
  }
  RETURN_IF_ERROR(CheckRows(request, shape, *reduced, question->spec));
  RETURN_IF_ERROR(CheckStates(request, question->spec));
  question->shape = ResultShape(shape, *reduced, request.axes().keepdims());
  Partition& to = question->partition.emplace(
      Partition{.layout = LayoutOf(shape, *reduced), .rows = shape.empty() ? 1 : shape.front()});
  if (request.has_segments()) to.segments.emplace();
  if (request.has_keys()) to.keys.emplace();
  if (request.has_where()) to.mask.emplace();
  absl::Status status = Validate(to, question->spec, question->wanted.op_errors);  // before arrays are looked for
  if (status.ok()) status = PlaceShards(field, to, shape, &question->spec);
  if (status.ok() && to.segments.has_value()) status = ParseSegments(request.segments(), find_side, &*to.segments);
  if (status.ok() && to.keys.has_value()) status = ParseKeys(request.keys(), shape, find_side, &*to.keys);
  if (status.ok() && to.mask.has_value()) status = ParseMask(request.where(), shape, find_side, &*to.mask);
  ReduceSpec& spec = question->spec;
  if (status.ok()) {
    status = ParseOther("y", OtherOperand::kY, request.has_y(), request.y(), shape, find_side, &spec, &question->y);
  }
  if (status.ok()) {
    status = ParseOther("weights", OtherOperand::kWeights, request.has_weights(), request.weights(), shape, find_side,
                        &spec, &question->weights);
  }
  if (!status.ok()) return status;
  if (std::int64_t outputs = 0; __builtin_mul_overflow(to.layout.outputs, to.groups(), &outputs)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("outputs: got %d times %d; allowed: 2^63 - 1 in all", to.layout.outputs, to.groups()));
  }
  return absl::OkStatus();
}

}  // namespace

const char* ArraysField(const v1::ReduceRequest& request) {
  if (request.has_axes()) return "axes";
  if (request.has_segments()) return "segments";
  if (request.has_keys()) return "keys";
  if (request.has_where()) return "where";
  return !AsksForDistribution(request) ? nullptr : request.calls().empty() ? "ops" : "calls";
}

absl::StatusOr<Question> ParseQuestion(const v1::ReduceRequest& request, const QuestionedArray& array, int max_ops,
                                       FindSide find_side) {
  const char* const field = ArraysField(request);
  Question question{
      .spec = {.dtype = array.dtype, .count = array.count},
      .wanted = {
          .results = !request.omit_results(), .state = request.return_state(), .op_errors = request.op_errors()}};
  absl::Status status = CheckFields(request, field);
  if (status.ok()) status = ParseSpec(request, max_ops, &question.spec);
  if (status.ok() && request.empty() != v1::EMPTY_POLICY_DEFAULT) {
    question.spec.empty_policy = static_cast<EmptyPolicy>(request.empty());
  }
  if (status.ok()) {
    status = field == nullptr
                 ? ValidateSpec(question.spec, question.wanted.op_errors)
                 : ParsePartition(request, field, {array.shape.data(), array.shape.size()}, find_side, &question);
  }
  if (!status.ok()) return status;
  return question;
}

}  // namespace reduced
