#include "server/sources/strided_region.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "kernels/system/gather.h"
#include "kernels/system/status_macros.h"

namespace reduced::server {
namespace {

// What reads the elements, and the region that has them.
struct StridedRegion {
  StridedReader reader;
  HeldArray region;
  ReadElements read{};
};

// Those of dense C order, if the message has none.
absl::StatusOr<std::vector<std::int64_t>> StridesOf(const v1::RegionPart& part, std::int64_t width,
                                                    absl::Span<const std::int64_t> shape) {
  if (shape.size() > kMostStrides) {
    return absl::InvalidArgumentError(
        absl::StrFormat("array.shape: got %d dimensions with region.strides or region.big_endian; allowed: %d",
                        shape.size(), kMostStrides));
  }
  if (!part.strides().empty()) {
    if (static_cast<std::size_t>(part.strides_size()) == shape.size()) {
      return std::vector<std::int64_t>(part.strides().begin(), part.strides().end());
    }
    return absl::InvalidArgumentError(
        absl::StrFormat("region.strides: got %d; allowed: %d, one for each dimension of the array, or none",
                        part.strides_size(), shape.size()));
  }
  std::vector<std::int64_t> strides(shape.size(), width);
  for (std::size_t i = shape.size(); i-- > 1;) {
    // Of an array without elements the product may be too large, and is not used.
    if (__builtin_mul_overflow(strides[i], shape[i], &strides[i - 1])) strides[i - 1] = width;
  }
  return strides;
}

}  // namespace

absl::StatusOr<HeldArray> FindStrided(const Regions& regions, const v1::RegionPart& part, DType dtype,
                                      absl::Span<const std::int64_t> shape) {
  if (part.offset() >= 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "region.offset: got %d with strides or big_endian; allowed: -1 - the byte, below 0", part.offset()));
  }
  v1::RegionPart at = part;
  at.set_offset(-1 - part.offset());
  StridedArray array{.width = RowOf(dtype).bytes, .shape = {shape.begin(), shape.end()}, .swaps = part.big_endian()};
  ASSIGN_OR_RETURN(array.strides, StridesOf(part, array.width, shape));
  const std::optional<ByteSpan> span = SpanOf(array.shape, array.strides, array.width);
  if (!span.has_value()) {
    return absl::OutOfRangeError(
        "region.strides: got elements that are 2^63 bytes or more apart; allowed: within the bytes of the region");
  }
  ASSIGN_OR_RETURN(HeldArray found, regions.Find(at, *span));
  if (span->end == span->begin) return found;  // it has no elements
  array.data = static_cast<const std::byte*>(found.array.data);
  const auto strided = std::make_shared<StridedRegion>(StridedRegion{StridedReader(array), std::move(found)});
  const StridedReader& reader = strided->reader;
  const ArrayRef& where = strided->region.array;
  if (reader.dense()) return HeldArray{where, strided};
  if (where.space == MemorySpace::kDevice) {
    return HeldArray{{.space = where.space, .strided = &reader, .ready = where.ready, .device = where.device}, strided};
  }
  strided->read = [&reader, &where](std::int64_t offset, char* to, std::int64_t bytes) -> absl::Status {
    const std::int64_t first = offset / reader.width(), count = bytes / reader.width();
    auto* const elements = reinterpret_cast<std::byte*>(to);
    if (where.data == nullptr) return reader.ReadFrom(where.file, where.offset, first, count, elements);
    reader.Read(first, count, elements);
    return absl::OkStatus();
  };
  const MemorySpace space = where.data == nullptr ? MemorySpace::kFile : MemorySpace::kHost;
  return HeldArray{{.space = space, .read = &strided->read}, strided};
}

}  // namespace reduced::server
