#include "server/wire/request.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
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
#include "kernels/engine/pipelines.h"
#include "server/sources/uploads.h"

namespace reduced::server {
namespace {

// Longer names can't be right, and would not fit in the status that quotes them.
constexpr std::size_t kMaxPipelineName = 64;
constexpr std::size_t kMaxDeviceName = 64;

// Of an array that is kept, and its shape with it. As many as NumPy's arrays can have.
constexpr int kMaxDimensions = 64;

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

// Exact, unless a pipeline was asked for that can't be.
Precision DefaultPrecision(std::string_view pipeline) {
  const PipelineRow* const row = pipeline.empty() ? nullptr : FindPipeline(pipeline);
  return row == nullptr || row->exact ? Precision::kExact : Precision::kF64;
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
  if (options.device().size() > kMaxDeviceName) {
    return absl::InvalidArgumentError(
        absl::StrFormat("options.device: got %d bytes; allowed: at most %d; see GetServerInfo", options.device().size(),
                        kMaxDeviceName));
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

// What the elements are: dtype and count of the spec, and their bytes.
absl::Status ParseArray(const v1::ArraySpec& array, const RequestLimits& limits, DType* dtype, std::int64_t* count,
                        std::int64_t* bytes) {
  const absl::StatusOr<DType> parsed_dtype = ParseDType("array.dtype", array.dtype());
  if (!parsed_dtype.ok()) return parsed_dtype.status();
  *dtype = *parsed_dtype;
  const absl::StatusOr<std::int64_t> parsed_count = Count(array, limits.max_elements);
  if (!parsed_count.ok()) return parsed_count.status();
  *count = *parsed_count;
  if (__builtin_mul_overflow(*count, std::int64_t{RowOf(*dtype).bytes}, bytes)) {
    return absl::InvalidArgumentError(absl::StrFormat("array.shape is %s: %d elements of %s are more than 2^63 bytes",
                                                      ShapeText(array), *count, RowOf(*dtype).name));
  }
  return absl::OkStatus();
}

// What is asked of the array that the spec has.
absl::Status ParseQuestion(const v1::ReduceRequest& request, const RequestLimits& limits, ReduceSpec* spec) {
  if (request.ops().empty() || request.ops_size() > limits.max_ops) {
    return absl::InvalidArgumentError(
        absl::StrFormat("ops has %d operations, allowed are 1 to %d", request.ops_size(), limits.max_ops));
  }
  spec->ops.reserve(request.ops_size());
  for (int i = 0; i < request.ops_size(); ++i) {
    const absl::StatusOr<Op> op = ParseOp(absl::StrCat("ops[", i, "]"), request.ops(i));
    if (!op.ok()) return op.status();
    spec->ops.push_back(*op);
  }
  const absl::Status status = ParseOptions(request.options(), spec);
  return status.ok() ? ValidateSpec(*spec) : status;
}

// The sources: each says what the array is, where it lies, and what keeps it there.

absl::Status ParseInline(const v1::ReduceRequest& request, const RequestLimits& limits, ParsedRequest* parsed) {
  ReduceSpec& spec = parsed->spec;
  const absl::Status status = ParseArray(request.array(), limits, &spec.dtype, &spec.count, &parsed->bytes);
  if (!status.ok()) return status;
  const std::string& data = request.inline_data();
  if (parsed->bytes != static_cast<std::int64_t>(data.size())) {
    const DTypeRow& dtype = RowOf(spec.dtype);
    return absl::InvalidArgumentError(
        absl::StrFormat("inline_data has %d bytes, but array.shape %s of %s, %d bytes each, needs exactly %d x %d",
                        data.size(), ShapeText(request.array()), dtype.name, dtype.bytes, spec.count, dtype.bytes));
  }
  parsed->source = {.array = {data.data(), MemorySpace::kHost}};
  return absl::OkStatus();
}

absl::Status ParseResident(const v1::ReduceRequest& request, ResidentArrays& arrays, absl::string_view caller,
                           ParsedRequest* parsed) {
  if (request.has_array()) {
    return absl::InvalidArgumentError("array is set beside array_id, but dtype and shape are that array's own");
  }
  absl::StatusOr<std::shared_ptr<const KeptArray>> array = arrays.Find(request.array_id(), caller);
  if (!array.ok()) return array.status();
  parsed->spec.dtype = (*array)->dtype;
  parsed->spec.count = (*array)->count;
  parsed->bytes = (*array)->bytes;
  parsed->source.array = (*array)->memory->array();
  parsed->source.held = *std::move(array);
  return absl::OkStatus();
}

absl::Status ParseRegion(const v1::ReduceRequest& request, const Backend& backend, ParsedRequest* parsed) {
  ReduceSpec& spec = parsed->spec;
  const absl::Status status = ParseArray(request.array(), backend.limits, &spec.dtype, &spec.count, &parsed->bytes);
  if (!status.ok()) return status;
  absl::StatusOr<HeldArray> source = backend.regions.Find(request.region(), parsed->bytes);
  if (!source.ok()) return source.status();
  parsed->source = *std::move(source);
  return absl::OkStatus();
}

absl::Status ParseSource(const v1::ReduceRequest& request, Backend& backend, absl::string_view caller,
                         ParsedRequest* parsed) {
  switch (request.source_case()) {
    case v1::ReduceRequest::kInlineData:
      return ParseInline(request, backend.limits, parsed);
    case v1::ReduceRequest::kArrayId:
      return ParseResident(request, backend.arrays, caller, parsed);
    case v1::ReduceRequest::kRegion:
      return ParseRegion(request, backend, parsed);
    case v1::ReduceRequest::SOURCE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "the request has no source of elements, 1 is needed: inline_data, array_id or region");
}

}  // namespace

absl::StatusOr<ParsedRequest> ParseRequest(const v1::ReduceRequest& request, Backend& backend,
                                           absl::string_view caller) {
  ParsedRequest parsed;
  absl::Status status = ParseSource(request, backend, caller, &parsed);
  if (status.ok()) status = ParseQuestion(request, backend.limits, &parsed.spec);
  if (!status.ok()) return status;
  return parsed;
}

absl::StatusOr<ParsedRequest> ParseHeader(const v1::ReduceRequest& header, const RequestLimits& limits) {
  if (header.source_case() != v1::ReduceRequest::SOURCE_NOT_SET) {
    return absl::InvalidArgumentError("the header names a source, but the elements of a stream come in chunks");
  }
  ParsedRequest parsed;
  ReduceSpec& spec = parsed.spec;
  absl::Status status = ParseArray(header.array(), limits, &spec.dtype, &spec.count, &parsed.bytes);
  if (status.ok()) status = ParseQuestion(header, limits, &spec);
  if (!status.ok()) return status;
  return parsed;
}

absl::Status CheckPart(const v1::StreamPart& part) {
  const auto wrong = [](absl::string_view field, std::int64_t got, absl::string_view allowed) {
    return absl::InvalidArgumentError(absl::StrFormat("stream_part.%s is %d, allowed is %s", field, got, allowed));
  };
  if (part.upload().empty() || part.upload().size() > kMaxUploadId) {
    return absl::InvalidArgumentError(
        absl::StrFormat("stream_part.upload has %d bytes, allowed are 1 to %d", part.upload().size(), kMaxUploadId));
  }
  if (part.parts() < 2 || part.parts() > kMaxParts) {
    return wrong("parts", part.parts(), absl::StrCat("2 to ", kMaxParts));
  }
  if (part.index() < 0 || part.index() >= part.parts()) {
    return wrong("index", part.index(), absl::StrCat("0 to ", part.parts() - 1));
  }
  if (part.first() < 0) return wrong("first", part.first(), "0 or more");
  if (part.count() < 0) return wrong("count", part.count(), "0 or more");
  return absl::OkStatus();
}

absl::StatusOr<ParsedPut> ParsePut(const v1::PutArrayHeader& header, const Engines& engines,
                                   const RequestLimits& limits, absl::string_view caller) {
  ParsedPut put;
  KeptArray& array = put.array;
  const absl::Status status = ParseArray(header.array(), limits, &array.dtype, &array.count, &array.bytes);
  if (!status.ok()) return status;
  if (header.array().shape_size() > kMaxDimensions) {
    return absl::InvalidArgumentError(absl::StrFormat("array.shape has %d dimensions, at most %d are allowed",
                                                      header.array().shape_size(), kMaxDimensions));
  }
  array.spec.set_dtype(header.array().dtype());  // without fields that this version doesn't know
  *array.spec.mutable_shape() = header.array().shape();
  if (header.owner().size() > kMaxOwnerBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("owner has %d bytes, at most %d are allowed", header.owner().size(), kMaxOwnerBytes));
  }
  absl::StatusOr<std::string> owner = OwnerFor(header.owner(), caller);
  if (!owner.ok()) return owner.status();
  array.owner = *std::move(owner);
  array.identity = std::string(caller);
  const std::int64_t max_ttl_ms = absl::ToInt64Milliseconds(limits.max_array_ttl);
  if (header.ttl_ms() < 0 || header.ttl_ms() > max_ttl_ms) {
    return absl::InvalidArgumentError(absl::StrFormat("ttl_ms is %d, allowed are 0 (the default, %d) to %d",
                                                      header.ttl_ms(), absl::ToInt64Milliseconds(limits.array_ttl),
                                                      max_ttl_ms));
  }
  array.ttl = header.ttl_ms() == 0 ? limits.array_ttl : absl::Milliseconds(header.ttl_ms());
  const absl::StatusOr<Engine*> engine = engines.OnDevice(header.device());
  if (!engine.ok()) return engine.status();
  put.engine = *engine;
  array.device = put.engine->info().name;
  return put;
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

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.raw_code()), std::string(status.message())};  // the codes are the same
}

}  // namespace reduced::server
