#include "server/wire/request.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/engine/pipelines.h"
#include "server/wire/enums.h"

namespace reduced::server {
namespace {

// Longer names can't be right, and would not fit in the status that quotes them.
constexpr std::size_t kMaxPipelineName = 64;
constexpr std::size_t kMaxDeviceName = 64;

std::string ShapeText(const v1::ArraySpec& array) {
  return reduced::ShapeText({array.shape().data(), static_cast<std::size_t>(array.shape_size())});
}

// The number of elements: the product of the dimensions, 1 without any.
absl::StatusOr<std::int64_t> Count(const v1::ArraySpec& array, std::int64_t max_elements) {
  bool empty = false;
  for (int i = 0; i < array.shape_size(); ++i) {
    if (array.shape(i) < 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("array.shape[%d]: got %d; allowed: 0 or more", i, array.shape(i)));
    }
    empty = empty || array.shape(i) == 0;
  }
  if (empty) return 0;
  std::int64_t count = 1;
  for (const std::int64_t size : array.shape()) {
    if (__builtin_mul_overflow(count, size, &count)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("array.shape: got %s, more elements than 64 bits can count; allowed: %d elements",
                          ShapeText(array), max_elements));
    }
  }
  if (count > max_elements) {
    return absl::InvalidArgumentError(absl::StrFormat("array.shape: got %s, %d elements; allowed: %d elements",
                                                      ShapeText(array), count, max_elements));
  }
  return count;
}

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
absl::StatusOr<ReduceSpec> ParseSpec(const v1::ReduceRequest& request, const ArrayShape& shape,
                                     const RequestLimits& limits) {
  if (request.ops().empty() || request.ops_size() > limits.max_ops) {
    return absl::InvalidArgumentError(
        absl::StrFormat("ops: got %d operations; allowed: 1 to %d", request.ops_size(), limits.max_ops));
  }
  ReduceSpec spec;
  spec.dtype = shape.dtype;
  spec.count = shape.count;
  spec.ops.reserve(static_cast<std::size_t>(request.ops_size()));
  for (int i = 0; i < request.ops_size(); ++i) {
    const absl::StatusOr<Op> op = ParseOp(absl::StrCat("ops[", i, "]"), request.ops(i));
    if (!op.ok()) return op.status();
    spec.ops.push_back(*op);
  }
  const absl::Status status = ParseOptions(request.options(), &spec);
  if (!status.ok()) return status;
  return spec;
}

// The field by which a request falls apart into outputs.
const char* PartitionOf(const v1::ReduceRequest& request) {
  return request.has_axes()       ? "axes"
         : request.has_segments() ? "segments"
         : request.has_keys()     ? "keys"
         : request.has_where()    ? "where"
                                  : nullptr;
}

}  // namespace

bool AsksForArrays(const v1::ReduceRequest& request) { return PartitionOf(request) != nullptr; }

absl::StatusOr<ArrayShape> ParseArray(const v1::ArraySpec& array, const RequestLimits& limits) {
  const absl::StatusOr<DType> dtype = ParseDType("array.dtype", array.dtype());
  if (!dtype.ok()) return dtype.status();
  const absl::StatusOr<std::int64_t> count = Count(array, limits.max_elements);
  if (!count.ok()) return count.status();
  ArrayShape shape{.dtype = *dtype, .count = *count};
  if (__builtin_mul_overflow(*count, std::int64_t{RowOf(*dtype).bytes}, &shape.bytes)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("array.shape: got %s, %d elements of %s; allowed: less than 2^63 bytes", ShapeText(array),
                        *count, RowOf(*dtype).name));
  }
  return shape;
}

absl::StatusOr<ReduceSpec> ParseQuestion(const v1::ReduceRequest& request, const ArrayShape& shape,
                                         const RequestLimits& limits) {
  if (const char* const field = PartitionOf(request)) {
    return absl::UnimplementedError(absl::StrCat(field, ": got some in a session or a stream; allowed: in Reduce"));
  }
  if (request.empty() != v1::EMPTY_POLICY_DEFAULT) {
    return absl::InvalidArgumentError(
        "empty: got a policy without axes; allowed: none, or with axes, segments, keys or where");
  }
  if (request.has_keep()) {
    return absl::InvalidArgumentError("keep: got it without axes; allowed: with axes, segments, keys or where");
  }
  if (request.has_write_to()) {
    return absl::InvalidArgumentError("write_to: got it without axes; allowed: with axes, segments, keys or where");
  }
  absl::StatusOr<ReduceSpec> spec = ParseSpec(request, shape, limits);
  if (!spec.ok()) return spec.status();
  const absl::Status status = ValidateSpec(*spec, request.op_errors());
  if (!status.ok()) return status;
  return spec;
}

absl::StatusOr<Wanted> ParseWanted(const v1::ReduceRequest& request) {
  if (request.omit_results() && !request.return_state()) {
    return absl::InvalidArgumentError("omit_results: got true without return_state; allowed: false, or with it");
  }
  return Wanted{.results = !request.omit_results(), .state = request.return_state(), .op_errors = request.op_errors()};
}

absl::StatusOr<SlicesQuestion> ParseSlices(const v1::ReduceRequest& request, const ArrayShape& shape,
                                           absl::Span<const std::int64_t> dimensions, const RequestLimits& limits) {
  const char* const field = PartitionOf(request);
  if (request.has_axes() + request.has_segments() + request.has_keys() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(request.has_keys() ? "keys" : "segments", ": got it beside ", field,
                                                   "; allowed: one of axes, ", "segments, keys"));
  }
  if (request.return_state() && request.has_segments()) {
    return absl::InvalidArgumentError(
        "return_state: got true with segments; allowed: false, or true with axes, keys or where");
  }
  if (request.omit_results() && (request.has_keep() || request.has_write_to())) {
    return absl::InvalidArgumentError("omit_results: got true beside keep or write_to; allowed: false, or neither");
  }
  if (request.has_keep() && request.has_write_to()) {
    return absl::InvalidArgumentError("write_to: got it beside keep; allowed: one of them");
  }
  if (!v1::EmptyPolicy_IsValid(request.empty())) return UnknownValue("empty", request.empty());
  absl::StatusOr<ReduceSpec> spec = ParseSpec(request, shape, limits);
  if (!spec.ok()) return spec.status();
  if (request.empty() != v1::EMPTY_POLICY_DEFAULT) spec->empty_policy = static_cast<EmptyPolicy>(request.empty());
  if (dimensions.size() > kMaxDimensions) {
    return absl::InvalidArgumentError(absl::StrFormat("array.shape: got %d dimensions; allowed: %d with %s",
                                                      dimensions.size(), kMaxDimensions, field));
  }
  const std::span<const std::int64_t> extents(dimensions.data(), dimensions.size());
  const bool grouped = request.has_segments() || request.has_keys();
  absl::StatusOr<std::vector<bool>> reduced = std::vector<bool>(extents.size(), !grouped);  // where alone: all of them
  if (grouped) {
    if (extents.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("array.shape: got a scalar; allowed: 1 dimension or more with ", field));
    }
    reduced->front() = true;
  } else if (request.has_axes()) {
    const auto& axes = request.axes().axis();
    reduced = ReducedDimensions({axes.data(), static_cast<std::size_t>(axes.size())}, extents.size());
    if (!reduced.ok()) return reduced.status();
  }
  SlicesQuestion question{.spec = *std::move(spec),
                          .layout = LayoutOf(extents, *reduced),
                          .shape = ResultShape(extents, *reduced, request.axes().keepdims())};
  Layout one = question.layout;
  if (grouped || request.has_where()) one.elements = 1;  // whether an output has none is found out later
  const absl::Status status = ValidateSlices(question.spec, one, request.op_errors());
  if (!status.ok()) return status;
  return question;
}

absl::StatusOr<std::int64_t> CheckResultBytes(const v1::ReduceRequest& request, const ReduceSpec& spec,
                                              std::int64_t outputs, std::int64_t groups, std::int64_t key_bytes,
                                              const RequestLimits& limits) {
  std::int64_t bytes = 0;
  bool overflow = __builtin_mul_overflow(groups, key_bytes, &bytes);
  for (const Op op : spec.ops) {
    std::int64_t more = 0;
    overflow = overflow ||
               __builtin_mul_overflow(outputs, std::int64_t{RowOf(ResultDType(op, spec.dtype)).bytes}, &more) ||
               __builtin_add_overflow(bytes, more, &bytes);
  }
  if (overflow) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: got %d outputs; allowed: results of less than 2^63 bytes", PartitionOf(request), outputs));
  }
  if (!request.has_keep() && !request.has_write_to() && bytes > limits.max_result_bytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: got %d outputs, results of %d bytes; allowed: %d bytes in a response "
                        "(--max_result_bytes); larger ones can be kept on the server or written to a region",
                        PartitionOf(request), outputs, bytes, limits.max_result_bytes));
  }
  return bytes;
}

absl::Status CheckStateBytes(std::int64_t states, std::int64_t bytes, const RequestLimits& limits) {
  if (bytes <= limits.max_result_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("return_state: got states of %d outputs, of %d bytes or more; allowed: %d bytes in a response "
                      "(--max_result_bytes)",
                      states, bytes, limits.max_result_bytes));
}

absl::StatusOr<ReduceSpec> ParseHeader(const v1::ReduceRequest& header, const RequestLimits& limits,
                                       ArrayShape* shape) {
  if (header.source_case() != v1::ReduceRequest::SOURCE_NOT_SET) {
    return absl::InvalidArgumentError("header: got a source; allowed: none, since the elements follow in chunks");
  }
  const absl::StatusOr<ArrayShape> parsed = ParseArray(header.array(), limits);
  if (!parsed.ok()) return parsed.status();
  *shape = *parsed;
  return ParseQuestion(header, *shape, limits);
}

absl::Status CheckElementBytes(const char* field, std::int64_t bytes, const v1::ArraySpec& array,
                               const ArrayShape& shape) {
  if (shape.bytes == bytes) return absl::OkStatus();
  const DTypeRow& dtype = RowOf(shape.dtype);
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: got %d bytes; allowed: %d x %d bytes, for array.shape %s of %s", field, bytes, shape.count,
                      dtype.bytes, ShapeText(array), dtype.name));
}

UploadPart ToPart(const v1::StreamPart& part) {
  return {.upload = part.upload(),
          .parts = part.parts(),
          .index = part.index(),
          .first = part.first(),
          .count = part.count()};
}

}  // namespace reduced::server
