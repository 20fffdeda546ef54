// The DeviceBuffer of a build without CUDA: there is none.
#include "client/reducectl/loadtest/device.h"

namespace reduced::client {

absl::Status DeviceBuffer::Available() {
  return absl::UnimplementedError("this reducectl was built without CUDA, which is required to share memory of a GPU");
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> DeviceBuffer::Share(Client&, const void*, std::int64_t) {
  return Available();
}

}  // namespace reduced::client
