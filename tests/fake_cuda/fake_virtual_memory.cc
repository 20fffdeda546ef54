// CUDA's virtual memory management over memfds: physical memory is a file, and a descriptor of it is what is exported.
#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstring>
#include <iterator>
#include <map>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "tests/fake_cuda/fake_cuda.h"

namespace reduced::fake_cuda {
namespace {

// What begins the names of the memfds, by which the descriptors of other files are told.
constexpr std::string_view kNames[] = {kFakePiece, kFakePieceOfOther, kFakePieceWithoutHandles};

struct Physical {
  int file = -1;
  ino_t inode = 0;
  std::size_t bytes = 0;
  Pieces kind = Pieces::kShared;
  int handles = 0;   // of this process
  int mappings = 0;  // how often it is mapped
};

struct Mapped {
  std::size_t bytes = 0;
  Physical* memory = nullptr;
};

struct Memory {
  absl::Mutex mutex;
  int pieces ABSL_GUARDED_BY(mutex) = 0;
  std::map<ino_t, Physical*> physical ABSL_GUARDED_BY(mutex);  // however often it is imported
  std::map<CUdeviceptr, std::size_t> ranges ABSL_GUARDED_BY(mutex);
  std::map<CUdeviceptr, Mapped> mapped ABSL_GUARDED_BY(mutex);
};

Memory& All() {
  static auto* const memory = new Memory;
  return *memory;
}

Physical* PhysicalOf(CUmemGenericAllocationHandle handle) { return reinterpret_cast<Physical*>(handle); }
void* At(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

// A new handle of that memory.
CUmemGenericAllocationHandle Hold(Physical* memory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(All().mutex) {
  ++memory->handles;
  ++All().pieces;
  return reinterpret_cast<CUmemGenericAllocationHandle>(memory);
}

// A handle of the memory in a file, of which it takes a copy the first time.
CUresult HoldFile(int file, Pieces kind, CUmemGenericAllocationHandle* handle) {
  struct stat status {};
  if (fstat(file, &status) != 0) return CUDA_ERROR_OPERATING_SYSTEM;
  const absl::MutexLock lock(&All().mutex);
  Physical*& memory = All().physical[status.st_ino];
  if (memory == nullptr) {
    memory = new Physical{.file = fcntl(file, F_DUPFD_CLOEXEC, 0),
                          .inode = status.st_ino,
                          .bytes = static_cast<std::size_t>(status.st_size),
                          .kind = kind};
  }
  *handle = Hold(memory);
  return CUDA_SUCCESS;
}

void EndIfUnused(Physical* memory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(All().mutex) {
  if (memory->handles > 0 || memory->mappings > 0) return;
  All().physical.erase(memory->inode);
  close(memory->file);
  delete memory;
}

std::map<CUdeviceptr, Mapped>::const_iterator FindMapped(CUdeviceptr address)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(All().mutex) {
  const auto after = All().mapped.upper_bound(address);
  if (after == All().mapped.begin()) return All().mapped.end();
  const auto found = std::prev(after);
  return address < found->first + found->second.bytes ? found : All().mapped.end();
}

#define ENTER_DRIVER() \
  if (const cudaError_t entered = Enter(__func__); entered != cudaSuccess) return static_cast<CUresult>(entered)

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes, const CUmemAllocationProp* properties,
                     unsigned long long) {
  ENTER_DRIVER();
  if (bytes == 0 || bytes % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  Pieces kind = Pieces::kShared;
  if (properties->location.id != 0) kind = Pieces::kOther;
  if (properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) kind = Pieces::kWithoutHandles;
  const int file = memfd_create(std::string(kNames[static_cast<int>(kind)]).c_str(), MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = HoldFile(file, kind, handle);
  close(file);
  return result;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const cudaError_t error = Enter(__func__);
  const absl::MutexLock lock(&All().mutex);
  --All().pieces;
  --PhysicalOf(handle)->handles;
  EndIfUnused(PhysicalOf(handle));
  return static_cast<CUresult>(error);
}
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  ENTER_DRIVER();
  const absl::MutexLock lock(&All().mutex);
  const auto found = FindMapped(reinterpret_cast<CUdeviceptr>(address));
  if (found == All().mapped.end()) return CUDA_ERROR_INVALID_VALUE;
  *handle = Hold(found->second.memory);
  return CUDA_SUCCESS;
}
CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) {
  ENTER_DRIVER();
  const Pieces kind = PhysicalOf(handle)->kind;
  *properties = {};
  properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties->location = {CU_MEM_LOCATION_TYPE_DEVICE, kind == Pieces::kOther ? 1 : 0};
  if (kind != Pieces::kWithoutHandles) properties->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return CUDA_SUCCESS;
}
CUresult cuMemGetAllocationGranularity(std::size_t* granularity, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  ENTER_DRIVER();
  *granularity = kGranularity;
  return CUDA_SUCCESS;
}
CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType,
                                      unsigned long long) {
  ENTER_DRIVER();
  if (PhysicalOf(handle)->kind == Pieces::kWithoutHandles) return CUDA_ERROR_INVALID_VALUE;
  *static_cast<int*>(out) = fcntl(PhysicalOf(handle)->file, F_DUPFD_CLOEXEC, 0);
  return *static_cast<int*>(out) < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* descriptor,
                                        CUmemAllocationHandleType) {
  ENTER_DRIVER();
  const int file = static_cast<int>(reinterpret_cast<std::intptr_t>(descriptor));
  char target[PATH_MAX] = {};
  const auto length = readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), target, sizeof(target) - 1);
  std::string_view name(target, length < 0 ? 0 : static_cast<std::size_t>(length));
  constexpr std::string_view kPrefix = "/memfd:";
  if (!name.starts_with(kPrefix)) return CUDA_ERROR_UNKNOWN;  // as the real one says of any other file
  name.remove_prefix(kPrefix.size());
  for (int kind = 0; kind < static_cast<int>(std::size(kNames)); ++kind) {
    if (name.substr(0, name.find(' ')) == kNames[kind]) return HoldFile(file, static_cast<Pieces>(kind), handle);
  }
  return CUDA_ERROR_UNKNOWN;
}
CUresult cuMemAddressReserve(CUdeviceptr* address, std::size_t bytes, std::size_t, CUdeviceptr, unsigned long long) {
  ENTER_DRIVER();
  void* const range = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = reinterpret_cast<CUdeviceptr>(range);
  const absl::MutexLock lock(&All().mutex);
  All().ranges[*address] = bytes;
  return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr address, std::size_t bytes) {
  const cudaError_t error = Enter(__func__);
  const absl::MutexLock lock(&All().mutex);
  const auto found = All().ranges.find(address);
  if (found == All().ranges.end() || found->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  munmap(At(address), bytes);
  All().ranges.erase(found);
  return static_cast<CUresult>(error);
}
CUresult cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long) {
  ENTER_DRIVER();
  Physical* const memory = PhysicalOf(handle);
  if (offset != 0 || bytes != memory->bytes) return CUDA_ERROR_NOT_SUPPORTED;
  const absl::MutexLock lock(&All().mutex);
  if (mmap(At(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, memory->file, 0) == MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  ++memory->mappings;
  ++All().pieces;
  All().mapped[address] = {bytes, memory};
  return CUDA_SUCCESS;
}
CUresult cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
  const cudaError_t error = Enter(__func__);
  const absl::MutexLock lock(&All().mutex);
  auto each = All().mapped.lower_bound(address);
  while (each != All().mapped.end() && each->first < address + bytes) {
    constexpr int kNothing = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (mmap(At(each->first), each->second.bytes, PROT_NONE, kNothing, -1, 0) == MAP_FAILED) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    --All().pieces;
    --each->second.memory->mappings;
    EndIfUnused(each->second.memory);
    each = All().mapped.erase(each);
  }
  return static_cast<CUresult>(error);
}
CUresult cuMemSetAccess(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* access, std::size_t) {
  ENTER_DRIVER();
  const int writing = access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_WRITE : 0;
  return mprotect(At(address), bytes, PROT_READ | writing) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuPointerGetAttribute(void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  ENTER_DRIVER();
  if (attribute != CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) return CUDA_ERROR_INVALID_VALUE;
  const absl::MutexLock lock(&All().mutex);
  *static_cast<unsigned*>(value) = FindMapped(address) == All().mapped.end() ? 1 : 0;  // as the real one, 4 bytes
  return CUDA_SUCCESS;
}

}  // namespace

void* VirtualMemoryFunction(const std::string& name) {
#define FUNCTION(function) \
  { #function, reinterpret_cast < void*>(&function) }
  static const auto* const functions = new std::map<std::string, void*>{
      FUNCTION(cuMemCreate),
      FUNCTION(cuMemRelease),
      FUNCTION(cuMemRetainAllocationHandle),
      FUNCTION(cuMemGetAllocationPropertiesFromHandle),
      FUNCTION(cuMemGetAllocationGranularity),
      FUNCTION(cuMemExportToShareableHandle),
      FUNCTION(cuMemImportFromShareableHandle),
      FUNCTION(cuMemAddressReserve),
      FUNCTION(cuMemAddressFree),
      FUNCTION(cuMemMap),
      FUNCTION(cuMemUnmap),
      FUNCTION(cuMemSetAccess),
      FUNCTION(cuPointerGetAttribute),
  };
#undef FUNCTION
  const auto found = functions->find(name);
  return found == functions->end() ? nullptr : found->second;
}

bool FindPiece(CUdeviceptr* start, std::size_t* bytes, CUdeviceptr address) {
  const absl::MutexLock lock(&All().mutex);
  const auto found = FindMapped(address);
  if (found == All().mapped.end()) return false;
  *start = found->first;
  *bytes = found->second.bytes;
  return true;
}

int PiecesInUse() {
  const absl::MutexLock lock(&All().mutex);
  return All().pieces;
}

int RangesInUse() {
  const absl::MutexLock lock(&All().mutex);
  return static_cast<int>(All().ranges.size());
}

std::byte* MakePieces(const std::vector<std::size_t>& bytes, Pieces kind) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, kind == Pieces::kOther ? 1 : 0};
  if (kind != Pieces::kWithoutHandles) properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  std::size_t all = 0;
  for (const std::size_t each : bytes) all += each;
  CUdeviceptr base = 0;
  if (fake_cuda::cuMemAddressReserve(&base, all, 0, 0, 0) != CUDA_SUCCESS) return nullptr;
  CUdeviceptr at = base;
  for (const std::size_t each : bytes) {
    CUmemGenericAllocationHandle handle = 0;
    if (fake_cuda::cuMemCreate(&handle, each, &properties, 0) != CUDA_SUCCESS) return nullptr;
    const CUresult mapped = fake_cuda::cuMemMap(at, each, 0, handle, 0);
    fake_cuda::cuMemRelease(handle);
    if (mapped != CUDA_SUCCESS) return nullptr;
    at += each;
  }
  const CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return fake_cuda::cuMemSetAccess(base, all, &access, 1) == CUDA_SUCCESS ? static_cast<std::byte*>(At(base)) : nullptr;
}

void FreePieces(std::byte* base) {
  const auto address = reinterpret_cast<CUdeviceptr>(base);
  std::size_t bytes = 0;
  {
    const absl::MutexLock lock(&All().mutex);
    bytes = All().ranges.at(address);
  }
  fake_cuda::cuMemUnmap(address, bytes);
  fake_cuda::cuMemAddressFree(address, bytes);
}

int ExportPiece(const std::byte* address) {
  CUmemGenericAllocationHandle handle = 0;
  if (fake_cuda::cuMemRetainAllocationHandle(&handle, const_cast<std::byte*>(address)) != CUDA_SUCCESS) return -1;
  int file = -1;
  const CUresult result =
      fake_cuda::cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  fake_cuda::cuMemRelease(handle);
  return result == CUDA_SUCCESS ? file : -1;
}

}  // namespace reduced::fake_cuda

extern "C" {

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  CUdeviceptr start = 0;
  std::size_t bytes = 0;
  const bool found = reduced::fake_cuda::FindPiece(&start, &bytes, reinterpret_cast<CUdeviceptr>(data));
  *attributes = {};
  attributes->type = found ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
  return cudaSuccess;
}
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*) { return cudaErrorInvalidValue; }
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t) {
  std::memset(handle, 'e', sizeof(*handle));
  return cudaSuccess;
}

}  // extern "C"
