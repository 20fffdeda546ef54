// Memory of a GPU of this process that the server reads where it is: what --via ipc asks about.
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

// Thread-compatible. Must go before the client does whose server it is shared with.
class DeviceBuffer {
 public:
  // FAILED_PRECONDITION: this process has no GPU. UNIMPLEMENTED: reducectl was built without CUDA.
  static absl::Status Available();

  // `bytes` of device memory, a copy of those at `data`, shared with the client's server. RESOURCE_EXHAUSTED: the GPU
  // has no room. Else as Available, or Client::ShareDevice.
  static absl::StatusOr<std::unique_ptr<DeviceBuffer>> Share(Client& client, const void* data, std::int64_t bytes);

  virtual ~DeviceBuffer() = default;

  // The elements from byte `offset` on.
  virtual RemoteArray Array(const std::string& dtype, std::vector<std::int64_t> shape, std::int64_t offset) const = 0;

  // Copies from host memory to the beginning; blocks until it is there.
  virtual absl::Status Write(const void* data, std::int64_t bytes) = 0;
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_LOADTEST_DEVICE_H_
