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

#include "tests/fake_cuda/fake_cuda.h"

namespace {

struct Allocation {
  std::string name;
  std::size_t bytes = 0;
  std::uint64_t id = 0;
  bool capable = true;
};

struct State {
  std::mutex mutex;
  std::map<std::uint64_t, Allocation> allocations;  // by address
  std::uint64_t last_id = 0;
  int events = 0;
  int created = 0;
  int recorded = 0;
  int waits = 0;
  bool ready = true;
  char uuid = reduced::fake_cuda::kUuid[0];
};

State& The() {
  static auto* const state = new State;
  return *state;
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

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** values, CUdeviceptr address) {
  State& state = The();
  const std::lock_guard lock(state.mutex);
  const auto after = state.allocations.upper_bound(address);
  if (after == state.allocations.begin()) return CUDA_SUCCESS;  // which leaves them 0
  const auto& [base, allocation] = *std::prev(after);
  if (address >= base + allocation.bytes) return CUDA_SUCCESS;
  for (unsigned i = 0; i < count; ++i) {
    switch (attributes[i]) {
      case CU_POINTER_ATTRIBUTE_CONTEXT:
        *static_cast<void**>(values[i]) = &state;
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
        *static_cast<std::size_t*>(values[i]) = allocation.bytes;
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
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
