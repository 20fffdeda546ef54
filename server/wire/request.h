// Parses requests, as far as the server alone has them: an ArraySpec becomes an ArrayShape, the header of a stream a
// Question; and the limits of responses. proto/question/question.h parses what a request asks.
//
// Errors are INVALID_ARGUMENT and name the field, what it has and what is allowed; text of the client is escaped and
// cut.
#ifndef REDUCED_SERVER_WIRE_REQUEST_H_
#define REDUCED_SERVER_WIRE_REQUEST_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/algebra/spec.h"
#include "proto/question/question.h"
#include "reduced/v1/reduced.pb.h"
#include "server/config/options.h"
#include "server/sources/uploads.h"

namespace reduced::server {

// What the elements of an array are, without the elements.
struct ArrayShape {
  DType dtype = DType::kF32;
  std::int64_t count = 0;  // elements
  std::int64_t bytes = 0;
};

absl::StatusOr<ArrayShape> ParseArray(const v1::ArraySpec& array, const RequestLimits& limits);

// The bytes of all results of a request together. INVALID_ARGUMENT: they are more than a response may have, and are
// neither to be kept nor written to a region. `key_bytes`: of each key that is answered with `groups` others; 0: none
// is.
absl::StatusOr<std::int64_t> CheckResultBytes(const v1::ReduceRequest& request, const ReduceSpec& spec,
                                              std::int64_t outputs, std::int64_t groups, std::int64_t key_bytes,
                                              const RequestLimits& limits);

// INVALID_ARGUMENT: the states of so many outputs, of `bytes` bytes with the results, are more than a response may
// have.
absl::Status CheckStateBytes(std::int64_t states, std::int64_t bytes, const RequestLimits& limits);

// The header of a stream: a request without a source or a partition. `shape`: of the array. The question has the dtypes
// of y and the weights, without elements. UNIMPLEMENTED: it has a partition, y or weights of another shape or with a
// source, or an op that a stream, whose elements are read once, does not answer.
absl::StatusOr<Question> ParseHeader(const v1::ReduceRequest& header, const RequestLimits& limits, ArrayShape* shape);

// Checks that the elements that came with a request, `bytes` of them in `field`, are as many as their array needs.
absl::Status CheckElementBytes(const char* field, std::int64_t bytes, const v1::ArraySpec& array,
                               const ArrayShape& shape);

// The part of an upload that a stream has, as the client sent it: CheckPart of uploads.h has not seen it.
UploadPart ToPart(const v1::StreamPart& part);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_WIRE_REQUEST_H_
