#include "kernels/cuda/shared_memory.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstring>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "kernels/cuda/driver_function.h"
#include "kernels/cuda/shared_pieces.h"
#include "kernels/cuda/status.h"
#include "kernels/system/failpoint.h"
#include "kernels/system/status_macros.h"

namespace reduced {
namespace {

// The bytes of an IPC handle. INVALID_ARGUMENT: there are too few or too many.
template <class Handle>
absl::Status CopyHandle(const std::string& bytes, const char* what, Handle* handle) {
  if (bytes.size() != sizeof(Handle)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the IPC handle of the %s has %d bytes, it needs %d", what, bytes.size(), sizeof(Handle)));
  }
  std::memcpy(handle, bytes.data(), sizeof(Handle));
  return absl::OkStatus();
}

// Of a handle that can't be opened: the caller's fault where CUDA says so, which leaves the device as it was; else the
// device's.
absl::Status IpcError(cudaError_t error, const char* what) {
  cudaGetLastError();  // it is not kept for the calls to come
  const std::string message =
      absl::StrFormat("the IPC handle of the %s can't be opened: %s", what, cudaGetErrorString(error));
  switch (error) {
    case cudaErrorInvalidValue:
      return absl::InvalidArgumentError(message);
    case cudaErrorInvalidResourceHandle:  // its exporter is gone, or has freed it
    case cudaErrorInvalidDevice:
    case cudaErrorDeviceUninitialized:
    case cudaErrorMapBufferObjectFailed:
    case cudaErrorPeerAccessUnsupported:
    case cudaErrorNotSupported:
      return absl::FailedPreconditionError(message);
    default:
      return DeviceError(error, "opening an IPC handle");
  }
}

}  // namespace

// The allocations of other processes that are open, by handle. CUDA gives the same address for the same handle
// each time: so each is opened once, which takes 0.1 ms, and closed when its last user is gone. Thread-safe.
class CudaSharedMemory::Allocations {
 public:
  explicit Allocations(int device) : device_(device) {}

  absl::StatusOr<DeviceRange> Open(const std::string& handle) {
    cudaIpcMemHandle_t ipc;
    const absl::Status status = CopyHandle(handle, "memory", &ipc);
    if (!status.ok()) return status;
    const absl::MutexLock lock(&mutex_);
    if (const auto found = open_.find(handle); found != open_.end()) {
      ++found->second.users;
      return found->second.range;
    }
    static const auto address_range = DriverFunction<decltype(&cuMemGetAddressRange)>("cuMemGetAddressRange", 3020);
    if (address_range == nullptr) {
      return absl::FailedPreconditionError("the driver can't tell how large the allocation of an IPC handle is");
    }
    void* base = nullptr;
    const cudaError_t error = FAILPOINT("cuda/open") ? cudaErrorInvalidResourceHandle
                                                     : cudaIpcOpenMemHandle(&base, ipc, cudaIpcMemLazyEnablePeerAccess);
    if (error != cudaSuccess) return IpcError(error, "memory");
    CUdeviceptr start = 0;
    std::size_t bytes = 0;
    if (address_range(&start, &bytes, reinterpret_cast<CUdeviceptr>(base)) != CUDA_SUCCESS) {
      cudaIpcCloseMemHandle(base);
      return absl::UnavailableError("the CUDA device doesn't know the allocation of an IPC handle that it has opened");
    }
    const DeviceRange range{static_cast<const std::byte*>(base), static_cast<std::int64_t>(bytes)};
    open_[handle] = {range, 1};
    return range;
  }

  void Close(const std::string& handle) {
    const absl::MutexLock lock(&mutex_);
    const auto found = open_.find(handle);
    if (--found->second.users > 0) return;
    cudaSetDevice(device_);
    cudaIpcCloseMemHandle(const_cast<std::byte*>(found->second.range.base));
    open_.erase(found);
  }

 private:
  struct Entry {
    DeviceRange range;
    int users = 0;
  };

  const int device_;
  absl::Mutex mutex_;
  std::map<std::string, Entry> open_ ABSL_GUARDED_BY(mutex_);
};

CudaSharedMemory::CudaSharedMemory(int device, std::string device_uuid)
    : device_(device), device_uuid_(std::move(device_uuid)), allocations_(std::make_shared<Allocations>(device)) {}

absl::StatusOr<std::shared_ptr<const void>> CudaSharedMemory::Pin(const void* data, std::int64_t bytes) const {
  REDUCED_RETURN_IF_CUDA_ERROR(cudaSetDevice(device_));
  auto* const memory = const_cast<void*>(data);  // registered for reading only
  constexpr unsigned kFlags = cudaHostRegisterPortable | cudaHostRegisterReadOnly;
  const cudaError_t error = FAILPOINT("cuda/pin") ? cudaErrorMemoryAllocation
                                                  : cudaHostRegister(memory, static_cast<std::size_t>(bytes), kFlags);
  if (error != cudaSuccess) {
    cudaGetLastError();
    return absl::FailedPreconditionError(
        absl::StrFormat("%d bytes can't be registered with the GPU: %s", bytes, cudaGetErrorString(error)));
  }
  return std::shared_ptr<const void>(memory, [device = device_](void* registered) {
    cudaSetDevice(device);
    cudaHostUnregister(registered);
  });
}

absl::StatusOr<std::shared_ptr<const void>> CudaSharedMemory::Import(int file) const {
  REDUCED_RETURN_IF_CUDA_ERROR(cudaSetDevice(device_));
  return ImportPiece(device_, file);
}

absl::StatusOr<HeldArray> CudaSharedMemory::Open(const SharedDeviceMemory& memory) const {
  if (memory.device_uuid != device_uuid_) {
    return absl::FailedPreconditionError("the memory is on another device than this engine's");
  }
  REDUCED_RETURN_IF_CUDA_ERROR(cudaSetDevice(device_));
  struct Held {
    explicit Held(std::shared_ptr<Allocations> all) : allocations(std::move(all)) {}
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    ~Held() {
      if (event != nullptr) cudaEventDestroy(event);
      if (!handle.empty()) allocations->Close(handle);
    }
    const std::shared_ptr<Allocations> allocations;
    std::string handle;  // set: open
    std::shared_ptr<const void> pieces;
    cudaEvent_t event = nullptr;
  };
  const auto held = std::make_shared<Held>(allocations_);
  DeviceRange range;
  if (memory.pieces.empty()) {
    ASSIGN_OR_RETURN(range, allocations_->Open(memory.handle));
    held->handle = memory.handle;
  } else {
    if (!memory.handle.empty()) {
      return absl::InvalidArgumentError("handle: got one beside pieces; allowed: either an IPC handle or pieces");
    }
    ASSIGN_OR_RETURN(MappedPieces mapped, MapPieces(device_, memory.pieces));
    range = mapped.range;
    held->pieces = std::move(mapped.held);
  }
  if (memory.offset < 0 || memory.bytes < 0 || memory.offset > range.bytes ||
      memory.bytes > range.bytes - memory.offset) {
    return absl::InvalidArgumentError(absl::StrFormat("%d bytes from byte %d on are not within the allocation, of %d",
                                                      memory.bytes, memory.offset, range.bytes));
  }
  if (!memory.event.empty()) {
    cudaIpcEventHandle_t ipc;
    const absl::Status status = CopyHandle(memory.event, "event", &ipc);
    if (!status.ok()) return status;
    const cudaError_t error = cudaIpcOpenEventHandle(&held->event, ipc);
    if (error != cudaSuccess) return IpcError(error, "event");
  }
  return HeldArray{.array = {.data = range.base + memory.offset,
                             .space = MemorySpace::kDevice,
                             .ready = held->event,
                             .device = device_},
                   .held = held};
}

}  // namespace reduced
