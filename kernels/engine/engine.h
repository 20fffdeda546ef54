// The engines: what reduces an array to a State, on the CPU or on a CUDA device.
//
// One reduction: Reduce() queues it for a lane (RESOURCE_EXHAUSTED at once if the queue is full) and returns; a lane,
// which is a thread with everything a reduction needs allocated beforehand, folds the array chunk by chunk, looks
// between chunks whether the caller is still there, and calls `done`. Small arrays are reduced by the CPU engine on the
// calling thread, since a hand-off costs more than they do; by the CUDA engine, too, while a lane is free.
#ifndef REDUCED_KERNELS_ENGINE_ENGINE_H_
#define REDUCED_KERNELS_ENGINE_ENGINE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/algebra/spec.h"
#include "kernels/algebra/state.h"
#include "kernels/engine/array.h"
#include "kernels/engine/occupancy.h"
#include "kernels/engine/partition.h"
#include "kernels/engine/staging.h"
#include "kernels/engine/why_stop.h"
#include "kernels/matmul/matmul.h"

namespace reduced {

struct Job {
  ReduceSpec spec;   // its count: of the whole array
  ArrayRef array{};  // stays readable and unchanged until `done` runs
  absl::Time deadline = absl::InfiniteFuture();
  CancelFlag cancelled{};    // may be null
  bool admitted = false;     // part of a reduction that runs already: not refused because the queue is full
  std::uint64_t caller = 0;  // whose it is: callers take turns. Any number that tells them apart
  RunLimit limit{};          // starts when the job gets a lane
  // The outputs that the array falls apart into. Absent: it is one output, whose state the answer has.
  std::optional<Partition> partition{};
  // With a partition: the other operands of ops about two arrays, which the job has if an op needs them.
  std::optional<OtherArray> y{};
  std::optional<OtherArray> weights{};
  // With a partition: asked for the memory of the results, which the engine finalizes.
  PlaceResults place{};
  // With a partition: if it is not null, gets the state of each output. Stays valid until `done` runs.
  std::vector<State>* states = nullptr;
  // With a partition: if it is not null, an op that has no answer for some output does not take the others with it.
  // Gets the status of each op, or nothing if all are OK. The answers of an op with an error are of no use. Stays valid
  // until `done` runs.
  std::vector<absl::Status>* errors = nullptr;
};

// The other operand of an op that has one.
inline const OtherArray& OtherOf(const Job& job, Op op) {
  return OtherOf(op) == OtherOperand::kY ? *job.y : *job.weights;
}

// The arrays beside the one that is reduced, with the names of their fields.
struct NamedSide {
  const char* field;
  SideArray* array;
};
std::vector<NamedSide> SidesOf(Job& job);

// OK, or FAILED_PRECONDITION: an array beside the one that is reduced is in the memory of another CUDA device than
// `device`, that of the engine `engine`; kNoDevice: it has none.
absl::Status CheckSides(Job& job, int device, std::string_view engine);

inline absl::Status WhyStop(const Job& job) { return WhyStop(job.cancelled, job.deadline, job.limit); }

struct Answer {
  State state{};  // of the whole array; with a partition: unused
  Execution ran{};
  Timing timing{};
};

// Adds the times of each stage.
void Add(const Timing& later, Timing* into);

// Adds the result of the elements that follow: the states are combined, the times of each stage summed. `ran` becomes
// that of `later`.
void Combine(const Answer& later, Answer* into);

// One pipeline's times on one array.
struct Measurement {
  Execution ran;
  std::vector<double> kernel_us;          // of each repeat
  std::vector<State> states;              // of each repeat
  std::int64_t read_bytes = 0;            // by each repeat, at least: the array, or the copy that it is reduced in
  std::optional<double> scratch_copy_us;  // before each repeat, on average
  // What memory is only read at, at best between the repeats: a CUDA device's, or the array itself by as many threads
  // as reduce it. Absent: the array is in a file.
  std::optional<double> read_gb_per_s;
  std::optional<Occupancy> occupancy;
};

// Adds the repeats of a later measurement of the same pipeline on the same array.
void Append(Measurement later, Measurement* into);

// One device and how busy it is.
struct DeviceInfo {
  std::string name{};       // "cpu", "cuda:0"
  int ordinal = kNoDevice;  // of a CUDA device, in the order that CUDA shows them to this process
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
  // Since the engine was calibrated: reductions that it answered, and the bytes of their arrays.
  std::int64_t reductions = 0;
  std::int64_t reduced_bytes = 0;
};

// What an engine has answered: DeviceInfo::reductions and reduced_bytes. Thread-safe.
class WorkCount {
 public:
  void Add(const ReduceSpec& spec) {
    reductions_.fetch_add(1, std::memory_order_relaxed);
    bytes_.fetch_add(spec.count * RowOf(spec.dtype).bytes, std::memory_order_relaxed);
  }
  void Clear() { reductions_ = bytes_ = 0; }
  std::int64_t reductions() const { return reductions_.load(std::memory_order_relaxed); }
  std::int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> reductions_ = 0, bytes_ = 0;
};

// What the placement of `engine: auto` goes by: predicted time = fixed_us + bytes / rate. Measured when the engine
// starts.
struct Calibration {
  double fixed_us = 0;       // of one reduction of host memory, however small
  double host_gb_per_s = 0;  // at which host memory is reduced, transfers included; 1 GB = 10^9 bytes
  double held_gb_per_s = 0;  // at which arrays in the engine's own memory are
};

// How long a reduction of `array` takes by that, in microseconds, once it runs.
double ExpectedUs(const Calibration& calibration, const ReduceSpec& spec, const ArrayRef& array);

// Thread-safe.
class Engine {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<Answer>) &&>;

  virtual ~Engine() = default;  // waits for what runs; what waits in the queue is answered CANCELLED

  virtual EngineKind kind() const = 0;
  virtual DeviceInfo info() const = 0;
  virtual Calibration calibration() const = 0;
  // How long a reduction of `bytes` of host memory would wait now, in microseconds, before a lane has time for it:
  // estimated from what runs and what is queued, and from how much longer than expected the last reductions took.
  virtual double waiting_us(std::int64_t /*bytes*/) const { return 0; }

  // Whether there is room now for a reduction by the caller (as Job::caller) that must wait for a lane.
  // RESOURCE_EXHAUSTED: as Reduce would refuse it.
  virtual absl::Status CheckRoom(std::uint64_t /*caller*/, absl::Time /*deadline*/) const { return absl::OkStatus(); }

  // OK; or UNAVAILABLE, with why the device answers nothing any more, for as long as the process lives. Takes
  // microseconds: to be asked several times a second.
  virtual absl::Status Health() { return absl::OkStatus(); }

  // Never waits for a lane. Calls `done` exactly once: from a lane, or before returning (a small array, within some 50
  // us; an error found at once). RESOURCE_EXHAUSTED: the queue is full, the deadline would pass in it, or what the
  // caller has there takes longer than the target; also later, when its place goes to a caller with fewer.
  // DEADLINE_EXCEEDED, CANCELLED: seen within some 10 ms, in the queue as between chunks; also when `limit` is over.
  // FAILED_PRECONDITION: memory of another device; a file that has shrunk. UNAVAILABLE: the device failed. `job` has
  // been validated: see ValidateSpec, and Validate of a Partition.
  //
  // Each output of a partition is reduced as Reduce would reduce its elements alone, and its answers are written to the
  // memory that `place` returns. After an error the contents of that memory are undefined. Reduce also returns the
  // errors of `place`, and the error of Finalize for the first output that has one, which the message names (but see
  // Job::errors). INVALID_ARGUMENT: segments that descend or leave the array. OUT_OF_RANGE: keys outside of their
  // groups. RESOURCE_EXHAUSTED: also if a GPU has no room for an array in its memory, or the host none for the
  // grouping, or for the states of outputs of an array that the GPU takes in pieces. Two kinds of answers may differ
  // from those of the elements alone in their last bits: sums of floats in Precision::kF64, which are exact here unless
  // the outputs are long or states are wanted, and products of floats on a GPU, which multiplies in another order. The
  // same job always has the same answers, but for products of floats of an array that a GPU takes in pieces, and states
  // in Precision::kF64: what room there is decides where outputs are cut.
  virtual void Reduce(Job job, Done done) = 0;

  // Calls `work` with OK on a lane. As long as it runs, Reduce of this engine on its thread neither waits nor hands the
  // job over, but reduces on that lane, and calls `done` before it returns: for many small jobs, each of which takes
  // less time than a hand-off. `all` says what the queue is to know of them together: deadline, cancelled, admitted,
  // caller, and a spec and an array of their bytes, which is not read. Never waits itself. `work` is called exactly
  // once, with an error of the queue otherwise: see Reduce. By default, an engine without a use for that, at once.
  using Work = absl::AnyInvocable<void(const absl::Status&) &&>;
  virtual void OnLane(const Job& /*all*/, Work work) { std::move(work)(absl::OkStatus()); }

  // Whether ReduceMany takes less time than Reduce of one array after the other: arrays in the engine's memory go in
  // one launch.
  virtual bool TakesMany() const { return false; }
  // Of an engine that TakesMany: reduces arrays, each as Reduce would, one at least. All jobs have the same deadline,
  // `cancelled`, caller and limit. Calls `done` exactly once, as Reduce does: with the answers in the order of the
  // jobs, or with an error, which is that of the job `failed`. Arrays that were reduced together have shares of the
  // kernels' time, by their bytes; the first job has the time in the queue.
  using ManyDone = absl::AnyInvocable<void(std::size_t failed, absl::StatusOr<std::vector<Answer>> answers) &&>;
  virtual void ReduceMany(std::vector<Job> /*jobs*/, ManyDone done) {
    std::move(done)(0, absl::UnimplementedError("this engine reduces one array at a time"));
  }

  // An array that arrives in pieces is best reduced in stretches of so many bytes, a multiple of every element's size.
  virtual std::int64_t staging_bytes() const { return std::int64_t{256} << 10; }
  // A buffer of `bytes` >= 1 to put such a stretch together in; any number of bytes is allowed. The CUDA engine lends
  // pinned memory while it has any, from which the device copies without another copy on the host. Never blocks. The
  // engine outlives the buffer. No buffer: the host has no memory.
  virtual StagingBuffer Stage(std::int64_t bytes) { return StagingBuffer(bytes); }

  // Registers memory that is mapped for reading, so that every CUDA device copies arrays in it by DMA, until what is
  // returned is destroyed. A range can be registered only once in a process: see Engines::Pin. Null: the engine has no
  // use for that. FAILED_PRECONDITION: the memory can't be registered.
  virtual absl::StatusOr<std::shared_ptr<const void>> Pin(const void* /*data*/, std::int64_t /*bytes*/) {
    return nullptr;
  }

  // The memory behind a descriptor of cuMemExportToShareableHandle, for SharedDeviceMemory.pieces; it exists at least
  // until what is returned is destroyed. The descriptor stays the caller's, and isn't needed afterwards.
  // INVALID_ARGUMENT: it is of something else, or of memory elsewhere. FAILED_PRECONDITION: CUDA's driver is too old.
  virtual absl::StatusOr<std::shared_ptr<const void>> Import(int /*file*/) {
    return absl::FailedPreconditionError("this engine has no device memory");
  }

  // Device memory of another process as an array that Reduce takes. INVALID_ARGUMENT: the handle isn't one, the range
  // is not within its allocation, or the pieces have other sizes. FAILED_PRECONDITION: its exporter is gone, or the
  // memory is not on this device. RESOURCE_EXHAUSTED: there are no addresses left.
  virtual absl::StatusOr<HeldArray> Open(const SharedDeviceMemory& /*memory*/) {
    return absl::FailedPreconditionError("this engine has no device memory");
  }

  // Reduces an array in host memory, of at least 1 and at most 2^31 elements, `repeats` >= 1 times and once before; a
  // CUDA device each time from its own memory, with nothing of the array in its caches. As Reduce otherwise.
  // RESOURCE_EXHAUSTED besides: there is no room for the array and what the pipeline needs.
  using Measured = absl::AnyInvocable<void(absl::StatusOr<Measurement>) &&>;
  virtual void Measure(Job job, int repeats, Measured done) = 0;

  // Whether this engine can run the rung. FAILED_PRECONDITION: what it needs that the device or machine lacks.
  virtual absl::Status CheckMatmul(const MatmulRow& /*row*/) const { return absl::OkStatus(); }

  // Multiplies matrices in host memory `repeats` >= 1 times and once before; a CUDA device each time from its own
  // memory. The CPU engine, which takes a thousand times as long, repeats only while all repeats together take less
  // than some seconds, and does not multiply once before. As Measure otherwise; UNIMPLEMENTED: this engine can't. The
  // spec has been validated (ValidateMatmul), and its rung is one of this engine's that passes CheckMatmul().
  using MatmulMeasured = absl::AnyInvocable<void(absl::StatusOr<MatmulMeasurement>) &&>;
  virtual void MeasureMatmul(MatmulJob job, int repeats, MatmulMeasured done);

  // Memory for an array of `bytes` >= 0, which jobs of this engine reduce where it lies. RESOURCE_EXHAUSTED:
  // DeviceInfo.array_bytes_limit would be exceeded, with the figures, or the device has no memory left. Nothing that is
  // there makes room. `caller`: as Job::caller, who pays for host memory.
  virtual absl::StatusOr<std::unique_ptr<ArrayMemory>> Allocate(std::int64_t bytes, std::uint64_t caller) = 0;
  absl::StatusOr<std::unique_ptr<ArrayMemory>> Allocate(std::int64_t bytes) { return Allocate(bytes, 0); }
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_ENGINE_ENGINE_H_
