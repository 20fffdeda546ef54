#include "server/wire/request.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/algebra/layout.h"
#include "kernels/folds/fold.h"
#include "kernels/system/status_macros.h"
#include "proto/codec/enums.h"
#include "proto/codec/op_call.h"

namespace reduced::server {
namespace {

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

bool HasPartition(const v1::ReduceRequest& request) {
  return request.has_axes() || request.has_segments() || request.has_keys() || request.has_where();
}

}  // namespace

absl::StatusOr<ArrayShape> ParseArray(const v1::ArraySpec& array, const RequestLimits& limits) {
  ASSIGN_OR_RETURN(const DType dtype, ParseDType("array.dtype", array.dtype()));
  ASSIGN_OR_RETURN(const std::int64_t count, Count(array, limits.max_elements));
  ArrayShape shape{.dtype = dtype, .count = count};
  if (__builtin_mul_overflow(count, std::int64_t{RowOf(dtype).bytes}, &shape.bytes)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("array.shape: got %s, %d elements of %s; allowed: less than 2^63 bytes", ShapeText(array),
                        count, RowOf(dtype).name));
  }
  return shape;
}

namespace {

// What a stream, whose elements cannot be read again, does not answer.
absl::Status CheckStreamed(const v1::ReduceRequest& header, const Question& question) {
  if (header.has_keep() || header.has_write_to()) {
    return absl::UnimplementedError("keep, write_to: got one in a stream; allowed: in Reduce");
  }
  for (const OpCall& call : question.spec.ops) {
    if (IsMatrix(call.op)) {
      return absl::UnimplementedError(
          absl::StrFormat("%s: got %s in a stream, which may be cut within a row; allowed: in Reduce",
                          ArraysField(header), RowOf(call.op).name));
    }
    if (IsWeightedQuantile(call.op)) {
      return absl::UnimplementedError(absl::StrFormat(
          "%s: got %s in a stream, whose elements are read once and not stored; allowed: in Reduce, and "
          "in sessions",
          ArraysField(header), RowOf(call.op).name));
    }
    if (HasAccumulator(call) || MostEntries(call, question.spec.dtype).has_value()) continue;
    return absl::UnimplementedError(absl::StrFormat(
        "%s: got %s of %s in a stream, whose elements are read once and not stored; allowed: in Reduce, of elements "
        "in the request, of a resident array (PutArray) or in a region; of dtypes of 8 and 16 bits also in a stream",
        ArraysField(header), RowOf(call.op).name, RowOf(question.spec.dtype).name));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::int64_t> CheckResultBytes(const v1::ReduceRequest& request, const ReduceSpec& spec,
                                              std::int64_t outputs, std::int64_t groups, std::int64_t key_bytes,
                                              const RequestLimits& limits) {
  std::int64_t bytes = 0;
  bool overflow = __builtin_mul_overflow(groups, key_bytes, &bytes);
  for (const OpCall& op : spec.ops) {
    std::int64_t more = 0;
    overflow = overflow || __builtin_mul_overflow(outputs, ResultBytes(op, spec.dtype), &more) ||
               __builtin_add_overflow(bytes, more, &bytes);
  }
  if (overflow) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: got %d outputs; allowed: results of less than 2^63 bytes", ArraysField(request), outputs));
  }
  if (!request.has_keep() && !request.has_write_to() && bytes > limits.max_result_bytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: got %d outputs, results of %d bytes; allowed: %d bytes in a response "
                        "(--max_result_bytes); larger ones can be kept on the server or written to a region",
                        ArraysField(request), outputs, bytes, limits.max_result_bytes));
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

namespace {

// The array of y or the weights in a header, whose elements come in chunks beside those of `array`.
absl::StatusOr<FoundSide> StreamedSide(const char* field, const v1::SideArray& side, const v1::ArraySpec& array,
                                       const RequestLimits& limits) {
  if (side.source_case() != v1::SideArray::SOURCE_NOT_SET) {
    return absl::UnimplementedError(absl::StrFormat(
        "%s: got a source in a stream; allowed: none, since the elements follow in chunks of %s_chunk", field, field));
  }
  const absl::StatusOr<ArrayShape> shape = ParseArray(side.array(), limits);
  if (!shape.ok()) {
    return absl::Status(shape.status().code(), absl::StrCat(field, ".", std::string(shape.status().message())));
  }
  if (!std::ranges::equal(side.array().shape(), array.shape())) {
    return absl::UnimplementedError(absl::StrFormat("%s: got shape %s in a stream; allowed: %s, that of the array",
                                                    field, ShapeText(side.array()), ShapeText(array)));
  }
  return FoundSide{{.dtype = shape->dtype, .count = shape->count},
                   {side.array().shape().begin(), side.array().shape().end()}};
}

}  // namespace

absl::StatusOr<Question> ParseHeader(const v1::ReduceRequest& header, const RequestLimits& limits, ArrayShape* shape) {
  if (header.source_case() != v1::ReduceRequest::SOURCE_NOT_SET) {
    return absl::InvalidArgumentError("header: got a source; allowed: none, since the elements follow in chunks");
  }
  ASSIGN_OR_RETURN(*shape, ParseArray(header.array(), limits));
  if (HasPartition(header)) {
    return absl::UnimplementedError(
        absl::StrCat(ArraysField(header), ": got some in a stream; allowed: in Reduce and in sessions"));
  }
  absl::StatusOr<Question> question = ParseQuestion(
      header, {shape->dtype, shape->count, header.array().shape()}, limits.max_ops,
      [&](const char* field, const v1::SideArray& side) { return StreamedSide(field, side, header.array(), limits); });
  if (!question.ok()) return question;
  RETURN_IF_ERROR(CheckStreamed(header, *question));
  return question;
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
