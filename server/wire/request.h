// Parses requests: an ArraySpec becomes an ArrayShape, a ReduceRequest a validated ReduceSpec. Every error that does
// not depend on the elements is found here, before the request takes any resource.
//
// Errors are INVALID_ARGUMENT and name the field, what it has and what is allowed; text of the client is escaped and
// cut.
#ifndef REDUCED_SERVER_WIRE_REQUEST_H_
#define REDUCED_SERVER_WIRE_REQUEST_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/algebra/layout.h"
#include "kernels/algebra/spec.h"
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

// As many dimensions as NumPy's arrays can have: of resident arrays, which store their shape, and of requests along
// axes.
inline constexpr int kMaxDimensions = 64;

absl::StatusOr<ArrayShape> ParseArray(const v1::ArraySpec& array, const RequestLimits& limits);

// Whether a request is answered with arrays: it has axes, segments, keys or where.
bool AsksForArrays(const v1::ReduceRequest& request);

// The ops and options of a request, about an array of that shape. UNIMPLEMENTED: it asks for arrays.
absl::StatusOr<ReduceSpec> ParseQuestion(const v1::ReduceRequest& request, const ArrayShape& shape,
                                         const RequestLimits& limits);

// What a response has in addition to what every one has.
struct Wanted {
  bool results = true;
  bool state = false;
  bool op_errors = false;  // an op that has no answer does not take the others with it
};
absl::StatusOr<Wanted> ParseWanted(const v1::ReduceRequest& request);

// The same of a request for arrays.
struct SlicesQuestion {
  ReduceSpec spec;  // its count: of the whole array
  Layout layout;    // of the array; with segments or keys along dimension 0
  // Of the results; with segments and keys of each of them, so without the first dimension, which is how many there
  // are.
  std::vector<std::int64_t> shape;
};
// `dimensions`: of the array. INVALID_ARGUMENT: also of fields beside each other that exclude each other.
absl::StatusOr<SlicesQuestion> ParseSlices(const v1::ReduceRequest& request, const ArrayShape& shape,
                                           absl::Span<const std::int64_t> dimensions, const RequestLimits& limits);

// The bytes of all results of a request together. INVALID_ARGUMENT: they are more than a response may have, and are
// neither to be kept nor written to a region. `key_bytes`: of each key that is answered with `groups` others; 0: none
// is.
absl::StatusOr<std::int64_t> CheckResultBytes(const v1::ReduceRequest& request, const ReduceSpec& spec,
                                              std::int64_t outputs, std::int64_t groups, std::int64_t key_bytes,
                                              const RequestLimits& limits);

// INVALID_ARGUMENT: the states of so many outputs, of `bytes` bytes with the results, are more than a response may
// have.
absl::Status CheckStateBytes(std::int64_t states, std::int64_t bytes, const RequestLimits& limits);

// The header of a stream: a request without a source. `shape`: of the array.
absl::StatusOr<ReduceSpec> ParseHeader(const v1::ReduceRequest& header, const RequestLimits& limits, ArrayShape* shape);

// Checks that the elements that came with a request, `bytes` of them in `field`, are as many as their array needs.
absl::Status CheckElementBytes(const char* field, std::int64_t bytes, const v1::ArraySpec& array,
                               const ArrayShape& shape);

// The part of an upload that a stream has, as the client sent it: CheckPart of uploads.h has not seen it.
UploadPart ToPart(const v1::StreamPart& part);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_WIRE_REQUEST_H_
