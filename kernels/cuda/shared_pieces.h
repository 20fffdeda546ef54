// Device memory of other processes that CUDA's virtual memory management has (cuMemCreate): each piece comes by a
// descriptor, and pieces are mapped one behind the other, for reading.
#ifndef REDUCED_KERNELS_CUDA_SHARED_PIECES_H_
#define REDUCED_KERNELS_CUDA_SHARED_PIECES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/engine/array.h"

namespace reduced {

struct DeviceRange {
  const std::byte* base = nullptr;
  std::int64_t bytes = 0;
};

struct MappedPieces {
  DeviceRange range{};
  std::shared_ptr<const void> held{};  // unmaps them
};

// As Engine::Import, by the current device.
absl::StatusOr<std::shared_ptr<const void>> ImportPiece(int device, int file);

// Maps pieces of ImportPiece, one at least. The mapping keeps their memory. INVALID_ARGUMENT: a piece has another size,
// or together they have more bytes than the device. RESOURCE_EXHAUSTED: there are no addresses left.
absl::StatusOr<MappedPieces> MapPieces(int device, const std::vector<SharedPiece>& pieces);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_SHARED_PIECES_H_
