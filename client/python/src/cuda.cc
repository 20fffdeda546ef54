#include "client/python/src/cuda.h"

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <iterator>
#include <limits>
#include <optional>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/system/gather.h"
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
constexpr unsigned kDescriptors = 1;   // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
constexpr unsigned kDeviceMemory = 2;  // CU_MEMORYTYPE_DEVICE
constexpr std::size_t kHandleBytes = 64;
constexpr std::size_t kUuidBytes = 16;

struct Handle {
  std::array<char, kHandleBytes> bytes;
};
struct Uuid {
  std::array<char, kUuidBytes> bytes;
};

struct PieceProperties {  // CUmemAllocationProp
  unsigned type, handle_types;
  std::array<std::uint64_t, 7> others;  // with room for what later versions add
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
  Result (*cuDevicePrimaryCtxRetain)(void**, int);
  Result (*cuDevicePrimaryCtxRelease_v2)(int);
  Result (*cuMemGetAddressRange_v2)(std::uint64_t*, std::size_t*, std::uint64_t);
  Result (*cuMemRetainAllocationHandle)(std::uint64_t*, void*);
  Result (*cuMemGetAllocationPropertiesFromHandle)(PieceProperties*, std::uint64_t);
  Result (*cuMemExportToShareableHandle)(void*, std::uint64_t, unsigned, std::uint64_t);
  Result (*cuMemRelease)(std::uint64_t);
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
      LOAD(cuDeviceGet) && LOAD(cuDeviceGetUuid_v2) && LOAD(cuDevicePrimaryCtxRetain) &&
      LOAD(cuDevicePrimaryCtxRelease_v2) && LOAD(cuMemGetAddressRange_v2) && LOAD(cuMemRetainAllocationHandle) &&
      LOAD(cuMemGetAllocationPropertiesFromHandle) && LOAD(cuMemExportToShareableHandle) && LOAD(cuMemRelease) &&
      LOAD(cuGetErrorString) && driver.cuInit(0) == kSuccess) {
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

// The allocations of this process that have arrays, by their addresses and ids. Never destroyed, as those of memory.cc.
struct Allocations {
  using Place = std::pair<std::uint64_t, std::vector<std::uint64_t>>;

  absl::Mutex mutex;
  std::map<Place, std::weak_ptr<CudaAllocation>> by_place ABSL_GUARDED_BY(mutex);
};

Allocations& AllCuda() {
  static auto* const all = new Allocations;
  return *all;
}

// The last one that begins at or before the address. Null: there is none.
std::shared_ptr<CudaAllocation> FindBefore(std::uint64_t address) {
  Allocations& all = AllCuda();
  const absl::MutexLock lock(&all.mutex);
  const auto after = all.by_place.upper_bound({address, {std::numeric_limits<std::uint64_t>::max()}});
  return after == all.by_place.begin() ? nullptr : std::prev(after)->second.lock();
}

// Of one allocation of cudaMalloc, all; of virtual memory management, the piece at the address.
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
  CudaAllocation::Facts facts{.base = base,
                              .bytes = static_cast<std::int64_t>(bytes),
                              .context = reinterpret_cast<void*>(context),
                              .device = static_cast<int>(device),
                              .ids = {id}};
  if (capable != 0 && context != 0) return facts;
  // The attributes have the range that was reserved, of which any part may be mapped.
  std::size_t piece = 0;
  RETURN_IF_CUDA_ERROR("cuMemGetAddressRange", cuda->cuMemGetAddressRange_v2(&facts.base, &piece, address));
  facts.bytes = static_cast<std::int64_t>(piece);
  facts.pieces = {facts.bytes};
  return facts;
}

// Adds the pieces that follow, up to that before `end`, as far as there are any.
void AddPieces(std::uint64_t end, CudaAllocation::Facts* facts) {
  while (facts->base + static_cast<std::uint64_t>(facts->bytes) < end) {
    const std::uint64_t next = facts->base + static_cast<std::uint64_t>(facts->bytes);
    const absl::StatusOr<CudaAllocation::Facts> piece = FactsOf(next);
    if (!piece.ok() || piece->pieces.empty() || piece->base != next || piece->device != facts->device) return;
    facts->bytes += piece->bytes;
    facts->ids.push_back(piece->ids.front());
    facts->pieces.push_back(piece->bytes);
  }
}

// A descriptor of the piece at the address, which the caller closes. `only_look`: 0, if it has one.
absl::StatusOr<int> ExportPiece(std::uint64_t address, bool only_look) {
  const Driver& cuda = *Cuda();
  std::uint64_t handle = 0;
  PieceProperties properties{};
  const bool held = cuda.cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(address)) == kSuccess;
  const absl::Cleanup release = [&] {
    if (held) cuda.cuMemRelease(handle);
  };
  if (!held || cuda.cuMemGetAllocationPropertiesFromHandle(&properties, handle) != kSuccess ||
      (properties.handle_types & kDescriptors) == 0) {
    return absl::InvalidArgumentError(
        "array: got memory of a GPU that CUDA can't share, such as a stream-ordered pool's (cudaMallocAsync); allowed: "
        "memory of cudaMalloc, memory of cuMemCreate that has file descriptors, such as PyTorch's expandable segments "
        "and JAX's, or a copy in host memory (copy=True)");
  }
  int file = 0;
  if (!only_look) {
    RETURN_IF_CUDA_ERROR("cuMemExportToShareableHandle",
                         cuda.cuMemExportToShareableHandle(&file, handle, kDescriptors, 0));
  }
  return file;
}

// Where each piece begins.
std::vector<std::uint64_t> StartsOf(const CudaAllocation::Facts& facts) {
  std::vector<std::uint64_t> starts;
  std::uint64_t next = facts.base;
  for (const std::int64_t bytes : facts.pieces) {
    starts.push_back(next);
    next += static_cast<std::uint64_t>(bytes);
  }
  return starts;
}

// Whether the pieces of `known` at these addresses are those that are mapped there now.
bool HasPieces(const CudaAllocation::Facts& known, std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t its_end = known.base + static_cast<std::uint64_t>(known.bytes);
  if (known.pieces.empty() || begin < known.base || end > its_end) return false;
  const std::vector<std::uint64_t> starts = StartsOf(known);
  for (std::size_t i = 0; i < starts.size() && starts[i] < end; ++i) {
    if (starts[i] + static_cast<std::uint64_t>(known.pieces[i]) <= begin) continue;
    const absl::StatusOr<CudaAllocation::Facts> now = FactsOf(starts[i]);
    if (!now.ok() || now->ids.front() != known.ids[i]) return false;
  }
  return true;
}

}  // namespace

CudaAllocation::~CudaAllocation() {
  if (generation_ != ForkGeneration()) return;  // the parent's
  const absl::MutexLock lock(&mutex_);
  regions_.clear();  // before the event, which they wait for
  if (event_ != nullptr) {
    const Current current(context_);
    Cuda()->cuEventDestroy_v2(event_);
  }
  if (context_ != facts_.context) Cuda()->cuDevicePrimaryCtxRelease_v2(facts_.device);
}

// The event says what all reductions of this memory wait for. Recording it for another stream would take the work of
// the one before out of it, for which a reduction that another thread has asked for may still have to wait. It is not
// recorded where there is nothing to wait for: the GPU would change from this process to the server's and back, which
// takes 0.3 ms. The query of the legacy stream is for the work of all streams that it waits for, too.
absl::Status CudaAllocation::Record(std::uint64_t stream) {
  const Driver& cuda = *Cuda();
  if (context_ == nullptr) {
    RETURN_IF_CUDA_ERROR("cuDevicePrimaryCtxRetain", cuda.cuDevicePrimaryCtxRetain(&context_, facts_.device));
  }
  const Current current(context_);
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
  const Current current(context_);
  Handle event;
  Uuid uuid;
  int device = 0;
  RETURN_IF_CUDA_ERROR("cuIpcGetEventHandle", cuda.cuIpcGetEventHandle(&event, event_));
  RETURN_IF_CUDA_ERROR("cuDeviceGet", cuda.cuDeviceGet(&device, facts_.device));
  RETURN_IF_CUDA_ERROR("cuDeviceGetUuid", cuda.cuDeviceGetUuid_v2(&uuid, device));
  client::DeviceMemory memory{.device_uuid = std::string(uuid.bytes.data(), kUuidBytes),
                              .bytes = facts_.bytes,
                              .event = std::string(event.bytes.data(), kHandleBytes)};
  if (facts_.pieces.empty()) {
    Handle handle;
    RETURN_IF_CUDA_ERROR("cuIpcGetMemHandle", cuda.cuIpcGetMemHandle(&handle, facts_.base));
    memory.handle.assign(handle.bytes.data(), kHandleBytes);
  } else {
    memory.pieces = facts_.pieces;
    memory.export_piece = [starts = StartsOf(facts_)](std::size_t piece) {
      return ExportPiece(starts[piece], /*only_look=*/false);
    };
  }
  return memory;
}

absl::StatusOr<client::RemoteArray> CudaAllocation::Share(client::Client& client, std::uint64_t stream,
                                                          std::uint64_t address, const std::string& dtype,
                                                          const std::vector<std::int64_t>& shape,
                                                          const client::ElementLayout& layout) {
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
  return found->second->Array(dtype, shape, static_cast<std::int64_t>(address - facts_.base), layout);
}

void CudaAllocation::Forget(const client::Client& client) {
  const absl::MutexLock lock(&mutex_);
  regions_.erase(&client);
}

absl::StatusOr<CudaArray> CudaArray::Find(std::uint64_t address, std::string dtype, std::vector<std::int64_t> shape,
                                          std::uint64_t stream, std::pair<std::uint64_t, std::uint64_t> owner,
                                          client::ElementLayout layout) {
  ASSIGN_OR_RETURN(const std::int64_t bytes, client::ArrayBytes(dtype, shape));
  std::optional<ByteSpan> span = ByteSpan{.end = bytes};
  if (layout.strides.has_value()) span = SpanOf(shape, *layout.strides, *client::DTypeBytes(dtype));
  if (!span.has_value()) return absl::InvalidArgumentError("strides: got elements 2^63 bytes apart; allowed: closer");
  const std::uint64_t begin = address + static_cast<std::uint64_t>(span->begin);
  const std::uint64_t end = address + static_cast<std::uint64_t>(span->end);
  ASSIGN_OR_RETURN(CudaAllocation::Facts facts, FactsOf(begin));
  if (!facts.pieces.empty()) {
    std::shared_ptr<CudaAllocation> known = FindBefore(begin);
    if (known != nullptr && HasPieces(known->facts(), begin, end)) {
      return CudaArray(std::move(known), address, std::move(dtype), std::move(shape), stream, std::move(layout));
    }
    const std::uint64_t owner_end = owner.first + owner.second;
    const bool within = owner.first <= begin && owner_end >= end;
    if (within && owner.first < facts.base) {
      ASSIGN_OR_RETURN(CudaAllocation::Facts first, FactsOf(owner.first));
      if (!first.pieces.empty()) facts = std::move(first);
    }
    AddPieces(within ? owner_end : end, &facts);
    for (const std::uint64_t start : StartsOf(facts)) {
      RETURN_IF_ERROR(ExportPiece(start, /*only_look=*/true).status());
    }
  }
  const std::int64_t left = facts.bytes - static_cast<std::int64_t>(begin - facts.base);
  if (span->end - span->begin > left) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape: got ", span->end - span->begin, " bytes; allowed: the ", left, " of the allocation"));
  }
  Allocations& all = AllCuda();
  const absl::MutexLock lock(&all.mutex);
  std::weak_ptr<CudaAllocation>& known = all.by_place[{facts.base, facts.ids}];
  std::shared_ptr<CudaAllocation> allocation = known.lock();
  if (allocation == nullptr) {
    const auto forget_and_delete = [&all](CudaAllocation* ended) {
      {
        const absl::MutexLock removing(&all.mutex);
        const auto found = all.by_place.find({ended->facts().base, ended->facts().ids});
        if (found != all.by_place.end() && found->second.expired()) all.by_place.erase(found);
      }
      delete ended;
    };
    allocation = std::shared_ptr<CudaAllocation>(new CudaAllocation(facts), forget_and_delete);
    known = allocation;
  }
  return CudaArray(std::move(allocation), address, std::move(dtype), std::move(shape), stream, std::move(layout));
}

void ForgetAllCuda(const client::Client& client) {
  std::vector<std::shared_ptr<CudaAllocation>> allocations;
  {
    Allocations& all = AllCuda();
    const absl::MutexLock lock(&all.mutex);
    for (const auto& [place, allocation] : all.by_place) {
      if (std::shared_ptr<CudaAllocation> there = allocation.lock(); there != nullptr)
        allocations.push_back(std::move(there));
    }
  }
  for (const std::shared_ptr<CudaAllocation>& allocation : allocations) allocation->Forget(client);
}

}  // namespace reduced::python
