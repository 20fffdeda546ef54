#include "client/python/src/cuda.h"

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <iterator>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/system/status_macros.h"

namespace reduced::python {
namespace {

// What is used of the driver, as cuda.h declares it: the package is built without CUDA's headers.
using Result = int;  // CUresult
constexpr Result kSuccess = 0;
constexpr Result kNotReady = 600;
constexpr unsigned kEventDisableTiming = 2;
constexpr unsigned kEventInterprocess = 4;
// CUpointer_attribute
constexpr int kContext = 1;
constexpr int kMemoryType = 2;
constexpr int kBufferId = 7;
constexpr int kDeviceOrdinal = 9;
constexpr int kIpcCapable = 10;
constexpr int kRangeStart = 11;
constexpr int kRangeSize = 12;
constexpr unsigned kDeviceMemory = 2;  // CU_MEMORYTYPE_DEVICE
constexpr std::size_t kHandleBytes = 64;
constexpr std::size_t kUuidBytes = 16;

struct Handle {
  std::array<char, kHandleBytes> bytes;
};
struct Uuid {
  std::array<char, kUuidBytes> bytes;
};

struct Driver {
  Result (*cuInit)(unsigned);
  Result (*cuPointerGetAttributes)(unsigned, const int*, void**, std::uint64_t);
  Result (*cuIpcGetMemHandle)(Handle*, std::uint64_t);
  Result (*cuIpcGetEventHandle)(Handle*, void*);
  Result (*cuEventCreate)(void**, unsigned);
  Result (*cuEventDestroy_v2)(void*);
  Result (*cuEventRecord)(void*, void*);
  Result (*cuEventQuery)(void*);
  Result (*cuEventSynchronize)(void*);
  Result (*cuStreamQuery)(void*);
  Result (*cuCtxPushCurrent_v2)(void*);
  Result (*cuCtxPopCurrent_v2)(void**);
  Result (*cuDeviceGet)(int*, int);
  Result (*cuDeviceGetUuid_v2)(Uuid*, int);
  Result (*cuGetErrorString)(Result, const char**);
};

template <class Function>
bool Load(void* library, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  return *function != nullptr;
}

// Why the driver cannot be used, or the driver.
absl::StatusOr<Driver> LoadDriver() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    return absl::FailedPreconditionError(absl::StrCat("this process has no CUDA driver: ", why != nullptr ? why : ""));
  }
  Driver driver{};
#define LOAD(name) Load(library, #name, &driver.name)
  if (LOAD(cuInit) && LOAD(cuPointerGetAttributes) && LOAD(cuIpcGetMemHandle) && LOAD(cuIpcGetEventHandle) &&
      LOAD(cuEventCreate) && LOAD(cuEventDestroy_v2) && LOAD(cuEventRecord) && LOAD(cuEventQuery) &&
      LOAD(cuEventSynchronize) && LOAD(cuStreamQuery) && LOAD(cuCtxPushCurrent_v2) && LOAD(cuCtxPopCurrent_v2) &&
      LOAD(cuDeviceGet) && LOAD(cuDeviceGetUuid_v2) && LOAD(cuGetErrorString) && driver.cuInit(0) == kSuccess) {
    return driver;
  }
#undef LOAD
  return absl::FailedPreconditionError("this process's CUDA driver has no GPU, or is older than CUDA 11.4");
}

const absl::StatusOr<Driver>& Cuda() {
  static const auto* const driver = new absl::StatusOr<Driver>(LoadDriver());
  return *driver;
}

absl::Status Failed(const char* what, Result error) {
  const char* text = nullptr;
  if (Cuda()->cuGetErrorString(error, &text) != kSuccess || text == nullptr) text = "an unknown error";
  return absl::FailedPreconditionError(absl::StrCat("array: CUDA's ", what, " failed: ", text));
}

#define RETURN_IF_CUDA_ERROR(what, call) \
  if (const Result result = (call); result != kSuccess) return Failed(what, result)

// Makes a context this thread's, for as long as it lives.
class Current {
 public:
  explicit Current(void* context) : pushed_(Cuda()->cuCtxPushCurrent_v2(context) == kSuccess) {}
  ~Current() {
    void* context = nullptr;
    if (pushed_) Cuda()->cuCtxPopCurrent_v2(&context);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const bool pushed_;
};

// The allocations of this process that have arrays, by their ids. Never destroyed, as those of memory.cc.
struct Allocations {
  absl::Mutex mutex;
  std::map<std::uint64_t, std::weak_ptr<CudaAllocation>> by_id ABSL_GUARDED_BY(mutex);
};

Allocations& AllCuda() {
  static auto* const all = new Allocations;
  return *all;
}

absl::StatusOr<CudaAllocation::Facts> FactsOf(std::uint64_t address) {
  const absl::StatusOr<Driver>& cuda = Cuda();
  if (!cuda.ok()) return cuda.status();
  // Of 8 bytes each: the driver writes more than a bool where it has one.
  int attributes[] = {kMemoryType, kBufferId, kContext, kDeviceOrdinal, kIpcCapable, kRangeStart, kRangeSize};
  std::uint64_t values[std::size(attributes)] = {};
  void* wanted[std::size(attributes)];
  for (std::size_t i = 0; i < std::size(attributes); ++i) wanted[i] = &values[i];
  RETURN_IF_CUDA_ERROR("cuPointerGetAttributes",
                       cuda->cuPointerGetAttributes(std::size(attributes), attributes, wanted, address));
  const auto& [type, id, context, device, capable, base, bytes] = values;
  if (type != kDeviceMemory || base == 0) {
    return absl::InvalidArgumentError("array: got a pointer to other memory; allowed: memory of a CUDA device");
  }
  if (capable == 0 || context == 0) {
    return absl::InvalidArgumentError(
        "array: got memory of a GPU that has no IPC handle, such as PyTorch's expandable segments, JAX's from 0.11 on "
        "or a stream's pool; allowed: memory of cudaMalloc (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False), or a "
        "copy in host memory");
  }
  return CudaAllocation::Facts{.id = id,
                               .base = base,
                               .bytes = static_cast<std::int64_t>(bytes),
                               .context = reinterpret_cast<void*>(context),
                               .device = static_cast<int>(device)};
}

}  // namespace

CudaAllocation::~CudaAllocation() {
  if (generation_ != ForkGeneration()) return;  // the parent's
  const absl::MutexLock lock(&mutex_);
  regions_.clear();  // before the event, which they wait for
  if (event_ == nullptr) return;
  const Current current(facts_.context);
  Cuda()->cuEventDestroy_v2(event_);
}

// The event says what all reductions of this memory wait for. Recording it for another stream would take the work of
// the one before out of it, for which a reduction that another thread has asked for may still have to wait. It is not
// recorded where there is nothing to wait for: the GPU would change from this process to the server's and back, which
// takes 0.3 ms. The query of the legacy stream is for the work of all streams that it waits for, too.
absl::Status CudaAllocation::Record(std::uint64_t stream) {
  const Driver& cuda = *Cuda();
  const Current current(facts_.context);
  if (event_ == nullptr) {
    RETURN_IF_CUDA_ERROR("cuEventCreate", cuda.cuEventCreate(&event_, kEventInterprocess | kEventDisableTiming));
  }
  if (cuda.cuStreamQuery(reinterpret_cast<void*>(stream)) == kSuccess) return absl::OkStatus();
  if (stream != stream_ && cuda.cuEventQuery(event_) == kNotReady) {
    RETURN_IF_CUDA_ERROR("cuEventSynchronize", cuda.cuEventSynchronize(event_));
  }
  stream_ = stream;
  RETURN_IF_CUDA_ERROR("cuEventRecord", cuda.cuEventRecord(event_, reinterpret_cast<void*>(stream)));
  return absl::OkStatus();
}

absl::StatusOr<client::DeviceMemory> CudaAllocation::Describe() const {
  const Driver& cuda = *Cuda();
  const Current current(facts_.context);
  Handle memory;
  Handle event;
  Uuid uuid;
  int device = 0;
  RETURN_IF_CUDA_ERROR("cuIpcGetMemHandle", cuda.cuIpcGetMemHandle(&memory, facts_.base));
  RETURN_IF_CUDA_ERROR("cuIpcGetEventHandle", cuda.cuIpcGetEventHandle(&event, event_));
  RETURN_IF_CUDA_ERROR("cuDeviceGet", cuda.cuDeviceGet(&device, facts_.device));
  RETURN_IF_CUDA_ERROR("cuDeviceGetUuid", cuda.cuDeviceGetUuid_v2(&uuid, device));
  return client::DeviceMemory{.handle = std::string(memory.bytes.data(), kHandleBytes),
                              .device_uuid = std::string(uuid.bytes.data(), kUuidBytes),
                              .bytes = facts_.bytes,
                              .event = std::string(event.bytes.data(), kHandleBytes)};
}

absl::StatusOr<client::RemoteArray> CudaAllocation::Share(client::Client& client, std::uint64_t stream,
                                                          std::uint64_t address, const std::string& dtype,
                                                          const std::vector<std::int64_t>& shape) {
  const absl::MutexLock lock(&mutex_);
  if (generation_ != ForkGeneration()) {
    return absl::FailedPreconditionError(
        "array: got memory of a GPU in a fork of its process; allowed: in its process");
  }
  RETURN_IF_ERROR(Record(stream));
  auto found = regions_.find(&client);
  if (found == regions_.end()) {
    ASSIGN_OR_RETURN(const client::DeviceMemory memory, Describe());
    absl::StatusOr<client::Region> region = client.ShareDevice(memory);
    if (!region.ok()) {
      return absl::Status(
          region.status().code(),
          absl::StrCat("array: the server can't reduce memory of this process's cuda:", facts_.device, " (",
                       absl::BytesToHexString(memory.device_uuid), "): ", region.status().message()));
    }
    found = regions_.emplace(&client, MakeOwned(*std::move(region))).first;
  }
  return found->second->Array(dtype, shape, static_cast<std::int64_t>(address - facts_.base));
}

void CudaAllocation::Forget(const client::Client& client) {
  const absl::MutexLock lock(&mutex_);
  regions_.erase(&client);
}

absl::StatusOr<CudaArray> CudaArray::Find(std::uint64_t address, std::string dtype, std::vector<std::int64_t> shape,
                                          std::uint64_t stream) {
  ASSIGN_OR_RETURN(const CudaAllocation::Facts facts, FactsOf(address));
  ASSIGN_OR_RETURN(const std::int64_t bytes, client::ArrayBytes(dtype, shape));
  const std::int64_t left = facts.bytes - static_cast<std::int64_t>(address - facts.base);
  if (bytes > left) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape: got ", bytes, " bytes; allowed: the ", left, " of the allocation"));
  }
  Allocations& all = AllCuda();
  const absl::MutexLock lock(&all.mutex);
  std::weak_ptr<CudaAllocation>& known = all.by_id[facts.id];
  std::shared_ptr<CudaAllocation> allocation = known.lock();
  if (allocation == nullptr) {
    const auto forget_and_delete = [&all](CudaAllocation* ended) {
      {
        const absl::MutexLock removing(&all.mutex);
        const auto found = all.by_id.find(ended->facts().id);
        if (found != all.by_id.end() && found->second.expired()) all.by_id.erase(found);
      }
      delete ended;
    };
    allocation = std::shared_ptr<CudaAllocation>(new CudaAllocation(facts), forget_and_delete);
    known = allocation;
  }
  return CudaArray(std::move(allocation), address, std::move(dtype), std::move(shape), stream);
}

void ForgetAllCuda(const client::Client& client) {
  std::vector<std::shared_ptr<CudaAllocation>> allocations;
  {
    Allocations& all = AllCuda();
    const absl::MutexLock lock(&all.mutex);
    for (const auto& [id, allocation] : all.by_id) {
      if (std::shared_ptr<CudaAllocation> there = allocation.lock(); there != nullptr)
        allocations.push_back(std::move(there));
    }
  }
  for (const std::shared_ptr<CudaAllocation>& allocation : allocations) allocation->Forget(client);
}

}  // namespace reduced::python
