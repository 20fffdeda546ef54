#include "tests/fake_cuda/fake_cuda.h"

#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

// Of CUDA only pointers to these are known.
struct CUstream_st {};
struct CUevent_st {
  absl::Time recorded = absl::InfinitePast();
  bool shared = false;  // of another process
};
struct CUmemPoolHandle_st {};

namespace reduced::fake_cuda {
namespace {

constexpr std::size_t kMemory = std::size_t{16} << 30;

bool IsSticky(cudaError_t error) {
  return error == cudaErrorIllegalAddress || error == cudaErrorLaunchFailure || error == cudaErrorECCUncorrectable;
}

struct Fault {
  std::string function;
  int calls_left = 0;
  cudaError_t error = cudaSuccess;
};

struct Device {
  absl::Mutex mutex;
  std::map<std::string, int> calls ABSL_GUARDED_BY(mutex);
  std::optional<Fault> fault ABSL_GUARDED_BY(mutex);
  bool failed ABSL_GUARDED_BY(mutex) = false;
  cudaError_t lost ABSL_GUARDED_BY(mutex) = cudaSuccess;
  bool hangs ABSL_GUARDED_BY(mutex) = false;
  bool event_passed ABSL_GUARDED_BY(mutex) = true;
  std::size_t memory ABSL_GUARDED_BY(mutex) = kMemory;
  std::size_t memory_used ABSL_GUARDED_BY(mutex) = 0;
  std::map<void*, std::size_t> allocations ABSL_GUARDED_BY(mutex);  // of the device, by address
  std::map<void*, std::size_t> pinned ABSL_GUARDED_BY(mutex);
  std::set<const void*> registered ABSL_GUARDED_BY(mutex);
  std::set<cudaStream_t> streams ABSL_GUARDED_BY(mutex);
  std::set<cudaEvent_t> events ABSL_GUARDED_BY(mutex);
  std::set<cudaMemPool_t> pools ABSL_GUARDED_BY(mutex);
  std::map<void*, std::size_t> exported ABSL_GUARDED_BY(mutex);
  std::multiset<void*> opened ABSL_GUARDED_BY(mutex);
};

Device& The() {
  static auto* const device = new Device;
  return *device;
}

thread_local cudaError_t last_error = cudaSuccess;

cudaError_t Keep(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady && !IsSticky(error)) last_error = error;
  return error;
}

void* Map(std::size_t bytes) {  // pages that exist once they are written
  void* const memory = mmap(nullptr, std::max<std::size_t>(bytes, 1), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

cudaError_t AllocateOnDevice(void** out, std::size_t bytes) {
  Device& device = The();
  const absl::MutexLock lock(&device.mutex);
  if (bytes > device.memory - std::min(device.memory, device.memory_used)) return Keep(cudaErrorMemoryAllocation);
  void* const memory = Map(bytes);
  if (memory == nullptr) return Keep(cudaErrorMemoryAllocation);
  device.memory_used += bytes;
  device.allocations[memory] = bytes;
  *out = memory;
  return cudaSuccess;
}

// What the process has is gone with a lost context, too.
cudaError_t FreeOnDevice(void* memory, cudaError_t error) {
  Device& device = The();
  const absl::MutexLock lock(&device.mutex);
  const auto found = device.allocations.find(memory);
  if (found == device.allocations.end()) return memory == nullptr ? error : Keep(cudaErrorInvalidValue);
  device.memory_used -= found->second;
  munmap(memory, std::max<std::size_t>(found->second, 1));
  device.allocations.erase(found);
  return error;
}

// Until what the device was given has ended.
cudaError_t Wait() {
  Device& device = The();
  const absl::MutexLock lock(&device.mutex);
  const auto ended = [&device]() ABSL_SHARED_LOCKS_REQUIRED(device.mutex) { return !device.hangs; };
  const bool hung = !ended();
  device.mutex.Await(absl::Condition(&ended));
  return Keep(hung ? cudaErrorUnknown : device.lost);  // what hung has not done its work
}

bool Hangs() {
  Device& device = The();
  const absl::MutexLock lock(&device.mutex);
  return device.hangs;
}

template <class Object>
cudaError_t Make(std::set<Object*> Device::*all, Object** out) {
  Device& device = The();
  const absl::MutexLock lock(&device.mutex);
  *out = new Object;
  (device.*all).insert(*out);
  return cudaSuccess;
}

template <class Object>
cudaError_t Destroy(std::set<Object*> Device::*all, Object* object, cudaError_t error) {
  Device& device = The();
  const absl::MutexLock lock(&device.mutex);
  if ((device.*all).erase(object) == 0) return Keep(cudaErrorInvalidResourceHandle);
  delete object;
  return error;
}

CUresult AddressRange(CUdeviceptr* start, std::size_t* bytes, CUdeviceptr address) {
  if (Enter("cuMemGetAddressRange") != cudaSuccess) return CUDA_ERROR_UNKNOWN;
  if (FindPiece(start, bytes, address)) return CUDA_SUCCESS;
  Device& device = The();
  const absl::MutexLock lock(&device.mutex);
  const auto found = device.exported.find(reinterpret_cast<void*>(address));
  if (found == device.exported.end()) return CUDA_ERROR_INVALID_VALUE;
  *start = address;
  *bytes = found->second;
  return CUDA_SUCCESS;
}

// Maps the memory of a fake_driver.cc that a handle names, once. Null: the handle names something else.
void* MapExported(const cudaIpcMemHandle_t& handle) {
  static auto* const mapped = new std::map<std::string, void*>;  // it stays, for the next time
  const std::string name(handle.reserved, strnlen(handle.reserved, sizeof(handle.reserved)));
  if (!name.starts_with(kFakeMemory)) return nullptr;
  Device& device = The();
  const absl::MutexLock lock(&device.mutex);
  if (const auto found = mapped->find(name); found != mapped->end()) return found->second;
  const int file = shm_open(name.c_str(), O_RDONLY, 0);
  if (file < 0) return nullptr;
  struct stat status {};
  fstat(file, &status);
  const auto bytes = static_cast<std::size_t>(status.st_size);
  void* const memory = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return nullptr;
  device.exported[memory] = bytes;
  return (*mapped)[name] = memory;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const InUse& in_use) {
  return out << in_use.device_allocations << " allocations of the device, " << in_use.host_allocations << " pinned, "
             << in_use.registered << " registered, " << in_use.streams << " streams, " << in_use.events << " events, "
             << in_use.pools << " pools, " << in_use.opened << " opened, " << in_use.pieces << " pieces, "
             << in_use.ranges << " ranges";
}

InUse Use() {
  Device& device = The();
  const absl::MutexLock lock(&device.mutex);
  return {.device_allocations = static_cast<int>(device.allocations.size()),
          .host_allocations = static_cast<int>(device.pinned.size()),
          .registered = static_cast<int>(device.registered.size()),
          .streams = static_cast<int>(device.streams.size()),
          .events = static_cast<int>(device.events.size()),
          .pools = static_cast<int>(device.pools.size()),
          .opened = static_cast<int>(device.opened.size()),
          .pieces = PiecesInUse(),
          .ranges = RangesInUse()};
}

std::map<std::string, int> Calls() {
  Device& device = The();
  const absl::MutexLock lock(&device.mutex);
  return device.calls;
}

void FailCall(const std::string& function, int n, cudaError_t error) {
  Device& device = The();
  const absl::MutexLock lock(&device.mutex);
  device.fault = Fault{function, n, error};
}

bool HasFailed() {
  Device& device = The();
  const absl::MutexLock lock(&device.mutex);
  return device.failed;
}

void Hang() {
  Device& device = The();
  const absl::MutexLock lock(&device.mutex);
  device.hangs = true;
}

void Heal() {
  Device& device = The();
  const absl::MutexLock lock(&device.mutex);
  device.calls.clear();
  device.fault.reset();
  device.failed = false;
  device.lost = cudaSuccess;
  device.hangs = false;
  device.event_passed = true;
  device.memory = kMemory;
}

void SetMemory(std::size_t bytes) {
  Device& device = The();
  const absl::MutexLock lock(&device.mutex);
  device.memory = bytes;
}

std::string MemoryHandle(void* memory, std::size_t bytes) {
  Device& device = The();
  const absl::MutexLock lock(&device.mutex);
  device.exported[memory] = bytes;
  cudaIpcMemHandle_t handle{};
  std::memcpy(&handle, &memory, sizeof(memory));
  return {reinterpret_cast<const char*>(&handle), sizeof(handle)};
}

std::string EventHandle() { return std::string(sizeof(cudaIpcEventHandle_t), 'e'); }

void SetEventPassed(bool passed) {
  Device& device = The();
  const absl::MutexLock lock(&device.mutex);
  device.event_passed = passed;
}

cudaError_t Enter(const char* function) {
  Device& device = The();
  const absl::MutexLock lock(&device.mutex);
  ++device.calls[function];
  if (device.lost != cudaSuccess) return Keep(device.lost);
  if (!device.fault.has_value() || device.fault->function != function || --device.fault->calls_left > 0) {
    return cudaSuccess;
  }
  const cudaError_t error = device.fault->error;
  device.fault.reset();
  device.failed = true;
  if (IsSticky(error)) device.lost = error;
  return Keep(error);
}

// As the launches of kernels do, which report whatever error the thread has not asked for.
cudaError_t BeginLaunch(bool* runs) {
  const cudaError_t error = Enter("LaunchKernel");
  *runs = error == cudaSuccess && !Hangs();
  return cudaGetLastError();
}

}  // namespace reduced::fake_cuda

using namespace reduced::fake_cuda;  // NOLINT(google-build-using-namespace): the functions below are the other half

#define ENTER() \
  if (const cudaError_t entered = Enter(__func__); entered != cudaSuccess) return entered

extern "C" {

cudaError_t cudaGetLastError() {
  const cudaError_t error = std::exchange(last_error, cudaSuccess);
  const absl::MutexLock lock(&The().mutex);
  return The().lost != cudaSuccess ? The().lost : error;
}
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    default:
      return "cudaErrorUnknown";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "a fault of the fake device";
}

cudaError_t cudaGetDeviceCount(int* count) {
  ENTER();
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  ENTER();
  *properties = {};
  std::strcpy(properties->name, "Fake GPU");
  std::memcpy(properties->uuid.bytes, kUuid, sizeof(properties->uuid.bytes));
  properties->totalGlobalMem = kMemory;
  properties->multiProcessorCount = 4;
  properties->sharedMemPerBlockOptin = 99 << 10;
  properties->l2CacheSize = 4 << 20;
  properties->major = 9;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  ENTER();
  Device& device = The();
  const absl::MutexLock lock(&device.mutex);
  *free = device.memory - std::min(device.memory, device.memory_used);
  *total = kMemory;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  ENTER();
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  ENTER();
  *value = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) {
  ENTER();
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  ENTER();
  *function = std::strcmp(name, "cuMemGetAddressRange") == 0 ? reinterpret_cast<void*>(&AddressRange)
                                                             : VirtualMemoryFunction(name);
  *result = *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** out, std::size_t bytes) {
  ENTER();
  return AllocateOnDevice(out, bytes);
}
cudaError_t cudaMallocAsync(void** out, std::size_t bytes, cudaStream_t) {
  ENTER();
  return AllocateOnDevice(out, bytes);
}
cudaError_t cudaMallocFromPoolAsync(void** out, std::size_t bytes, cudaMemPool_t, cudaStream_t) {
  ENTER();
  return AllocateOnDevice(out, bytes);
}
cudaError_t cudaFree(void* memory) { return FreeOnDevice(memory, Enter(__func__)); }
cudaError_t cudaFreeAsync(void* memory, cudaStream_t) { return FreeOnDevice(memory, Enter(__func__)); }
cudaError_t cudaHostAlloc(void** out, std::size_t bytes, unsigned) {
  ENTER();
  Device& device = The();
  const absl::MutexLock lock(&device.mutex);
  *out = Map(bytes);
  if (*out == nullptr) return Keep(cudaErrorMemoryAllocation);
  device.pinned[*out] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  const cudaError_t error = Enter(__func__);
  Device& device = The();
  const absl::MutexLock lock(&device.mutex);
  const auto found = device.pinned.find(memory);
  if (found == device.pinned.end()) return memory == nullptr ? error : Keep(cudaErrorInvalidValue);
  munmap(memory, std::max<std::size_t>(found->second, 1));
  device.pinned.erase(found);
  return error;
}
cudaError_t cudaHostRegister(void* memory, std::size_t, unsigned) {
  ENTER();
  Device& device = The();
  const absl::MutexLock lock(&device.mutex);
  return device.registered.insert(memory).second ? cudaSuccess : Keep(cudaErrorHostMemoryAlreadyRegistered);
}
cudaError_t cudaHostUnregister(void* memory) {
  const cudaError_t error = Enter(__func__);
  Device& device = The();
  const absl::MutexLock lock(&device.mutex);
  return device.registered.erase(memory) == 1 ? error : Keep(cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) {
  ENTER();
  return Make(&Device::pools, pool);
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
  ENTER();
  return cudaSuccess;
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* value) {
  ENTER();
  *static_cast<std::uint64_t*>(value) = 0;
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t) {
  ENTER();
  return cudaSuccess;
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) { return Destroy(&Device::pools, pool, Enter(__func__)); }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  ENTER();
  return Make(&Device::streams, stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return Destroy(&Device::streams, stream, Enter(__func__)); }
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  ENTER();
  return Wait();
}
cudaError_t cudaStreamQuery(cudaStream_t) {
  ENTER();
  return Hangs() ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  ENTER();
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  ENTER();
  return Make(&Device::events, event);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return Destroy(&Device::events, event, Enter(__func__)); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  ENTER();
  event->recorded = absl::Now();
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) {
  ENTER();
  return Wait();
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  ENTER();
  Device& device = The();
  const absl::MutexLock lock(&device.mutex);
  return device.hangs || (event->shared && !device.event_passed) ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* millis, cudaEvent_t start, cudaEvent_t end) {
  ENTER();
  if (start->recorded == absl::InfinitePast() || end->recorded < start->recorded) return Keep(cudaErrorInvalidValue);
  *millis = static_cast<float>(absl::ToDoubleMilliseconds(end->recorded - start->recorded));
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t) {
  ENTER();
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t) {
  ENTER();
  constexpr std::size_t kRead = std::size_t{4} << 20;  // more is only what measurements empty the caches by
  std::memset(memory, value, std::min(bytes, kRead));
  return cudaSuccess;
}

// Functions that only the tests call.
cudaError_t cudaGetDevice(int* device) {
  ENTER();
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  ENTER();
  return Wait();
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
  return cudaMemsetAsync(memory, value, bytes, nullptr);
}

cudaError_t cudaIpcOpenMemHandle(void** out, cudaIpcMemHandle_t handle, unsigned) {
  ENTER();
  if (void* const mapped = MapExported(handle); mapped != nullptr) {
    std::memcpy(&handle, &mapped, sizeof(mapped));
  }
  Device& device = The();
  const absl::MutexLock lock(&device.mutex);
  std::memcpy(out, &handle, sizeof(*out));
  if (!device.exported.contains(*out)) return Keep(cudaErrorInvalidResourceHandle);
  device.opened.insert(*out);
  return cudaSuccess;
}
cudaError_t cudaIpcCloseMemHandle(void* memory) {
  const cudaError_t error = Enter(__func__);
  Device& device = The();
  const absl::MutexLock lock(&device.mutex);
  const auto found = device.opened.find(memory);
  if (found == device.opened.end()) return Keep(cudaErrorInvalidValue);
  device.opened.erase(found);
  return error;
}
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t) {
  ENTER();
  const cudaError_t error = Make(&Device::events, event);
  (*event)->shared = true;
  return error;
}

}  // extern "C"
