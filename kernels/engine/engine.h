// The engines: what reduces an array to a State, on the CPU or on a CUDA device.
//
// One reduction: Reduce() queues it for a lane (RESOURCE_EXHAUSTED at once if the queue is full) and returns; a lane,
// which is a thread with everything a reduction needs allocated beforehand, folds the array chunk by chunk, looks
// between chunks whether the caller is still there, and calls `done`. Small arrays are reduced by the CPU engine on the
// calling thread, since a hand-off costs more than they do; by the CUDA engine, too, while a lane is free.
#ifndef REDUCED_KERNELS_ENGINE_ENGINE_H_
#define REDUCED_KERNELS_ENGINE_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/algebra/spec.h"
#include "kernels/algebra/state.h"

namespace reduced {

enum class MemorySpace : std::uint8_t {
  kHost,
  kPinnedHost,  // host memory that Engine::Pin has registered
  kFile,        // what pread() reads from a file, which may change or shrink meanwhile
  kDevice,      // memory of the CUDA device that the engine runs on
};

// An array where it lies: spec.count elements from any byte address. Never written to.
struct ArrayRef {
  const void* data = nullptr;  // kFile: the same bytes, mapped, if that can be read without a fault; else null
  MemorySpace space = MemorySpace::kHost;
  int file = -1;            // kFile: the descriptor ...
  std::int64_t offset = 0;  // ... and the first byte in it
  void* ready = nullptr;    // kDevice: a cudaEvent_t that the reduction waits for before it reads; may be null
};

// An array and what keeps its memory.
struct HeldArray {
  ArrayRef array{};
  std::shared_ptr<const void> held{};
};

// Device memory of another process, as CUDA's IPC handles name it.
struct SharedDeviceMemory {
  std::string handle{};       // the bytes of a cudaIpcMemHandle_t: an allocation
  std::string device_uuid{};  // 16 bytes
  std::int64_t offset = 0;    // in the allocation, bytes
  std::int64_t bytes = 0;
  std::string event{};  // the bytes of a cudaIpcEventHandle_t, or none
};

// Set by whoever no longer wants the answer; seen by the lane between chunks. Thread-safe.
using CancelFlag = std::shared_ptr<std::atomic<bool>>;

struct Job {
  ReduceSpec spec;
  ArrayRef array{};  // stays readable and unchanged until `done` runs
  absl::Time deadline = absl::InfiniteFuture();
  CancelFlag cancelled{};  // may be null
  bool admitted = false;   // part of a reduction that runs already: not refused because the queue is full
};

struct EngineResult {
  State state{};
  Execution ran{};
  Timing timing{};
};

// Adds the result of the elements that follow: the states are combined, the times of each stage summed. `ran` becomes
// that of `later`.
void Combine(const EngineResult& later, EngineResult* into);

// How many blocks of a kernel fit on a multiprocessor of its device, and what they take.
struct Occupancy {
  int block_size = 0;    // threads
  int registers = 0;     // of a thread
  int shared_bytes = 0;  // of a block
  int blocks_per_multiprocessor = 0;
  int max_threads_per_multiprocessor = 0;
};

// One pipeline's times on one array.
struct Measurement {
  Execution ran;
  std::vector<double> kernel_us;          // of each repeat
  std::vector<State> states;              // of each repeat
  std::optional<double> scratch_copy_us;  // before each repeat, on average
  std::optional<double> read_gb_per_s;    // what device memory can be read at, at best between the repeats
  std::optional<Occupancy> occupancy;
};

// One device and how busy it is.
struct DeviceInfo {
  std::string name{};  // "cpu", "cuda:0"
  std::string model{};
  std::int64_t memory_bytes = 0;
  int parallel_units = 0;  // threads, or multiprocessors
  std::string details{};   // vector extensions, or compute capability and driver
  std::string uuid{};      // of a GPU, 16 bytes; else empty
  int lanes = 0;           // reductions that can run at once
  int lanes_busy = 0;
  int queue_limit = 0;  // reductions that can wait for a lane
  int queue_length = 0;
  std::int64_t array_bytes = 0;        // of the ArrayMemory that there is
  std::int64_t array_bytes_limit = 0;  // of all that there may be
};

// What the placement of `engine: auto` goes by: predicted time = fixed_us + bytes / rate. Measured when the engine
// starts.
struct Calibration {
  double fixed_us = 0;       // of one reduction of host memory, however small
  double host_gb_per_s = 0;  // at which host memory is reduced, transfers included; 1 GB = 10^9 bytes
};

// Memory of an engine's device, for an array that stays. Freed when it is destroyed, which must happen before the
// engine is, and not before every job that reads it is done.
class ArrayMemory {
 public:
  virtual ~ArrayMemory() = default;

  // Where it lies; no data if it has no bytes.
  virtual ArrayRef array() const = 0;

  // Copies `bytes` from host memory to `offset`, both within what was allocated. Blocks until they are there. Used by
  // one thread at a time, and not beside a job that reads the array. UNAVAILABLE: the device failed.
  virtual absl::Status Write(std::int64_t offset, const void* data, std::int64_t bytes) = 0;
};

// Thread-safe.
class Engine {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<EngineResult>) &&>;

  virtual ~Engine() = default;  // waits for what runs; what waits in the queue is answered CANCELLED

  virtual EngineKind kind() const = 0;
  virtual DeviceInfo info() const = 0;
  virtual Calibration calibration() const = 0;

  // OK; or UNAVAILABLE, with why the device answers nothing any more, for as long as the process lives. Takes
  // microseconds: to be asked several times a second.
  virtual absl::Status Health() { return absl::OkStatus(); }

  // Never waits for a lane. Calls `done` exactly once: from a lane, or before returning (a small array, within some 50
  // us; an error found at once). RESOURCE_EXHAUSTED: the queue is full. DEADLINE_EXCEEDED, CANCELLED: seen before or
  // between chunks. FAILED_PRECONDITION: device memory given to the CPU engine; a file that has shrunk. UNAVAILABLE:
  // the device failed. `job` has been validated: see ValidateSpec.
  virtual void Reduce(Job job, Done done) = 0;

  // Registers memory that is mapped for reading, so that arrays in it are copied to the device by DMA, until what is
  // returned is destroyed. Null if the engine has no use for that. FAILED_PRECONDITION: it can't be registered.
  virtual absl::StatusOr<std::shared_ptr<const void>> Pin(const void* /*data*/, std::int64_t /*bytes*/) {
    return nullptr;
  }

  // Device memory of another process as an array that Reduce takes. INVALID_ARGUMENT: the handle isn't one, or the
  // range not within its allocation. FAILED_PRECONDITION: its exporter is gone, or the memory is not on this device.
  virtual absl::StatusOr<HeldArray> Open(const SharedDeviceMemory& /*memory*/) {
    return absl::FailedPreconditionError("this engine has no device memory");
  }

  // Reduces an array in host memory, of at least 1 and at most 2^31 elements, `repeats` times and once before; a CUDA
  // device each time from its own memory, with nothing of the array in its caches. As Reduce otherwise.
  // RESOURCE_EXHAUSTED besides: there is no room for the array and what the pipeline needs.
  using Measured = absl::AnyInvocable<void(absl::StatusOr<Measurement>) &&>;
  virtual void Measure(Job job, int repeats, Measured done) = 0;

  // Memory for an array of `bytes` >= 0, which jobs of this engine reduce where it lies. RESOURCE_EXHAUSTED:
  // DeviceInfo.array_bytes_limit would be exceeded, with the figures, or the device has no memory left. Nothing that is
  // there makes room.
  virtual absl::StatusOr<std::unique_ptr<ArrayMemory>> Allocate(std::int64_t bytes) = 0;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_ENGINE_ENGINE_H_
