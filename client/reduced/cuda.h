// Shares memory of a GPU with a server on the same machine, which reduces it where it is: nothing is copied. This
// header requires the CUDA runtime; the library doesn't.
//
//   auto region = reduced::client::ShareDevice(*client, device_pointer, bytes);
//   auto reply = client->Reduce(region->Array("f32", {count}), {"sum"});
#ifndef REDUCED_CUDA_H_
#define REDUCED_CUDA_H_

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reduced/client.h"

namespace reduced::client {

namespace cuda_internal {

// A function of the driver that the runtime has none for, as it has been since version `since` of CUDA; null: none.
template <class Function>
Function DriverFunction(const char* name, unsigned since) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &function, since, cudaEnableDefault, &found);
  return error == cudaSuccess ? reinterpret_cast<Function>(function) : nullptr;
}

struct Driver {
  decltype(&cuMemGetAddressRange) range = DriverFunction<decltype(range)>("cuMemGetAddressRange", 3020);
  decltype(&cuPointerGetAttribute) attribute = DriverFunction<decltype(attribute)>("cuPointerGetAttribute", 4000);
  decltype(&cuMemRetainAllocationHandle) retain =
      DriverFunction<decltype(retain)>("cuMemRetainAllocationHandle", 11000);
  decltype(&cuMemGetAllocationPropertiesFromHandle) properties =
      DriverFunction<decltype(properties)>("cuMemGetAllocationPropertiesFromHandle", 10020);
  decltype(&cuMemExportToShareableHandle) export_handle =
      DriverFunction<decltype(export_handle)>("cuMemExportToShareableHandle", 10020);
  decltype(&cuMemRelease) release = DriverFunction<decltype(release)>("cuMemRelease", 10020);

  bool ok() const {
    return range != nullptr && attribute != nullptr && retain != nullptr && properties != nullptr &&
           export_handle != nullptr && release != nullptr;
  }
};

// The descriptor of the piece at `address`; -1: it has none. `wanted`: else only whether it has one, 0.
inline int ExportPiece(const Driver& driver, CUdeviceptr address, bool wanted) {
  CUmemGenericAllocationHandle handle = 0;
  if (driver.retain(&handle, reinterpret_cast<void*>(address)) != CUDA_SUCCESS) return -1;
  CUmemAllocationProp properties{};
  int file = -1;
  if (driver.properties(&properties, handle) == CUDA_SUCCESS &&
      (properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) {
    if (!wanted) {
      file = 0;
    } else if (driver.export_handle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS) {
      file = -1;
    }
  }
  driver.release(handle);
  return file;
}

// The pieces in which `bytes` from `data` on lie.
inline absl::Status DescribePieces(const Driver& driver, CUdeviceptr data, std::int64_t bytes, DeviceMemory* memory) {
  std::vector<CUdeviceptr> starts;
  std::int64_t mapped = 0;  // from the start of the first piece on
  do {
    CUdeviceptr start = 0;
    std::size_t size = 0;
    const CUdeviceptr next = starts.empty() ? data : starts.front() + static_cast<CUdeviceptr>(mapped);
    if (driver.range(&start, &size, next) != CUDA_SUCCESS || (!starts.empty() && start != next)) {
      return absl::InvalidArgumentError("bytes: got " + std::to_string(bytes) + "; allowed: the " +
                                        std::to_string(mapped - memory->offset) + " that are mapped");
    }
    if (ExportPiece(driver, start, /*wanted=*/false) < 0) {
      return absl::InvalidArgumentError(
          "data: got memory that CUDA can't share, such as a stream-ordered pool's; allowed: memory of cudaMalloc, and "
          "memory of cuMemCreate with CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR");
    }
    if (starts.empty()) memory->offset = static_cast<std::int64_t>(data - start);
    starts.push_back(start);
    memory->pieces.push_back(static_cast<std::int64_t>(size));
    mapped += static_cast<std::int64_t>(size);
  } while (mapped - memory->offset < bytes);
  memory->export_piece = [driver, starts = std::move(starts)](std::size_t piece) -> absl::StatusOr<int> {
    const int file = ExportPiece(driver, starts[piece], /*wanted=*/true);
    if (file >= 0) return file;
    return absl::FailedPreconditionError("data: CUDA can't export its memory, or the process has no descriptor left");
  };
  return absl::OkStatus();
}

}  // namespace cuda_internal

// Shares `bytes` of device memory; `data` may point anywhere into it. Its allocation must outlive the region, and the
// server can read all of it: an allocation of cudaMalloc, or the allocations of cuMemCreate in which the bytes lie,
// mapped one behind the other, as those of PyTorch's expandable segments and JAX do. These must have been made with
// CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR; the region keeps their memory in use, also if they are unmapped before.
// Memory of a stream-ordered pool (cudaMallocAsync) cannot be shared. Each reduction waits for the work that was
// recorded in `event` when the reduction starts, unless `event` is null; create it with cudaEventInterprocess |
// cudaEventDisableTiming. INVALID_ARGUMENT: this isn't device memory, CUDA can't share it, or it has fewer bytes. Other
// errors are those of Client::ShareDevice.
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
  const cuda_internal::Driver driver;
  if (!driver.ok()) return absl::InvalidArgumentError("the CUDA driver is older than CUDA 11");
  const auto address = reinterpret_cast<CUdeviceptr>(data);
  CUdeviceptr base = 0;
  std::size_t allocated = 0;
  if (driver.range(&base, &allocated, address) != CUDA_SUCCESS) {
    return absl::InvalidArgumentError("data: got a pointer outside any allocation; allowed: memory of cudaMalloc");
  }
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, attributes.device); error != cudaSuccess) {
    return failed("cudaGetDeviceProperties", error);
  }
  DeviceMemory memory{.device_uuid = std::string(properties.uuid.bytes, sizeof(properties.uuid.bytes)),
                      .offset = static_cast<std::int64_t>(address - base),
                      .bytes = bytes};
  std::uint64_t has_handle = 0;  // the driver writes more than a bool
  if (driver.attribute(&has_handle, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address) == CUDA_SUCCESS &&
      !has_handle) {
    const absl::Status described = cuda_internal::DescribePieces(driver, address, bytes, &memory);
    if (!described.ok()) return described;
  } else {
    cudaIpcMemHandle_t handle;
    if (const cudaError_t error = cudaIpcGetMemHandle(&handle, reinterpret_cast<void*>(base)); error != cudaSuccess) {
      return failed("cudaIpcGetMemHandle", error);
    }
    memory.handle.assign(handle.reserved, sizeof(handle.reserved));
  }
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
