// A CUDA device without a GPU: the functions of the CUDA runtime that the host code of kernels/cuda calls, over host
// memory, and stand-ins for the kernels, which compute on the host. A program that links this in place of the runtime
// runs all of that code, the handling of every error included.
//
// Streams do what they are given at once. What a test sets here holds for all threads. Thread-safe.
#ifndef REDUCED_TESTS_FAKE_CUDA_FAKE_CUDA_H_
#define REDUCED_TESTS_FAKE_CUDA_FAKE_CUDA_H_

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <vector>

namespace reduced::fake_cuda {

// What exists.
struct InUse {
  int device_allocations = 0;
  int host_allocations = 0;  // pinned
  int registered = 0;        // ranges of host memory
  int streams = 0;
  int events = 0;
  int pools = 0;
  int opened = 0;  // IPC handles
  int pieces = 0;  // handles of physical memory, and where it is mapped
  int ranges = 0;  // of reserved addresses

  friend bool operator==(const InUse&, const InUse&) = default;
};
std::ostream& operator<<(std::ostream& out, const InUse& in_use);
InUse Use();

// How often each function was called since the last Heal, by its name; kernels are "LaunchKernel".
std::map<std::string, int> Calls();

// Call number `n` of `function` from now on, 1 for the next, returns `error` and does nothing. If it is an error that
// loses a context for good, as an illegal address is, all functions return it until Heal.
void FailCall(const std::string& function, int n, cudaError_t error);
bool HasFailed();  // that call came
// Nothing ends any more: waits don't return, queries say cudaErrorNotReady, until Heal.
void Hang();
// As new, but for what is in use.
void Heal();

// Device memory, in bytes, beyond which allocations fail; by default 16 GiB.
void SetMemory(std::size_t bytes);

// Device memory of another process, and an event of it: their IPC handles. Handles of fake_driver.cc, which begin with
// kFakeMemory and are the names of shared memory, are memory of a process that there is.
inline constexpr char kFakeMemory[] = "/reduced_fake_";
inline constexpr char kUuid[] = "a fake device 01";
std::string MemoryHandle(void* memory, std::size_t bytes);
std::string EventHandle();
// Whether that event has passed.
void SetEventPassed(bool passed);

// Memory of CUDA's virtual memory management, of this process: pieces of so many bytes one behind the other, at the
// address that is returned. kOther: on another device. kWithoutHandles: it can't be exported. Null: there is no memory.
inline constexpr std::size_t kGranularity = 64 << 10;
inline constexpr char kFakePiece[] = "reduced_fake_piece", kFakePieceOfOther[] = "reduced_fake_piece_of_other",
                      kFakePieceWithoutHandles[] = "reduced_fake_piece_without_handles";  // names of memfds
enum class Pieces : std::uint8_t { kShared, kOther, kWithoutHandles };
std::byte* MakePieces(const std::vector<std::size_t>& bytes, Pieces kind = Pieces::kShared);
void FreePieces(std::byte* base);
// A descriptor of the piece at an address, as cuMemExportToShareableHandle has it; the caller closes it.
int ExportPiece(const std::byte* address);

// For the other half of this fake, fake_virtual_memory.cc: counts the call, and gives the error that it fails with.
cudaError_t Enter(const char* function);
// A function of the driver; null: there is none of that name.
void* VirtualMemoryFunction(const std::string& name);
// The piece of mapped memory at an address. False: there is none.
bool FindPiece(CUdeviceptr* start, std::size_t* bytes, CUdeviceptr address);
int PiecesInUse();
int RangesInUse();

// For the stand-ins of kernels: what a launch returns. *runs: the kernel does run.
cudaError_t BeginLaunch(bool* runs);

}  // namespace reduced::fake_cuda

#endif  // REDUCED_TESTS_FAKE_CUDA_FAKE_CUDA_H_
