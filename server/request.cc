#include "server/request.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/pipelines.h"

namespace reduced {
namespace {

// The proto's enums and the kernels' tables are the same lists under the same numbers: 1, 2, 3... (That their names
// agree too, the service tests check row by row.)
template <class Rows, class Number>
constexpr bool NumberedFromOne(const Rows& rows, Number number) {
  int expected = 1;
  for (const auto& row : rows) {
    if (static_cast<int>(number(row)) != expected++) return false;
  }
  return true;
}
static_assert(NumberedFromOne(kDTypes, [](const DTypeRow& row) { return row.dtype; }));
static_assert(NumberedFromOne(kOps, [](const OpRow& row) { return row.op; }));
static_assert(std::size(kDTypes) + 1 == v1::DType_ARRAYSIZE, "a dtype is missing in reduced.proto or in dtype.h");
static_assert(std::size(kOps) + 1 == v1::Op_ARRAYSIZE, "an op is missing in reduced.proto or in op.h");
static_assert(static_cast<int>(EngineKind::kAuto) == v1::ENGINE_AUTO);
static_assert(static_cast<int>(EngineKind::kCpu) == v1::ENGINE_CPU);
static_assert(static_cast<int>(EngineKind::kCuda) == v1::ENGINE_CUDA && v1::Engine_MAX == v1::ENGINE_CUDA);
static_assert(static_cast<int>(NanPolicy::kPropagate) == v1::NAN_POLICY_PROPAGATE);
static_assert(static_cast<int>(NanPolicy::kOmit) == v1::NAN_POLICY_OMIT && v1::NanPolicy_MAX == v1::NAN_POLICY_OMIT);
static_assert(static_cast<int>(OverflowPolicy::kError) == v1::OVERFLOW_POLICY_ERROR);
static_assert(static_cast<int>(OverflowPolicy::kWrap) == v1::OVERFLOW_POLICY_WRAP);
static_assert(static_cast<int>(OverflowPolicy::kSaturate) == v1::OVERFLOW_POLICY_SATURATE &&
              v1::OverflowPolicy_MAX == v1::OVERFLOW_POLICY_SATURATE);

// Longer names can't be right, and would not fit in the status that quotes them.
constexpr std::size_t kMaxPipelineName = 64;

// "sum (1), prod (2), ...": the values of a proto enum that a request may have, but for an unspecified one.
template <class Enum>
std::string Allowed() {
  const google::protobuf::EnumDescriptor& type = *google::protobuf::GetEnumDescriptor<Enum>();
  std::string list;
  for (int i = 0; i < type.value_count(); ++i) {
    if (absl::EndsWith(type.value(i)->name(), "_UNSPECIFIED")) continue;
    absl::StrAppend(&list, list.empty() ? "" : ", ", type.value(i)->name(), " (", type.value(i)->number(), ")");
  }
  return list;
}

template <class Enum>
absl::Status Unknown(absl::string_view field, Enum value) {
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is %d, allowed are %s", field, static_cast<int>(value), Allowed<Enum>()));
}

absl::StatusOr<DType> ParseDType(absl::string_view field, v1::DType number) {
  const std::optional<DType> dtype = DTypeFromNumber(number);
  if (!dtype.has_value()) return Unknown(field, number);
  return *dtype;
}

absl::StatusOr<Op> ParseOp(absl::string_view field, v1::Op number) {
  const std::optional<Op> op = OpFromNumber(number);
  if (!op.has_value()) return Unknown(field, number);
  return *op;
}

// "[2, 3]", with the first dimensions only where there are many.
std::string ShapeText(const v1::ArraySpec& array) {
  constexpr int kShown = 8;
  const int shown = std::min(array.shape_size(), kShown);
  return absl::StrCat("[", absl::StrJoin(array.shape().begin(), array.shape().begin() + shown, ", "),
                      shown < array.shape_size() ? absl::StrCat(", ... ", array.shape_size(), " dimensions") : "", "]");
}

// The number of elements: the product of the dimensions, 1 if there is none.
absl::StatusOr<std::int64_t> Count(const v1::ArraySpec& array, std::int64_t max_elements) {
  bool empty = false;
  for (int i = 0; i < array.shape_size(); ++i) {
    if (array.shape(i) < 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("array.shape[%d] is %d, allowed are 0 and up", i, array.shape(i)));
    }
    empty = empty || array.shape(i) == 0;
  }
  if (empty) return 0;
  std::int64_t count = 1;
  for (const std::int64_t size : array.shape()) {
    if (__builtin_mul_overflow(count, size, &count)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("array.shape is %s: more elements than 64 bits can count, at most %d are allowed",
                          ShapeText(array), max_elements));
    }
  }
  if (count > max_elements) {
    return absl::InvalidArgumentError(absl::StrFormat("array.shape is %s: %d elements, at most %d are allowed",
                                                      ShapeText(array), count, max_elements));
  }
  return count;
}

absl::Status ParseOptions(const v1::ReduceOptions& options, ReduceSpec* spec) {
  if (!v1::Engine_IsValid(options.engine())) return Unknown("options.engine", options.engine());
  if (!v1::Precision_IsValid(options.precision())) return Unknown("options.precision", options.precision());
  if (!v1::NanPolicy_IsValid(options.nan_policy())) return Unknown("options.nan_policy", options.nan_policy());
  if (!v1::OverflowPolicy_IsValid(options.overflow_policy())) {
    return Unknown("options.overflow_policy", options.overflow_policy());
  }
  if (options.pipeline().size() > kMaxPipelineName) {
    return absl::InvalidArgumentError(
        absl::StrFormat("options.pipeline has %d bytes, names of pipelines have at most %d; see GetServerInfo",
                        options.pipeline().size(), kMaxPipelineName));
  }
  spec->engine = static_cast<EngineKind>(options.engine());
  spec->pipeline = options.pipeline();
  spec->block_size = options.block_size();
  spec->ddof = options.ddof();
  if (options.nan_policy() != v1::NAN_POLICY_DEFAULT) spec->nan_policy = static_cast<NanPolicy>(options.nan_policy());
  if (options.overflow_policy() != v1::OVERFLOW_POLICY_DEFAULT) {
    spec->overflow_policy = static_cast<OverflowPolicy>(options.overflow_policy());
  }
  return absl::OkStatus();
}

// A ladder's block sizes; none asked for: 0, each pipeline's own.
absl::StatusOr<std::vector<int>> ParseBlockSizes(const v1::LadderRequest& request) {
  if (request.block_sizes().empty()) return std::vector<int>{0};
  std::vector<int> sizes;
  for (const int size : request.block_sizes()) {
    if (std::find(kBlockSizes.begin(), kBlockSizes.end(), size) == kBlockSizes.end()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("block_sizes has %d, allowed are %s", size, absl::StrJoin(kBlockSizes, ", ")));
    }
    if (std::find(sizes.begin(), sizes.end(), size) != sizes.end()) {
      return absl::InvalidArgumentError(absl::StrFormat("block_sizes has %d twice", size));
    }
    sizes.push_back(size);
  }
  return sizes;
}

// A ladder's pipelines; none asked for: those of this server's engines that can do what `spec` says.
absl::StatusOr<std::vector<const PipelineRow*>> ParsePipelines(const v1::LadderRequest& request, const Engines& engines,
                                                               const ReduceSpec& spec) {
  std::vector<const PipelineRow*> rows;
  if (request.pipelines().empty()) {
    for (const PipelineRow& row : Pipelines()) {
      if (Supports(row, spec.ops.front(), spec.dtype) && engines.Get(row.engine).ok()) rows.push_back(&row);
    }
    return rows;
  }
  bool have_choice = false;
  for (const std::string& name : request.pipelines()) {
    if (name.empty()) return absl::InvalidArgumentError("pipelines has an empty name");
    ReduceSpec named = spec;
    named.pipeline = name;
    const absl::Status status = ValidateSpec(named);
    if (!status.ok()) return status;
    const PipelineRow* const row = FindPipeline(name);
    if (std::find(rows.begin(), rows.end(), row) != rows.end()) {
      return absl::InvalidArgumentError(absl::StrFormat("pipelines has %s twice", name));
    }
    rows.push_back(row);
    have_choice = have_choice || row->block_sizes;
  }
  if (!request.block_sizes().empty() && !have_choice) {
    return absl::InvalidArgumentError(
        absl::StrCat("block_sizes is set, but none of the pipelines asked for has a choice: ",
                     absl::StrJoin(request.pipelines(), ", ")));
  }
  return rows;
}

absl::StatusOr<std::vector<LadderRung>> ParseRungs(const v1::LadderRequest& request, const Engines& engines,
                                                   ReduceSpec spec) {
  const absl::StatusOr<std::vector<int>> block_sizes = ParseBlockSizes(request);
  if (!block_sizes.ok()) return block_sizes.status();
  const absl::StatusOr<std::vector<const PipelineRow*>> rows = ParsePipelines(request, engines, spec);
  if (!rows.ok()) return rows.status();
  std::vector<LadderRung> rungs;
  for (const PipelineRow* const row : *rows) {
    const absl::StatusOr<Engine*> engine = engines.Get(row->engine);
    if (!engine.ok()) return engine.status();
    spec.engine = row->engine;
    spec.pipeline = row->name;
    for (const int size : row->block_sizes ? *block_sizes : std::vector<int>{0}) {
      spec.block_size = size;
      rungs.push_back({*engine, spec});
    }
  }
  return rungs;
}

// What a request says but for where its elements are.
absl::StatusOr<ParsedRequest> ParseQuestion(const v1::ReduceRequest& request, const RequestLimits& limits) {
  ParsedRequest parsed;
  ReduceSpec& spec = parsed.spec;

  const absl::StatusOr<DType> dtype = ParseDType("array.dtype", request.array().dtype());
  if (!dtype.ok()) return dtype.status();
  spec.dtype = *dtype;
  const absl::StatusOr<std::int64_t> count = Count(request.array(), limits.max_elements);
  if (!count.ok()) return count.status();
  spec.count = *count;

  if (request.ops().empty() || request.ops_size() > limits.max_ops) {
    return absl::InvalidArgumentError(
        absl::StrFormat("ops has %d operations, allowed are 1 to %d", request.ops_size(), limits.max_ops));
  }
  spec.ops.reserve(request.ops_size());
  for (int i = 0; i < request.ops_size(); ++i) {
    const absl::StatusOr<Op> op = ParseOp(absl::StrCat("ops[", i, "]"), request.ops(i));
    if (!op.ok()) return op.status();
    spec.ops.push_back(*op);
  }

  absl::Status status = ParseOptions(request.options(), &spec);
  if (!status.ok()) return status;
  status = ValidateSpec(spec);
  if (!status.ok()) return status;

  if (__builtin_mul_overflow(spec.count, std::int64_t{RowOf(spec.dtype).bytes}, &parsed.bytes)) {
    return absl::InvalidArgumentError(absl::StrFormat("array.shape is %s: %d elements of %s are more than 2^63 bytes",
                                                      ShapeText(request.array()), spec.count, RowOf(spec.dtype).name));
  }
  return parsed;
}

absl::StatusOr<HeldArray> InlineSource(const v1::ReduceRequest& request, const ParsedRequest& parsed) {
  const std::string& data = request.inline_data();
  if (parsed.bytes == static_cast<std::int64_t>(data.size())) return HeldArray{.array = {data.data()}};
  const DTypeRow& dtype = RowOf(parsed.spec.dtype);
  return absl::InvalidArgumentError(absl::StrFormat(
      "inline_data has %d bytes, but array.shape %s of %s, %d bytes each, needs exactly %d x %d", data.size(),
      ShapeText(request.array()), dtype.name, dtype.bytes, parsed.spec.count, dtype.bytes));
}

absl::StatusOr<HeldArray> FindSource(const v1::ReduceRequest& request, const ParsedRequest& parsed,
                                     const Backend& backend) {
  switch (request.source_case()) {
    case v1::ReduceRequest::kInlineData:
      return InlineSource(request, parsed);
    case v1::ReduceRequest::kRegion:
      return backend.regions.Find(request.region(), parsed.bytes);
    default:
      return absl::InvalidArgumentError(
          "the request has no source of elements, 1 is needed: inline_data, array_id or region");
  }
}

}  // namespace

absl::StatusOr<ParsedRequest> ParseRequest(const v1::ReduceRequest& request, const Backend& backend) {
  absl::StatusOr<ParsedRequest> parsed = ParseQuestion(request, backend.limits);
  if (!parsed.ok()) return parsed;
  absl::StatusOr<HeldArray> source = FindSource(request, *parsed, backend);
  if (!source.ok()) return source.status();
  parsed->source = *std::move(source);
  return parsed;
}

absl::StatusOr<ParsedRequest> ParseHeader(const v1::ReduceRequest& header, const RequestLimits& limits) {
  if (header.source_case() != v1::ReduceRequest::SOURCE_NOT_SET) {
    return absl::InvalidArgumentError("the header names a source, but the elements of a stream come in chunks");
  }
  return ParseQuestion(header, limits);
}

absl::StatusOr<ParsedLadder> ParseLadder(const v1::LadderRequest& request, const Engines& engines,
                                         const RequestLimits& limits) {
  constexpr int kDefaultRepeats = 20;
  constexpr int kMaxRepeats = 1000;
  ParsedLadder ladder;
  ReduceSpec& spec = ladder.spec;

  const absl::StatusOr<DType> dtype = ParseDType("dtype", request.dtype());
  if (!dtype.ok()) return dtype.status();
  spec.dtype = *dtype;
  const absl::StatusOr<Op> op = ParseOp("op", request.op());
  if (!op.ok()) return op.status();
  spec.ops = {*op};
  const std::int64_t max_count = limits.max_ladder_bytes / RowOf(*dtype).bytes;
  if (request.count() < 1 || request.count() > max_count) {
    return absl::InvalidArgumentError(absl::StrFormat("count is %d, allowed are 1 to %d: %d bytes of %s",
                                                      request.count(), max_count, limits.max_ladder_bytes,
                                                      RowOf(*dtype).name));
  }
  spec.count = request.count();
  spec.overflow_policy = OverflowPolicy::kWrap;  // sums of random integers overflow; their last 64 bits compare as well
  const absl::Status status = ValidateSpec(spec);
  if (!status.ok()) return status;

  ladder.contents = {.dtype = *dtype, .seed = request.seed()};
  if (request.has_fill()) {
    const absl::StatusOr<std::uint64_t> fill = FillWord(*dtype, request.fill());
    if (!fill.ok()) return absl::InvalidArgumentError(absl::StrCat("fill: ", fill.status().message()));
    ladder.contents.fill = *fill;
  }
  if (request.repeats() < 0 || request.repeats() > kMaxRepeats) {
    return absl::InvalidArgumentError(absl::StrFormat("repeats is %d, allowed are 0 (%d of them) to %d",
                                                      request.repeats(), kDefaultRepeats, kMaxRepeats));
  }
  ladder.repeats = request.repeats() == 0 ? kDefaultRepeats : request.repeats();

  absl::StatusOr<std::vector<LadderRung>> rungs = ParseRungs(request, engines, spec);
  if (!rungs.ok()) return rungs.status();
  ladder.rungs = *std::move(rungs);
  return ladder;
}

void ToProto(const Value& value, v1::Value* out) {
  out->set_dtype(ToProto(value.dtype));
  std::visit(
      [out](auto x) {
        using T = decltype(x);
        if constexpr (std::is_same_v<T, bool>) out->set_b(x);
        if constexpr (std::is_same_v<T, double>) out->set_f(x);
        if constexpr (std::is_same_v<T, std::int64_t>) out->set_i(x);
        if constexpr (std::is_same_v<T, std::uint64_t>) out->set_u(x);
      },
      value.value);
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.raw_code()), std::string(status.message())};  // the codes are the same
}

}  // namespace reduced
