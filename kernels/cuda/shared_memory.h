// Memory of other processes that a CUDA device can reach: host memory registered with it, and device memory by CUDA's
// IPC handles or, piece by piece, by descriptors.
#ifndef REDUCED_KERNELS_CUDA_SHARED_MEMORY_H_
#define REDUCED_KERNELS_CUDA_SHARED_MEMORY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/engine/engine.h"

namespace reduced {

// Thread-safe. What it gives out may outlive it.
class CudaSharedMemory {
 public:
  CudaSharedMemory(int device, std::string device_uuid);

  absl::StatusOr<std::shared_ptr<const void>> Pin(const void* data, std::int64_t bytes) const;  // as Engine::Pin
  absl::StatusOr<std::shared_ptr<const void>> Import(int file) const;                           // as Engine::Import
  absl::StatusOr<HeldArray> Open(const SharedDeviceMemory& memory) const;                       // as Engine::Open

 private:
  class Allocations;

  const int device_;
  const std::string device_uuid_;
  const std::shared_ptr<Allocations> allocations_;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_SHARED_MEMORY_H_
