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

// The ops and options of a request, about an array of that shape. INVALID_ARGUMENT: also a request along axes.
absl::StatusOr<ReduceSpec> ParseQuestion(const v1::ReduceRequest& request, const ArrayShape& shape,
                                         const RequestLimits& limits);

// What a response has in addition to what every one has.
struct Wanted {
  bool results = true;
  bool state = false;
};
absl::StatusOr<Wanted> ParseWanted(const v1::ReduceRequest& request);

// The same of a request along axes.
struct SlicesQuestion {
  ReduceSpec spec;                  // its count: of the whole array
  Layout layout;                    // of the array
  std::vector<std::int64_t> shape;  // of the results
  std::int64_t result_bytes = 0;    // of all results together
};
// `dimensions`: of the array.
absl::StatusOr<SlicesQuestion> ParseSlices(const v1::ReduceRequest& request, const ArrayShape& shape,
                                           absl::Span<const std::int64_t> dimensions, const RequestLimits& limits);

// The header of a stream: a request without a source. `shape`: of the array.
absl::StatusOr<ReduceSpec> ParseHeader(const v1::ReduceRequest& header, const RequestLimits& limits, ArrayShape* shape);

// Checks that the elements that came with a request are as many bytes as their array needs: inline ones, or `bytes` in
// `field`.
absl::Status CheckInlineData(const v1::ReduceRequest& request, const ArrayShape& shape);
absl::Status CheckElementBytes(const char* field, std::int64_t bytes, const v1::ReduceRequest& request,
                               const ArrayShape& shape);

// The part of an upload that a stream has, as the client sent it: CheckPart of uploads.h has not seen it.
UploadPart ToPart(const v1::StreamPart& part);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_WIRE_REQUEST_H_
