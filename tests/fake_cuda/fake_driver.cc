// Stands in for libcuda.so.1 in a process without a GPU: the functions that the Python package calls, over shared
// memory, which a program with fake_cuda.cc opens by its handles. The tests of Python call what begins with fake_.
#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "tests/fake_cuda/fake_cuda.h"

namespace {

struct Allocation {
  std::string name;
  std::size_t bytes = 0;
  std::uint64_t id = 0;
  bool capable = true;
  std::size_t range = 0;  // of a piece: the bytes of all that was reserved; 0: it is none
  int file = -1;          // a piece's
};

struct State {
  std::mutex mutex;
  std::map<std::uint64_t, Allocation> allocations;  // by address
  std::uint64_t last_id = 0;
  int events = 0;
  int created = 0;
  int recorded = 0;
  int waits = 0;
  int contexts = 0;
  int handles = 0;
  bool ready = true;
  char uuid = reduced::fake_cuda::kUuid[0];
};

State& The() {
  static auto* const state = new State;
  return *state;
}

// The allocation at an address; null: there is none.
std::pair<const std::uint64_t, Allocation>* Find(State& state, std::uint64_t address) {
  const auto after = state.allocations.upper_bound(address);
  if (after == state.allocations.begin()) return nullptr;
  auto& found = *std::prev(after);
  return address < found.first + found.second.bytes ? &found : nullptr;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// Memory in which the tests lie their arrays; `capable`: it has an IPC handle. 0: there is none.
std::uint64_t fake_allocate(std::size_t bytes, int capable) {
  State& state = The();
  const std::lock_guard lock(state.mutex);
  const std::uint64_t id = ++state.last_id;
  const std::string name = reduced::fake_cuda::kFakeMemory + std::to_string(getpid()) + "_" + std::to_string(id);
  const int file = shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return 0;
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  const auto address = reinterpret_cast<std::uint64_t>(memory);
  state.allocations[address] = {name, bytes, id, capable != 0};
  return address;
}
// Pieces of CUDA's virtual memory management, of so many bytes each, in a range in which as many have no memory.
std::uint64_t fake_allocate_pieces(int count, std::size_t bytes) {
  State& state = The();
  const std::lock_guard lock(state.mutex);
  const std::size_t range = 2 * static_cast<std::size_t>(count) * bytes;
  void* const reserved = mmap(nullptr, range, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  const auto base = reinterpret_cast<std::uint64_t>(reserved);
  for (std::uint64_t at = base; at < base + range / 2; at += bytes) {
    const int file = memfd_create(reduced::fake_cuda::kFakePiece, MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return 0;
    mmap(reinterpret_cast<void*>(at), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
    state.allocations[at] = {"", bytes, ++state.last_id, false, range, file};
  }
  return base;
}
void fake_free_pieces(std::uint64_t base) {
  State& state = The();
  const std::lock_guard lock(state.mutex);
  const std::size_t range = state.allocations.at(base).range;
  for (auto each = state.allocations.find(base); each != state.allocations.end() && each->first < base + range;) {
    close(each->second.file);
    each = state.allocations.erase(each);
  }
  munmap(reinterpret_cast<void*>(base), range);
}
void fake_free(std::uint64_t address) {
  State& state = The();
  const std::lock_guard lock(state.mutex);
  const auto found = state.allocations.find(address);
  munmap(reinterpret_cast<void*>(address), found->second.bytes);
  shm_unlink(found->second.name.c_str());
  state.allocations.erase(found);
}
// Gives memory another id and another handle, as if it had been freed, and allocated again at the same address.
void fake_reallocate(std::uint64_t address) {
  State& state = The();
  const std::lock_guard lock(state.mutex);
  state.allocations[address].id = ++state.last_id;
}
// Whether events have passed; the first byte of the device's UUID.
void fake_set_ready(int ready) { The().ready = ready != 0; }
void fake_set_uuid(char first) { The().uuid = first; }
// Events that there are, those that were made since the start, how often one was recorded, and how often one was waited
// for.
int fake_events() { return The().events; }
int fake_created() { return The().created; }
int fake_recorded() { return The().recorded; }
int fake_waits() { return The().waits; }
// Handles of pieces and primary contexts that are held.
int fake_handles() { return The().handles; }
int fake_contexts() { return The().contexts; }

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** values, CUdeviceptr address) {
  State& state = The();
  const std::lock_guard lock(state.mutex);
  const auto* const found = Find(state, address);
  if (found == nullptr) return CUDA_SUCCESS;  // which leaves them 0
  const auto& [base, allocation] = *found;
  for (unsigned i = 0; i < count; ++i) {
    switch (attributes[i]) {
      case CU_POINTER_ATTRIBUTE_CONTEXT:
        *static_cast<void**>(values[i]) = allocation.range > 0 ? nullptr : &state;
        break;
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<unsigned*>(values[i]) = CU_MEMORYTYPE_DEVICE;
        break;
      case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *static_cast<std::uint64_t*>(values[i]) = allocation.id;
        break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int*>(values[i]) = 0;
        break;
      case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *static_cast<unsigned*>(values[i]) = allocation.capable ? 1 : 0;  // as the real one, 4 bytes
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *static_cast<CUdeviceptr*>(values[i]) = base;
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *static_cast<std::size_t*>(values[i]) = allocation.range > 0 ? allocation.range : allocation.bytes;
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}
CUresult cuMemGetAddressRange_v2(CUdeviceptr* start, std::size_t* bytes, CUdeviceptr address) {
  State& state = The();
  const std::lock_guard lock(state.mutex);
  const auto* const found = Find(state, address);
  if (found == nullptr) return CUDA_ERROR_NOT_FOUND;
  *start = found->first;
  *bytes = found->second.bytes;
  return CUDA_SUCCESS;
}
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  State& state = The();
  const std::lock_guard lock(state.mutex);
  const auto* const found = Find(state, reinterpret_cast<std::uint64_t>(address));
  if (found == nullptr || found->second.range == 0) return CUDA_ERROR_INVALID_VALUE;
  ++state.handles;
  *handle = static_cast<CUmemGenericAllocationHandle>(found->second.file);
  return CUDA_SUCCESS;
}
CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties, CUmemGenericAllocationHandle) {
  *properties = {};
  properties->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return CUDA_SUCCESS;
}
CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType,
                                      unsigned long long) {
  *static_cast<int*>(out) = fcntl(static_cast<int>(handle), F_DUPFD_CLOEXEC, 0);
  return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle) {
  State& state = The();
  const std::lock_guard lock(state.mutex);
  --state.handles;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  ++The().contexts;
  *context = reinterpret_cast<CUcontext>(&The());
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) {
  --The().contexts;
  return CUDA_SUCCESS;
}
CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr base) {
  State& state = The();
  const std::lock_guard lock(state.mutex);
  const auto found = state.allocations.find(base);
  if (found == state.allocations.end()) return CUDA_ERROR_INVALID_VALUE;
  *handle = {};
  found->second.name.copy(handle->reserved, sizeof(handle->reserved) - 1);
  return CUDA_SUCCESS;
}
CUresult cuIpcGetEventHandle(CUipcEventHandle* handle, CUevent) {
  std::memset(handle, 'e', sizeof(*handle));
  return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent* event, unsigned) {
  *event = reinterpret_cast<CUevent>(new char);
  ++The().events;
  ++The().created;
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy_v2(CUevent event) {
  delete reinterpret_cast<char*>(event);
  --The().events;
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent, CUstream) {
  ++The().recorded;
  return CUDA_SUCCESS;
}
CUresult cuStreamQuery(CUstream) { return The().ready ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY; }
CUresult cuEventQuery(CUevent) { return The().ready ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY; }
CUresult cuEventSynchronize(CUevent) {
  ++The().waits;
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent_v2(CUcontext) { return CUDA_SUCCESS; }
CUresult cuCtxPopCurrent_v2(CUcontext*) { return CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice) {
  std::memcpy(uuid->bytes, reduced::fake_cuda::kUuid, sizeof(uuid->bytes));
  uuid->bytes[0] = The().uuid;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "a fault of the fake device";
  return CUDA_SUCCESS;
}

}  // extern "C"
#pragma GCC visibility pop
