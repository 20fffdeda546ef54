// Shares memory of a GPU with a server on the same machine, which reduces it where it is: nothing is copied. This
// header requires the CUDA runtime; the library doesn't.
//
//   auto region = reduced::client::ShareDevice(*client, device_pointer, bytes);
//   auto reply = client->Reduce(region->Array("f32", {count}), {"sum"});
#ifndef REDUCED_CUDA_H_
#define REDUCED_CUDA_H_

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reduced/client.h"

namespace reduced::client {

// Shares `bytes` of device memory that cudaMalloc allocated; `data` may point anywhere into the allocation. The
// allocation must outlive the region. The server can read all of it. Each reduction waits for the work that was
// recorded in `event` when the reduction starts, unless `event` is null; create it with cudaEventInterprocess |
// cudaEventDisableTiming. INVALID_ARGUMENT: this isn't device memory, or CUDA has no handle for it. Other errors are
// those of Client::ShareDevice.
inline absl::StatusOr<Region> ShareDevice(Client& client, const void* data, std::int64_t bytes,
                                          cudaEvent_t event = nullptr, const ShareOptions& options = {}) {
  const auto failed = [](const char* what, cudaError_t error) {
    return absl::InvalidArgumentError(std::string(what) + ": " + cudaGetErrorString(error));
  };
  cudaPointerAttributes attributes;
  if (const cudaError_t error = cudaPointerGetAttributes(&attributes, data); error != cudaSuccess) {
    return failed("cudaPointerGetAttributes", error);
  }
  if (attributes.type != cudaMemoryTypeDevice)
    return absl::InvalidArgumentError("data: got a pointer to other memory; allowed: device memory");
  // The runtime has no function for the start of an allocation.
  void* range = nullptr;
  cudaDriverEntryPointQueryResult found;
  const cudaError_t no_range =
      cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &range, 3020, cudaEnableDefault, &found);
  if (no_range != cudaSuccess) return failed("cuMemGetAddressRange", no_range);
  CUdeviceptr base = 0;
  std::size_t allocated = 0;
  if (reinterpret_cast<decltype(&cuMemGetAddressRange)>(range)(&base, &allocated,
                                                               reinterpret_cast<CUdeviceptr>(data)) != CUDA_SUCCESS) {
    return absl::InvalidArgumentError("data: got a pointer outside any allocation; allowed: memory of cudaMalloc");
  }
  cudaIpcMemHandle_t handle;
  if (const cudaError_t error = cudaIpcGetMemHandle(&handle, reinterpret_cast<void*>(base)); error != cudaSuccess) {
    return failed("cudaIpcGetMemHandle", error);
  }
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, attributes.device); error != cudaSuccess) {
    return failed("cudaGetDeviceProperties", error);
  }
  DeviceMemory memory{.handle = std::string(handle.reserved, sizeof(handle.reserved)),
                      .device_uuid = std::string(properties.uuid.bytes, sizeof(properties.uuid.bytes)),
                      .offset = static_cast<std::int64_t>(reinterpret_cast<CUdeviceptr>(data) - base),
                      .bytes = bytes};
  if (event != nullptr) {
    cudaIpcEventHandle_t event_handle;
    if (const cudaError_t error = cudaIpcGetEventHandle(&event_handle, event); error != cudaSuccess) {
      return failed("cudaIpcGetEventHandle", error);
    }
    memory.event.assign(event_handle.reserved, sizeof(event_handle.reserved));
  }
  return client.ShareDevice(memory, options);
}

}  // namespace reduced::client

#endif  // REDUCED_CUDA_H_
