// Memory of a GPU of this process that the server reads where it is, for --via device_region.
#ifndef REDUCED_CLIENT_REDUCECTL_LOADTEST_DEVICE_H_
#define REDUCED_CLIENT_REDUCECTL_LOADTEST_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reduced/client.h"

namespace reduced::client {

// Thread-compatible. It must be destroyed before the client.
class DeviceBuffer {
 public:
  // FAILED_PRECONDITION: this process has no GPU. UNIMPLEMENTED: reducectl was built without CUDA.
  static absl::Status Available();

  // Copies `bytes` from `data` to device memory and shares that with the client's server. RESOURCE_EXHAUSTED: the GPU
  // has no room. Other errors are those of Available and Client::ShareDevice.
  static absl::StatusOr<std::unique_ptr<DeviceBuffer>> Share(Client& client, const void* data, std::int64_t bytes);

  virtual ~DeviceBuffer() = default;

  // The elements that start at byte `offset`.
  virtual RemoteArray Array(const std::string& dtype, std::vector<std::int64_t> shape, std::int64_t offset) const = 0;

  // Copies from host memory to the start of the buffer. Blocks until the copy is complete.
  virtual absl::Status Write(const void* data, std::int64_t bytes) = 0;
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_LOADTEST_DEVICE_H_
