// Arrays as engines see them: where the elements are, which device holds them, and what keeps their memory alive.
#ifndef REDUCED_KERNELS_ENGINE_ARRAY_H_
#define REDUCED_KERNELS_ENGINE_ARRAY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace reduced {

enum class MemorySpace : std::uint8_t {
  kHost,
  kPinnedHost,  // host memory that CUDA devices copy from by DMA: Engine::Pin, StagingBuffer
  kFile,        // what pread() reads from a file, which may change or shrink meanwhile
  kDevice,      // memory of one CUDA device: ArrayRef::device
};

// The home of host memory, and the ordinal of the CPU engine: no CUDA device.
inline constexpr int kNoDevice = -1;

class StridedReader;

// Writes `bytes` bytes of an array, in C order from byte `offset` on, to `to`: whole elements. Several threads call it
// at once.
using ReadElements = std::function<absl::Status(std::int64_t offset, char* to, std::int64_t bytes)>;

// An array where it lies: spec.count elements from any byte address. It is never written to.
struct ArrayRef {
  // kFile: the same bytes, mapped, if they can be read without a fault; else null.
  const void* data = nullptr;
  MemorySpace space = MemorySpace::kHost;
  // kFile: the descriptor, and the first byte in the file. With `read` or `strided`: the first byte in C order.
  int file = -1;
  std::int64_t offset = 0;
  // kHost, kFile: copies elements that are not next to each other, or have other bytes than engines take. If it is set,
  // `data` is null, and kFile says that copying may block. The CPU engine has a block of a whole array copied at a
  // time, and with a partition the array, within its budget; the CUDA engine the chunks that it copies to its device.
  const ReadElements* read = nullptr;
  // kDevice: where such elements are. If it is set, `data` is null. A kernel copies them, within the budget of the
  // device, before they are reduced, and Timing::scratch_copy_us has the time of that.
  const StridedReader* strided = nullptr;
  // kDevice: a cudaEvent_t that the reduction waits for before it reads; may be null.
  void* ready = nullptr;
  // kDevice: the CUDA ordinal of the device that holds the array, its home. Only the engine of that device reduces it.
  int device = kNoDevice;
};

// The array from byte `begin` on.
inline ArrayRef From(ArrayRef array, std::int64_t begin) {
  if (array.data != nullptr) array.data = static_cast<const std::byte*>(array.data) + begin;
  array.offset += begin;
  return array;
}

// Whether reading the array may take any time: it is in a file that isn't mapped, which may be on a disk.
inline bool MayBlock(const ArrayRef& array) { return array.space == MemorySpace::kFile && array.data == nullptr; }

// Whether the elements of an array that is in no device's memory have to be copied, by CopyElements, before anything
// else is done with them.
inline bool IsCopied(const ArrayRef& array) { return array.read != nullptr || MayBlock(array); }

// Copies `bytes` bytes from byte `begin` of such an array on, whole elements in C order, or of one in host memory.
// Errors: as ReadFile, and of array.read.
absl::Status CopyElements(const ArrayRef& array, std::int64_t begin, std::int64_t bytes, std::byte* to);

// An array and what keeps its memory alive.
struct HeldArray {
  ArrayRef array{};
  std::shared_ptr<const void> held{};
};

// An allocation of CUDA's virtual memory management in another process: physical memory, which is mapped as a whole.
struct SharedPiece {
  std::shared_ptr<const void> memory{};  // from Engine::Import
  std::int64_t bytes = 0;                // all that it has
};

// Device memory of another process: an allocation, as its IPC handle names it, or pieces that lie one behind the other.
struct SharedDeviceMemory {
  std::string handle{};       // the bytes of a cudaIpcMemHandle_t: an allocation; empty: `pieces`
  std::string device_uuid{};  // 16 bytes
  std::int64_t offset = 0;    // in the allocation or the pieces, bytes
  std::int64_t bytes = 0;
  std::string event{};  // the bytes of a cudaIpcEventHandle_t, or none
  std::vector<SharedPiece> pieces{};
};

// Memory of an engine's device, for a resident array. Destroying it frees the memory: before the engine is destroyed,
// and after every job that reads the array is done.
class ArrayMemory {
 public:
  virtual ~ArrayMemory() = default;

  // Where the array lies; no data if it has no bytes.
  virtual ArrayRef array() const = 0;

  // Copies `bytes` from host memory to `offset`, both within what was allocated. Blocks until they are there. Used by
  // one thread at a time, and not beside a job that reads the array. UNAVAILABLE: the device failed.
  virtual absl::Status Write(std::int64_t offset, const void* data, std::int64_t bytes) = 0;

  // Copies `bytes` at `offset` to host memory. Blocks until they are there. By any number of threads, also beside jobs
  // that read the array; not beside Write. UNAVAILABLE: the device failed.
  virtual absl::Status Read(std::int64_t offset, std::int64_t bytes, void* to) const = 0;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_ENGINE_ARRAY_H_
