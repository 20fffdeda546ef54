#include "kernels/cuda/engine.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "kernels/cuda/arrays.h"
#include "kernels/cuda/lane.h"
#include "kernels/cuda/shared_memory.h"
#include "kernels/cuda/status.h"
#include "kernels/cuda/waits.h"
#include "kernels/engine/array_budget.h"
#include "kernels/engine/hang_watch.h"
#include "kernels/engine/lanes.h"
#include "kernels/engine/one_output.h"
#include "kernels/engine/pipelines.h"
#include "kernels/engine/stopwatch.h"
#include "kernels/matmul/cublas.h"
#include "kernels/system/failpoint.h"
#include "kernels/system/numa.h"
#include "oneapi/tbb/info.h"
#include "oneapi/tbb/task_arena.h"
#include "oneapi/tbb/task_scheduler_observer.h"

namespace reduced {
namespace {

// Threads that copy to pinned memory, for all lanes. One copies some 10 GB/s, the device takes 55 GB/s.
constexpr int kCopiers = 8;

// Of an array that arrives in pieces: enough to be worth a transfer and a launch.
constexpr std::int64_t kStagingBytes = std::int64_t{4} << 20;

// The slab of a StagingPool: null if `bytes` is 0 or the host has no memory to pin, which slows uploads down, no more.
struct FreePinned {
  void operator()(std::byte* slab) const { cudaFreeHost(slab); }
};
using PinnedSlab = std::unique_ptr<std::byte, FreePinned>;
PinnedSlab PinSlab(std::int64_t bytes) {
  void* slab = nullptr;
  if (bytes == 0) return nullptr;
  const cudaError_t error = FAILPOINT("cuda/slab")
                                ? cudaErrorMemoryAllocation
                                : cudaHostAlloc(&slab, static_cast<std::size_t>(bytes), cudaHostAllocPortable);
  if (error != cudaSuccess) cudaGetLastError();  // CUDA would report it again
  return PinnedSlab(static_cast<std::byte*>(error == cudaSuccess ? slab : nullptr));
}

// A fault of one device ends CUDA for its process: all devices report the same error from then on. So the engines of a
// process share what tells whose fault it was: which of their lanes met it first. Thread-safe.
class Fault {
 public:
  void Note(int device) {
    int none = kNoDevice;
    device_.compare_exchange_strong(none, device);
  }
  // An engine has started: there is no fault.
  void Clear() { device_ = kNoDevice; }
  std::optional<int> device() const {
    const int device = device_;
    return device == kNoDevice ? std::nullopt : std::optional(device);
  }

 private:
  std::atomic<int> device_ = kNoDevice;
};
Fault& FirstFault() {
  static Fault fault;
  return fault;
}

// Keeps the threads that work in an arena on some processors for as long as they do. Absent: leaves them alone.
class StayOn final : public tbb::task_scheduler_observer {
 public:
  StayOn(tbb::task_arena& arena, const std::optional<cpu_set_t>& processors)
      : tbb::task_scheduler_observer(arena), processors_(processors) {
    if (processors_.has_value()) observe(true);
  }
  ~StayOn() override { observe(false); }
  void on_scheduler_entry(bool /*worker*/) override { stay_.emplace(processors_); }
  void on_scheduler_exit(bool /*worker*/) override { stay_.reset(); }

 private:
  const std::optional<cpu_set_t> processors_;
  static thread_local std::optional<OnProcessors> stay_;  // of a thread, which is in one arena of copiers at a time
};
thread_local std::optional<OnProcessors> StayOn::stay_;

// The default of cuda_array_bytes. Whole GiB of a large card, so that equal cards, whose drivers leave a few bytes more
// or less free, have equal room.
std::int64_t DefaultArrayBytes(std::size_t free_bytes) {
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  const auto share = static_cast<std::int64_t>(free_bytes - free_bytes / 4);
  return share < 16 * kGiB ? share : share / kGiB * kGiB;
}

class CudaEngine : public Engine {
 public:
  CudaEngine(int device, DeviceInfo info, std::shared_ptr<DeviceWaits> waits, std::unique_ptr<CudaArrays> arrays,
             std::unique_ptr<tbb::task_arena> copiers, const std::optional<cpu_set_t>& near,
             std::vector<std::unique_ptr<CudaLane>> lanes, const EngineOptions& options)
      : device_(device),
        info_(std::move(info)),
        waits_(std::move(waits)),
        shared_(device, info_.uuid),
        arrays_(std::move(arrays)),
        scratch_(info_.name, std::numeric_limits<std::int64_t>::max(), options.memory),
        slab_(PinSlab(options.cuda_staging_bytes / kStagingBytes * kStagingBytes)),
        staging_(slab_.get(), kStagingBytes,
                 slab_ == nullptr ? 0 : static_cast<int>(options.cuda_staging_bytes / kStagingBytes)),
        copiers_(std::move(copiers)),
        copiers_stay_(*copiers_, near),
        cuda_lanes_(std::move(lanes)),
        lanes_(static_cast<int>(cuda_lanes_.size()), options.queue_limit, options.queue_target) {}

  EngineKind kind() const override { return EngineKind::kCuda; }

  DeviceInfo info() const override {
    DeviceInfo info = info_;
    info.lanes = lanes_.count();
    info.lanes_busy = lanes_.busy();
    info.queue_limit = lanes_.queue_limit();
    info.queue_length = lanes_.queue_length();
    info.array_bytes = arrays_->budget().taken();
    info.array_bytes_limit = arrays_->budget().limit();
    info.reductions = work_.reductions();
    info.reduced_bytes = work_.bytes();
    return info;
  }

  Calibration calibration() const override { return calibration_; }
  absl::Status CheckRoom(std::uint64_t caller, absl::Time deadline) const override {
    return lanes_.CheckRoom(caller, deadline);
  }
  double waiting_us(std::int64_t /*bytes*/) const override { return lanes_.waiting_us(); }

  // An error that ends a context (an illegal address, an uncorrectable memory error, a device that has fallen off the
  // bus) comes back from every call from then on, whichever call it was that met it. Of a kernel that hangs only who
  // waits for it knows.
  absl::Status Health() override {
    if (absl::Status hangs = waits_->Check(); !hangs.ok()) return hangs;
    cudaError_t error = FAILPOINT("cuda/lost") ? cudaErrorIllegalAddress : cudaSetDevice(device_);
    if (error == cudaSuccess) error = cudaStreamQuery(cudaStreamLegacy);
    if (error == cudaSuccess || error == cudaErrorNotReady) return absl::OkStatus();
    const absl::Status lost = DeviceError(error, "its context is lost");
    const std::optional<int> first = FirstFault().device();
    if (!first.has_value() || *first == device_) return lost;
    return absl::UnavailableError(absl::StrFormat(
        "a fault that was first seen on cuda:%d ended CUDA for this process: %s", *first, std::string(lost.message())));
  }

  void Reduce(Job job, Done done) override {
    if (absl::Status why = Check(job); !why.ok()) return std::move(done)(std::move(why));
    // What the calling thread waits for must not queue behind a large job's kernel on the device.
    const bool small = IsSmall(job);
    if (small) {
      if (const std::optional<int> lane = BorrowLane(ExpectedUs(calibration_, job.spec, job.array))) {
        absl::StatusOr<Answer> result = ReduceOn(*lane, job);
        lanes_.GiveBack(*lane);
        return std::move(done)(std::move(result));
      }
    }
    LargeJob large(small ? nullptr : &large_jobs_);
    Lanes::Ticket ticket = TicketOf(job, calibration_);
    lanes_.Submit(
        [this, job = std::move(job), done = std::move(done), large = std::move(large),
         queued = Stopwatch()](absl::StatusOr<int> lane) mutable {
          if (!lane.ok()) return std::move(done)(lane.status());
          job.limit.Start();
          const double queue_us = queued.micros();
          absl::StatusOr<Answer> result = ReduceOn(*lane, job);
          large.End();
          if (result.ok()) result->timing.queue_us = queue_us;
          std::move(done)(std::move(result));
        },
        std::move(ticket));
  }

  bool TakesMany() const override { return true; }
  void ReduceMany(std::vector<Job> jobs, ManyDone done) override {
    Lanes::Ticket ticket = TicketOf(jobs[0], calibration_);
    ticket.expected_us = 0;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (absl::Status why = Check(jobs[i]); !why.ok()) return std::move(done)(i, std::move(why));
      ticket.expected_us += ExpectedUs(calibration_, jobs[i].spec, jobs[i].array);
    }
    lanes_.Submit(
        [this, jobs = std::move(jobs), done = std::move(done), large = LargeJob(&large_jobs_), queued = Stopwatch(),
         expected_us = ticket.expected_us](absl::StatusOr<int> lane) mutable {
          if (!lane.ok()) return std::move(done)(0, lane.status());
          for (Job& job : jobs) job.limit.Start();
          const double queue_us = queued.micros();
          std::size_t failed = 0;
          absl::StatusOr<std::vector<Answer>> answers = ReduceManyOn(*lane, jobs, expected_us, &failed);
          large.End();
          if (answers.ok()) answers->front().timing.queue_us = queue_us;
          std::move(done)(failed, std::move(answers));
        },
        std::move(ticket));
  }

  void Measure(Job job, int repeats, Measured done) override {
    if (job.spec.count < 1 || job.spec.count > kMaxLaunchElements) {
      return std::move(done)(absl::InvalidArgumentError(
          absl::StrFormat("count: got %d; allowed: 1 to %d", job.spec.count, kMaxLaunchElements)));
    }
    if (!HasKernels(job.spec.dtype)) {
      return std::move(done)(absl::UnimplementedError(
          absl::StrFormat("dtype: got %s, which no pipeline has; allowed: the other dtypes, or the engine cpu",
                          RowOf(job.spec.dtype).name)));
    }
    Lanes::Ticket ticket = TicketOf(job, calibration_, repeats + 1);
    lanes_.Submit(
        [this, job = std::move(job), repeats, done = std::move(done),
         large = LargeJob(&large_jobs_)](absl::StatusOr<int> lane) mutable {
          if (!lane.ok()) return std::move(done)(lane.status());
          job.limit.Start();
          const PipelineRow& pipeline = PipelineOf(job.spec);
          Measurement measurement;
          measurement.ran = RanBy(pipeline);
          const double expected_us = (repeats + 1) * ExpectedUs(calibration_, job.spec, job.array);
          const absl::Status status = cuda_lanes_[*lane]->Measure(job, pipeline, repeats, expected_us, &measurement);
          if (!status.ok()) return std::move(done)(Seen(status));
          std::move(done)(std::move(measurement));
        },
        std::move(ticket));
  }

  absl::Status CheckMatmul(const MatmulRow& row) const override {
    if (cuda_lanes_.front()->compute_major() < row.compute_major) {
      return absl::FailedPreconditionError(absl::StrFormat("%s needs a GPU of compute capability %d.0; %s is %s",
                                                           row.name, row.compute_major, info_.name, info_.model));
    }
    return row.cublas ? CublasStatus() : absl::OkStatus();
  }

  void MeasureMatmul(MatmulJob job, int repeats, MatmulMeasured done) override {
    Lanes::Ticket ticket = TicketOf(job);
    lanes_.Submit(
        [this, job = std::move(job), repeats, done = std::move(done),
         large = LargeJob(&large_jobs_)](absl::StatusOr<int> lane) mutable {
          if (!lane.ok()) return std::move(done)(lane.status());
          job.limit.Start();
          MatmulMeasurement measurement;
          measurement.ran = {EngineKind::kCuda, info_.name, std::string(job.spec.row->name)};
          const absl::Status status = cuda_lanes_[*lane]->MeasureMatmul(job, repeats, &measurement);
          if (!status.ok()) return std::move(done)(Seen(status));
          std::move(done)(std::move(measurement));
        },
        std::move(ticket));
  }

  std::int64_t staging_bytes() const override { return kStagingBytes; }
  StagingBuffer Stage(std::int64_t bytes) override { return staging_.Take(bytes); }

  absl::StatusOr<std::shared_ptr<const void>> Pin(const void* data, std::int64_t bytes) override {
    return shared_.Pin(data, bytes);
  }

  absl::StatusOr<std::shared_ptr<const void>> Import(int file) override { return shared_.Import(file); }
  absl::StatusOr<HeldArray> Open(const SharedDeviceMemory& memory) override { return shared_.Open(memory); }

  absl::StatusOr<std::unique_ptr<ArrayMemory>> Allocate(std::int64_t bytes, std::uint64_t /*caller*/) override {
    return arrays_->Allocate(bytes);
  }

  // Measures what the placement goes by. The device's first kernel runs here: an error tells that this build has no
  // code for it.
  absl::Status Calibrate(std::int64_t chunk_bytes) {
    constexpr std::int64_t kLargeBytes = std::int64_t{64} << 20;
    constexpr std::int64_t kManyChunks = 32;  // of arrays in host memory: further ones take as long each
    const std::int64_t host_bytes = std::min(kLargeBytes, kManyChunks * chunk_bytes);
    const std::vector<float> array(kLargeBytes / sizeof(float), 1.0F);
    double small_us = 0;
    double large_us = 0;
    for (int i = 0; i < 5; ++i) {  // the fastest of a few: the first one loads the kernel
      const absl::StatusOr<double> small = TimeSum({.data = array.data()}, 256);
      const absl::StatusOr<double> large = TimeSum({.data = array.data()}, host_bytes / std::int64_t{sizeof(float)});
      if (!small.ok()) return small.status();
      if (!large.ok()) return large.status();
      small_us = i == 0 ? *small : std::min(small_us, *small);
      large_us = i == 0 ? *large : std::min(large_us, *large);
    }
    calibration_.fixed_us = small_us;
    calibration_.host_gb_per_s = static_cast<double>(host_bytes) / std::max(1.0, large_us - small_us) / 1e3;
    calibration_.held_gb_per_s = calibration_.host_gb_per_s;
    const absl::StatusOr<std::unique_ptr<ArrayMemory>> held = Allocate(kLargeBytes, 0);
    if (!held.ok()) return absl::OkStatus();  // arrays may have less than that
    absl::Status status = (*held)->Write(0, array.data(), kLargeBytes);
    for (int i = 0; i < 5 && status.ok(); ++i) {
      const absl::StatusOr<double> us = TimeSum((*held)->array(), static_cast<std::int64_t>(array.size()));
      status = us.status();
      if (!us.ok()) break;
      const double gb_per_s = static_cast<double>(kLargeBytes) / std::max(1.0, *us - small_us) / 1e3;
      calibration_.held_gb_per_s = std::max(calibration_.held_gb_per_s, gb_per_s);
    }
    return status;
  }

  void ClearWork() { work_.Clear(); }

 private:
  // Counts a job that isn't small, from when it is queued until it is done.
  class LargeJob {
   public:
    explicit LargeJob(std::atomic<int>* count) : count_(count) {  // null: counts nothing
      if (count_ != nullptr) ++*count_;
    }
    LargeJob(LargeJob&& other) noexcept : count_(std::exchange(other.count_, nullptr)) {}
    LargeJob& operator=(LargeJob&&) = delete;
    ~LargeJob() { End(); }
    void End() {
      if (auto* const count = std::exchange(count_, nullptr); count != nullptr) --*count;
    }

   private:
    std::atomic<int>* count_;
  };

  static const PipelineRow& PipelineOf(const ReduceSpec& spec) {
    return spec.pipeline.empty() ? DefaultPipeline(EngineKind::kCuda) : *FindPipeline(spec.pipeline);
  }
  // Why a job is not to be begun; whether its arrays are where they may be.
  absl::Status Check(Job& job) const {
    if (absl::Status why = WhyStop(job); !why.ok()) return why;
    if (job.array.space == MemorySpace::kDevice && job.array.device != device_) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "the memory of cuda:%d holds the array, which the engine of %s can't reduce", job.array.device, info_.name));
    }
    return job.partition.has_value() ? CheckSides(job, device_, info_.name) : absl::OkStatus();
  }

  // What takes less than a hand-off to a lane's thread, some 50 us, on a device that does nothing else: then the
  // caller, often a thread that has events to serve, waits for it. By the default pipeline.
  static bool IsSmall(const Job& job) {
    constexpr std::int64_t kSmallHostBytes = std::int64_t{64} << 10;
    constexpr std::int64_t kSmallDeviceBytes = std::int64_t{16} << 20;
    const std::int64_t limit = job.array.space == MemorySpace::kDevice ? kSmallDeviceBytes : kSmallHostBytes;
    return !job.partition.has_value() && job.spec.count <= limit / RowOf(job.spec.dtype).bytes &&
           AnsweredByAccumulators(job.spec) && !PipelineOf(job.spec).rung && !MayBlock(job.array) && IsReady(job.array);
  }
  // For a small job. Where other small jobs have all lanes, one is free again sooner than a thread wakes up for a
  // hand-off, and a queue would send all that come after it the same way.
  std::optional<int> BorrowLane(double expected_us) {
    constexpr double kPatienceUs = 50, kPauseUs = 4;
    for (const Stopwatch waiting; large_jobs_.load() == 0;) {
      if (const std::optional<int> lane = lanes_.TryBorrow(expected_us)) return lane;
      if (waiting.micros() > kPatienceUs) break;
      for (const Stopwatch pause; pause.micros() < kPauseUs;) continue;
    }
    return std::nullopt;
  }
  // Whether the event that the array comes with is over, by now. An error is left to the lane.
  static bool IsReady(const ArrayRef& array) {
    return array.ready == nullptr || cudaEventQuery(static_cast<cudaEvent_t>(array.ready)) == cudaSuccess;
  }

  // On the calling thread, which has the lane. Its queue_us is not set.
  absl::StatusOr<Answer> ReduceOn(int lane, Job& job) {
    if (!job.partition.has_value() && !AnsweredByAccumulators(job.spec)) {
      return ReduceAsOneOutput(job, [&](Job& one) { return ReduceOn(lane, one); });
    }
    const PipelineRow& pipeline = PipelineOf(job.spec);
    Answer answer{.ran = RanBy(pipeline)};
    const double expected_us = ExpectedUs(calibration_, job.spec, job.array);
    const absl::Status status =
        job.partition.has_value()
            ? cuda_lanes_[lane]->ReducePartition(job, *arrays_, scratch_, expected_us, &answer.timing)
            : cuda_lanes_[lane]->Reduce(job, pipeline, *arrays_, expected_us, &answer);
    if (!status.ok()) return Seen(status);
    work_.Add(job.spec);
    return answer;
  }

  // Likewise many: together those that can be, then one after the other.
  absl::StatusOr<std::vector<Answer>> ReduceManyOn(int lane, std::vector<Job>& jobs, double expected_us,
                                                   std::size_t* failed) {
    std::vector<Answer> answers(jobs.size());
    std::vector<char> answered(jobs.size(), 0);
    absl::Status status = cuda_lanes_[lane]->ReduceTogether(jobs, expected_us, &answers, &answered, failed);
    if (!status.ok()) return Seen(status);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (answered[i] != 0) {
        answers[i].ran = RanBy(PipelineOf(jobs[i].spec));
        work_.Add(jobs[i].spec);
        continue;
      }
      *failed = i;
      absl::StatusOr<Answer> alone = ReduceOn(lane, jobs[i]);
      if (!alone.ok()) return alone.status();
      answers[i] = *std::move(alone);
    }
    return answers;
  }

  // Of a failure of the device: notes that a lane of this engine has seen it, and adds the device's name.
  absl::Status Seen(const absl::Status& status) const {
    if (!absl::IsUnavailable(status)) return status;
    FirstFault().Note(device_);
    return absl::UnavailableError(absl::StrFormat("%s: %s", info_.name, std::string(status.message())));
  }

  Execution RanBy(const PipelineRow& pipeline) const {
    return {EngineKind::kCuda, info_.name, std::string(pipeline.name)};
  }

  // As requests have it by default.
  absl::StatusOr<double> TimeSum(const ArrayRef& array, std::int64_t count) {
    const ReduceSpec spec{.dtype = DType::kF32, .count = count, .ops = {Op::kSum}, .precision = Precision::kExact};
    const Stopwatch stopwatch;
    absl::Status status;
    absl::Notification finished;
    Reduce(Job{.spec = spec, .array = array}, [&](absl::StatusOr<Answer> result) {
      status = result.status();
      finished.Notify();
    });
    finished.WaitForNotification();
    if (!status.ok()) return status;
    return stopwatch.micros();
  }

  const int device_;
  const DeviceInfo info_;
  const std::shared_ptr<DeviceWaits> waits_;
  CudaSharedMemory shared_;
  Calibration calibration_;
  const std::unique_ptr<CudaArrays> arrays_;
  ArrayBudget scratch_;  // of host memory that groups are found with, and outputs answered from pieces
  const PinnedSlab slab_;
  StagingPool staging_;  // of slab_
  const std::unique_ptr<tbb::task_arena> copiers_;
  const StayOn copiers_stay_;
  const std::vector<std::unique_ptr<CudaLane>> cuda_lanes_;
  alignas(64) WorkCount work_;                   // in a cache line of its own: every reduction writes it
  alignas(64) std::atomic<int> large_jobs_ = 0;  // that run or wait for a lane
  Lanes lanes_;                                  // last: its threads use all of the above
};

}  // namespace

absl::StatusOr<int> CountCudaDevices() {
  int devices = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&devices); error != cudaSuccess) {
    int driver = 0;  // the newest CUDA that it knows
    const bool none =
        error == cudaErrorInsufficientDriver && cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0;
    return absl::FailedPreconditionError(
        absl::StrFormat("no usable CUDA device: %s (%s)",
                        none ? "no NVIDIA driver is installed" : cudaGetErrorString(error), cudaGetErrorName(error)));
  }
  return devices;
}

absl::StatusOr<std::unique_ptr<Engine>> MakeCudaEngine(const EngineOptions& options, int device) {
  cudaDeviceProp properties;
  REDUCED_RETURN_IF_CUDA_ERROR(cudaGetDeviceProperties(&properties, device));
  int driver = 0;
  REDUCED_RETURN_IF_CUDA_ERROR(cudaDriverGetVersion(&driver));
  REDUCED_RETURN_IF_CUDA_ERROR(cudaSetDevice(device));
  const auto waits = std::make_shared<DeviceWaits>(options.device_timeout);
  const HangWatch watch(
      [waits, device] {
        const absl::Status hangs = waits->Check();
        return hangs.ok() ? hangs : absl::Status(hangs.code(), absl::StrFormat("cuda:%d: %s", device, hangs.message()));
      },
      options.on_hang);
  // On a machine of several NUMA nodes the lanes' threads, the copiers and the pinned memory are of the device's.
  const std::optional<cpu_set_t> near = ProcessorsNear(
      absl::StrFormat("%04x:%02x:%02x.0", properties.pciDomainID, properties.pciBusID, properties.pciDeviceID));
  const OnProcessors here(near);
  auto copiers = std::make_unique<tbb::task_arena>(std::min(kCopiers, tbb::info::default_concurrency()));
  std::vector<std::unique_ptr<CudaLane>> lanes;
  for (int i = 0; i < options.cuda_lanes; ++i) {
    auto lane = CudaLane::Make(device, options.chunk_bytes, properties, *copiers, *waits);
    if (!lane.ok()) return lane.status();
    lanes.push_back(*std::move(lane));
  }
  const std::string name = absl::StrFormat("cuda:%d", device);
  // The lanes have their memory by now. Other processes keep what they have, and a quarter of the rest to grow into.
  std::size_t free_bytes = 0, total_bytes = 0;
  REDUCED_RETURN_IF_CUDA_ERROR(cudaMemGetInfo(&free_bytes, &total_bytes));
  const std::int64_t array_bytes = options.cuda_array_bytes.value_or(DefaultArrayBytes(free_bytes));
  auto arrays = CudaArrays::Make(device, name, array_bytes, options.cuda_keeps, properties, *waits);
  if (!arrays.ok()) return arrays.status();
  DeviceInfo info{.name = name,
                  .ordinal = device,
                  .model = properties.name,
                  .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem),
                  .parallel_units = properties.multiProcessorCount,
                  .details = absl::StrFormat("compute capability %d.%d, driver for CUDA %d.%d", properties.major,
                                             properties.minor, driver / 1000, driver % 1000 / 10),
                  .uuid = std::string(properties.uuid.bytes, sizeof(properties.uuid.bytes))};
  auto engine = std::make_unique<CudaEngine>(device, std::move(info), waits, *std::move(arrays), std::move(copiers),
                                             near, std::move(lanes), options);
  const absl::Status status = engine->Calibrate(options.chunk_bytes);
  if (!status.ok()) {
    if (absl::IsResourceExhausted(status)) return status;
    return absl::FailedPreconditionError(
        absl::StrFormat("%s, compute capability %d.%d, can't run this build's kernels: %s", properties.name,
                        properties.major, properties.minor, std::string(status.message())));
  }
  engine->ClearWork();
  FirstFault().Clear();
  return engine;
}

}  // namespace reduced
