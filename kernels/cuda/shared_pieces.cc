#include "kernels/cuda/shared_pieces.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/cuda/driver_function.h"
#include "kernels/cuda/status.h"

namespace reduced {
namespace {

struct VirtualMemory {
  decltype(&cuMemImportFromShareableHandle) import_handle;
  decltype(&cuMemRelease) release;
  decltype(&cuMemGetAllocationPropertiesFromHandle) properties;
  decltype(&cuMemGetAllocationGranularity) granularity;
  decltype(&cuMemAddressReserve) reserve;
  decltype(&cuMemAddressFree) free_range;
  decltype(&cuMemMap) map;
  decltype(&cuMemUnmap) unmap;
  decltype(&cuMemSetAccess) set_access;
};

template <class Function>
bool Find(const char* name, Function* function) {
  constexpr unsigned kSince = 10020;
  *function = DriverFunction<Function>(name, kSince);
  return *function != nullptr;
}

// Null: the driver lacks one of them.
const VirtualMemory* FindVirtualMemory() {
  static VirtualMemory functions;
  static const bool all = Find("cuMemImportFromShareableHandle", &functions.import_handle) &&
                          Find("cuMemRelease", &functions.release) &&
                          Find("cuMemGetAllocationPropertiesFromHandle", &functions.properties) &&
                          Find("cuMemGetAllocationGranularity", &functions.granularity) &&
                          Find("cuMemAddressReserve", &functions.reserve) &&
                          Find("cuMemAddressFree", &functions.free_range) && Find("cuMemMap", &functions.map) &&
                          Find("cuMemUnmap", &functions.unmap) && Find("cuMemSetAccess", &functions.set_access);
  return all ? &functions : nullptr;
}

// The driver's errors have the numbers of the runtime's.
std::string TextOf(CUresult result) { return cudaGetErrorString(static_cast<cudaError_t>(result)); }

// A handle of cuMemImportFromShareableHandle.
class ImportedPiece {
 public:
  ImportedPiece(const VirtualMemory& driver, CUmemGenericAllocationHandle handle) : driver_(driver), handle_(handle) {}
  ~ImportedPiece() { driver_.release(handle_); }
  ImportedPiece(const ImportedPiece&) = delete;
  ImportedPiece& operator=(const ImportedPiece&) = delete;

  CUmemGenericAllocationHandle handle() const { return handle_; }

 private:
  const VirtualMemory& driver_;
  const CUmemGenericAllocationHandle handle_;
};

// A range of addresses, the first of which have memory.
class MappedRange {
 public:
  MappedRange(const VirtualMemory& driver, CUdeviceptr base, std::size_t bytes)
      : driver_(driver), base_(base), bytes_(bytes) {}
  ~MappedRange() {
    if (mapped_ > 0) driver_.unmap(base_, mapped_);
    driver_.free_range(base_, bytes_);
  }
  MappedRange(const MappedRange&) = delete;
  MappedRange& operator=(const MappedRange&) = delete;

  CUdeviceptr base() const { return base_; }

  // Maps a piece behind those before.
  CUresult Append(CUmemGenericAllocationHandle handle, std::size_t bytes) {
    const CUresult result = driver_.map(base_ + mapped_, bytes, 0, handle, 0);
    if (result == CUDA_SUCCESS) mapped_ += bytes;
    return result;
  }

 private:
  const VirtualMemory& driver_;
  const CUdeviceptr base_;
  const std::size_t bytes_;
  std::size_t mapped_ = 0;
};

// The bytes of all pieces.
absl::StatusOr<std::int64_t> CheckSizes(const std::vector<SharedPiece>& pieces, std::int64_t granularity,
                                        std::int64_t device_bytes) {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const std::int64_t its = pieces[i].bytes;
    if (its <= 0 || its % granularity != 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("pieces[%d]: got %d bytes; allowed: multiples of %d, one at least", i, its, granularity));
    }
    if (its > device_bytes - bytes) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "pieces: got more bytes together than the GPU has; allowed: at most those, %d", device_bytes));
    }
    bytes += its;
  }
  return bytes;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const void>> ImportPiece(int device, int file) {
  const VirtualMemory* const driver = FindVirtualMemory();
  if (driver == nullptr) return absl::FailedPreconditionError("the server's CUDA driver is older than CUDA 10.2");
  CUmemGenericAllocationHandle handle = 0;
  CUresult result = driver->import_handle(&handle, reinterpret_cast<void*>(std::intptr_t{file}),
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    return absl::ResourceExhaustedError(absl::StrCat("CUDA can't import the memory: ", TextOf(result)));
  }
  if (result != CUDA_SUCCESS) {
    return absl::InvalidArgumentError(
        absl::StrFormat("got a descriptor that CUDA can't import (%s); allowed: those of cuMemExportToShareableHandle",
                        TextOf(result)));
  }
  auto piece = std::make_shared<const ImportedPiece>(*driver, handle);
  CUmemAllocationProp properties{};
  result = driver->properties(&properties, handle);
  if (result != CUDA_SUCCESS || properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      properties.location.id != device) {
    return absl::InvalidArgumentError("got memory that is elsewhere; allowed: that of the GPU of deviceUuid");
  }
  return piece;
}

absl::StatusOr<MappedPieces> MapPieces(int device, const std::vector<SharedPiece>& pieces) {
  const VirtualMemory& driver = *FindVirtualMemory();  // by which they were imported
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  std::size_t granularity = 0;
  const auto failed = [](CUresult result, const char* what) {
    return DeviceError(static_cast<cudaError_t>(result), what);
  };
  CUresult result = driver.granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (result != CUDA_SUCCESS) return failed(result, "cuMemGetAllocationGranularity");
  std::size_t unused = 0;
  std::size_t device_bytes = 0;
  REDUCED_RETURN_IF_CUDA_ERROR(cudaMemGetInfo(&unused, &device_bytes));
  const absl::StatusOr<std::int64_t> bytes =
      CheckSizes(pieces, static_cast<std::int64_t>(granularity), static_cast<std::int64_t>(device_bytes));
  if (!bytes.ok()) return bytes.status();

  CUdeviceptr base = 0;
  result = driver.reserve(&base, static_cast<std::size_t>(*bytes), 0, 0, 0);
  if (result != CUDA_SUCCESS) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("can't reserve addresses for %d bytes: %s", *bytes, TextOf(result)));
  }
  auto range = std::make_shared<MappedRange>(driver, base, static_cast<std::size_t>(*bytes));
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto& piece = *static_cast<const ImportedPiece*>(pieces[i].memory.get());
    result = range->Append(piece.handle(), static_cast<std::size_t>(pieces[i].bytes));
    if (result == CUDA_ERROR_OUT_OF_MEMORY) return failed(result, "cuMemMap");
    if (result != CUDA_SUCCESS) {  // CUDA maps no more and no less
      return absl::InvalidArgumentError(absl::StrFormat(
          "pieces[%d]: got %d bytes; allowed: the size of its memory (%s)", i, pieces[i].bytes, TextOf(result)));
    }
  }
  // Reading is enough, where the driver has that alone.
  for (const CUmemAccess_flags access : {CU_MEM_ACCESS_FLAGS_PROT_READ, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}) {
    const CUmemAccessDesc all{properties.location, access};
    result = driver.set_access(base, static_cast<std::size_t>(*bytes), &all, 1);
    if (result == CUDA_SUCCESS) break;
  }
  if (result != CUDA_SUCCESS) return failed(result, "cuMemSetAccess");
  return MappedPieces{.range = {reinterpret_cast<const std::byte*>(base), *bytes}, .held = std::move(range)};
}

}  // namespace reduced
