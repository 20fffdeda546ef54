// Arrays in regions whose elements have strides, or are in big-endian byte order.
#ifndef REDUCED_SERVER_SOURCES_STRIDED_REGION_H_
#define REDUCED_SERVER_SOURCES_STRIDED_REGION_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/algebra/dtype.h"
#include "kernels/engine/array.h"
#include "reduced/v1/reduced.pb.h"
#include "server/sources/regions.h"

namespace reduced::server {

// Finds an array of that shape, which has been checked, as Regions::Find does: with ArrayRef::read in host memory,
// ArrayRef::strided in that of a device; as any other array, if its elements lie next to each other in C order.
// INVALID_ARGUMENT: the strides are not as many as dimensions, or more than 64, or the offset is not below 0.
absl::StatusOr<HeldArray> FindStrided(const Regions& regions, const v1::RegionPart& part, DType dtype,
                                      absl::Span<const std::int64_t> shape);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SOURCES_STRIDED_REGION_H_
