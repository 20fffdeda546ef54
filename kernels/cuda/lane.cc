#include "kernels/cuda/lane.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "kernels/cuda/count_bytes.h"
#include "kernels/cuda/stage_range.h"
#include "kernels/cuda/status.h"
#include "kernels/engine/stopwatch.h"
#include "kernels/exact/answers.h"
#include "kernels/matmul/launch.h"
#include "kernels/system/failpoint.h"

namespace reduced {
namespace {

// Read between the repeats of a measurement: more than any L2 cache holds.
constexpr std::int64_t kBallastBytes = std::int64_t{512} << 20;

// As DeviceError; for a lack of memory, with what the pipeline needs.
absl::Status AllocationError(cudaError_t error, std::size_t bytes) {
  const absl::Status status = DeviceError(error, "allocating device memory");
  if (!absl::IsResourceExhausted(status)) return status;
  return absl::ResourceExhaustedError(
      absl::StrFormat("the device has no room for the %d bytes that this pipeline needs for this array", bytes));
}

// Device memory of one measurement.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  absl::Status Allocate(std::size_t bytes) {
    const cudaError_t error = cudaMalloc(&data_, std::max<std::size_t>(bytes, 1));
    return error == cudaSuccess ? absl::OkStatus() : AllocationError(error, bytes);
  }
  void* get() const { return data_; }

 private:
  void* data_ = nullptr;
};

// What several threads copy a chunk by: at least so much, and a chunk in no more pieces than that.
constexpr std::int64_t kPieceBytes = std::int64_t{256} << 10;
constexpr std::int64_t kMaxPieces = 16;

}  // namespace

CudaLane::CudaLane(int device, std::int64_t chunk_bytes, const cudaDeviceProp& properties, tbb::task_arena& copiers,
                   DeviceWaits& waits)
    : device_(device),
      chunk_bytes_(chunk_bytes),
      multiprocessors_(properties.multiProcessorCount),
      shared_bytes_(static_cast<std::int64_t>(properties.sharedMemPerBlockOptin)),
      cache_bytes_(properties.l2CacheSize),
      compute_major_(properties.major),
      copiers_(copiers),
      waits_(waits) {}

absl::StatusOr<std::unique_ptr<CudaLane>> CudaLane::Make(int device, std::int64_t chunk_bytes,
                                                         const cudaDeviceProp& properties, tbb::task_arena& copiers,
                                                         DeviceWaits& waits) {
  auto lane = std::unique_ptr<CudaLane>(new CudaLane(device, chunk_bytes, properties, copiers, waits));
  if (const absl::Status status = lane->Allocate(); !status.ok()) return status;
  return lane;
}

// Frees what Allocate got to. Errors are ignored: there is nothing left to do about them.
CudaLane::~CudaLane() {
  cudaSetDevice(device_);
  for (Slot& slot : slots_) {
    cudaFreeHost(slot.pinned);
    cudaFree(slot.device);
    cudaFreeHost(slot.partial);
    cudaFreeHost(slot.exact);
    cudaFreeHost(slot.times);
    cudaFreeHost(slot.bytes);
    for (cudaEvent_t event : {slot.copy_begin, slot.copy_end, slot.prepare_begin, slot.kernel_begin, slot.kernel_end}) {
      if (event != nullptr) cudaEventDestroy(event);
    }
  }
  cudaFree(scratch_);
  cudaFree(exact_scratch_);
  cudaFree(byte_counts_);
  if (copy_stream_ != nullptr) cudaStreamDestroy(copy_stream_);
  if (kernel_stream_ != nullptr) cudaStreamDestroy(kernel_stream_);
}

absl::Status CudaLane::Allocate() {
  REDUCED_RETURN_IF_CUDA_ERROR(cudaSetDevice(device_));
  REDUCED_RETURN_IF_CUDA_ERROR(cudaStreamCreateWithFlags(&copy_stream_, cudaStreamNonBlocking));
  REDUCED_RETURN_IF_CUDA_ERROR(cudaStreamCreateWithFlags(&kernel_stream_, cudaStreamNonBlocking));
  REDUCED_RETURN_IF_CUDA_ERROR(cudaMalloc(&scratch_, kScratchBytes));
  REDUCED_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(scratch_, 0, kScratchBytes, kernel_stream_));
  REDUCED_RETURN_IF_CUDA_ERROR(cudaMalloc(&exact_scratch_, kExactScratchBytes));
  REDUCED_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(exact_scratch_, 0, kExactScratchBytes, kernel_stream_));
  REDUCED_RETURN_IF_CUDA_ERROR(cudaMalloc(reinterpret_cast<void**>(&byte_counts_), sizeof(ByteCounts)));
  {
    const DeviceWaits::Wait wait(waits_);
    REDUCED_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(kernel_stream_));
  }
  for (Slot& slot : slots_) {
    REDUCED_RETURN_IF_CUDA_ERROR(
        cudaHostAlloc(reinterpret_cast<void**>(&slot.pinned), chunk_bytes_, cudaHostAllocDefault));
    REDUCED_RETURN_IF_CUDA_ERROR(cudaMalloc(reinterpret_cast<void**>(&slot.device), chunk_bytes_));
    REDUCED_RETURN_IF_CUDA_ERROR(
        cudaHostAlloc(reinterpret_cast<void**>(&slot.partial), sizeof(Partial), cudaHostAllocMapped));
    REDUCED_RETURN_IF_CUDA_ERROR(
        cudaHostAlloc(reinterpret_cast<void**>(&slot.exact), sizeof(ExactDigits), cudaHostAllocMapped));
    REDUCED_RETURN_IF_CUDA_ERROR(
        cudaHostAlloc(reinterpret_cast<void**>(&slot.times), kTimedKernels * sizeof(KernelTimes), cudaHostAllocMapped));
    REDUCED_RETURN_IF_CUDA_ERROR(
        cudaHostAlloc(reinterpret_cast<void**>(&slot.bytes), sizeof(ByteCounts), cudaHostAllocDefault));
    for (cudaEvent_t* event :
         {&slot.copy_begin, &slot.copy_end, &slot.prepare_begin, &slot.kernel_begin, &slot.kernel_end}) {
      REDUCED_RETURN_IF_CUDA_ERROR(cudaEventCreate(event));
    }
  }
  return absl::OkStatus();
}

absl::Status CudaLane::Reduce(Job& job, const PipelineRow& pipeline, CudaArrays& arrays, double expected_us,
                              Answer* result) {
  const StageRange range("reduce");
  expected_us_ = expected_us;
  REDUCED_RETURN_IF_CUDA_ERROR(cudaSetDevice(device_));
  std::vector<std::unique_ptr<ArrayMemory>> gathered;
  absl::Status status = GatherArrays(job, arrays, &gathered, &result->timing);
  if (status.ok()) status = FoldChunks(job, *pipeline.cuda, result);
  if (!status.ok()) Abandon();
  return status;
}

void CudaLane::Abandon() {
  for (Slot& slot : slots_) AwaitFilled(slot).IgnoreError();
  const DeviceWaits::Wait wait(waits_, expected_us_);
  cudaStreamSynchronize(copy_stream_);
  cudaStreamSynchronize(kernel_stream_);
  for (Slot& slot : slots_) slot.flight = Flight::kNone;
}

absl::Status CudaLane::FoldChunks(const Job& job, const CudaPipeline& pipeline, Answer* result) {
  const std::int64_t element_bytes = RowOf(job.spec.dtype).bytes;
  const AccumulatorSet exact_accumulators = ExactAccumulatorsFor(job.spec);
  if (exact_accumulators != 0) result->state.exact = std::make_unique<ExactSums>();
  // Device memory is reduced where it is, unless its elements straddle their natural alignment.
  const bool in_place =
      job.array.space == MemorySpace::kDevice &&
      reinterpret_cast<std::uintptr_t>(job.array.data) % static_cast<std::uintptr_t>(element_bytes) == 0;
  if (const absl::Status status = AwaitReady(job); !status.ok()) return status;
  const std::int64_t chunk = in_place ? kMaxLaunchElements : chunk_bytes_ / element_bytes;
  const std::int64_t count = job.spec.count;
  std::int64_t filled = 0;  // elements of the chunks that are in pinned memory, or on their way there
  for (std::int64_t first = 0; first < count; first += chunk) {
    if (const absl::Status status = WhyStop(job); !status.ok()) return status;
    // While one chunk is waited for, the next is filled already.
    for (; filled < count && filled <= first + chunk; filled += chunk) {
      Slot& next = slots_[filled / chunk % kSlots];
      if (const absl::Status status = Collect(job, pipeline, next, result); !status.ok()) return status;
      next.count = std::min(chunk, count - filled);
      if (!in_place) StartFilling({job.array}, filled * element_bytes, next.count * element_bytes, next);
    }
    Slot& slot = slots_[first / chunk % kSlots];
    const void* data = slot.device;
    if (in_place) {
      data = static_cast<const std::byte*>(job.array.data) + first * element_bytes;
    } else {
      const absl::Status status =
          CopyIn({job.array}, first * element_bytes, slot.count * element_bytes, slot.device, slot, &result->timing);
      if (!status.ok()) return status;
    }
    const Launch launch = LaunchOf(job.spec, data, slot.count, first, slot);
    const absl::Status status = HasKernels(job.spec.dtype)
                                    ? StartKernel(pipeline, launch, exact_accumulators, count <= chunk, slot)
                                    : StartCounting(job.spec, launch, slot);
    if (!status.ok()) return status;
  }
  for (int i = 0; i < kSlots; ++i) {
    Slot& oldest = slots_[(filled / chunk + i) % kSlots];
    if (const absl::Status status = Collect(job, pipeline, oldest, result); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// Waits for the event that the array comes with, here and not on a stream: it is another process's, which may never
// record it, and the lane has to be free again when the caller is gone.
absl::Status CudaLane::AwaitReady(const Job& job) {
  return job.spec.count == 0 ? absl::OkStatus() : AwaitReady(job, job.array);
}

absl::Status CudaLane::AwaitReady(const Job& job, const ArrayRef& array) {
  if (array.ready == nullptr) return absl::OkStatus();
  const StageRange range("wait for the array");
  constexpr double kPatienceUs = 50;  // a sleep takes as long, however short it is meant to be
  constexpr absl::Duration kLongest = absl::Milliseconds(1);
  absl::Duration pause = absl::Microseconds(10);
  for (const Stopwatch waiting;;) {
    const cudaError_t error =
        FAILPOINT("cuda/event") ? cudaErrorUnknown : cudaEventQuery(static_cast<cudaEvent_t>(array.ready));
    if (error == cudaSuccess) return absl::OkStatus();
    if (error != cudaErrorNotReady) return DeviceError(error, "waiting for the event of an array");
    if (const absl::Status status = WhyStop(job); !status.ok()) return status;
    if (waiting.micros() < kPatienceUs) continue;
    absl::SleepFor(pause);
    pause = std::min(2 * pause, kLongest);
  }
}

// Has the chunk copied to the slot's pinned memory, if the device can't read it where it is: in pieces, by several
// threads, since one alone is slower than the transfer to the device. A chunk of one piece is left to CopyIn.
void CudaLane::StartFilling(const Source& from, std::int64_t begin, std::int64_t bytes, Slot& slot) {
  if (!IsCopiedByHost(from) || bytes <= kPieceBytes) return;
  slot.filling_since = Stopwatch();
  constexpr std::int64_t kWhole = kMaxPieces * std::int64_t{sizeof(std::uint64_t)};  // elements in each piece
  const std::int64_t piece_bytes = std::max(kPieceBytes, (bytes + kWhole - 1) / kWhole * kWhole / kMaxPieces);
  copiers_.execute([&] {
    for (std::int64_t first = 0; first < bytes; first += piece_bytes) {
      const std::int64_t piece = std::min(piece_bytes, bytes - first);
      slot.filling.run([&slot, from, begin, first, piece] {
        const absl::Status status = CopyPiece(from, begin + first, piece, slot.pinned + first);
        if (status.ok()) return;
        const absl::MutexLock lock(&slot.mutex);
        slot.fill_status.Update(status);
      });
    }
  });
}

// Waits for the slot's pieces, and helps with them.
absl::Status CudaLane::AwaitFilled(Slot& slot) {
  copiers_.execute([&] { slot.filling.wait(); });
  const absl::MutexLock lock(&slot.mutex);
  return std::exchange(slot.fill_status, absl::OkStatus());
}

bool CudaLane::IsCopiedByHost(const Source& from) {
  return from.array.space == MemorySpace::kHost || from.array.space == MemorySpace::kFile || from.stretch != 0;
}

absl::Status CudaLane::CopyPiece(const Source& from, std::int64_t begin, std::int64_t bytes, std::byte* to) {
  if (from.stretch == 0) return CopyElements(from.array, from.first + begin, bytes, to);
  while (bytes > 0) {
    const std::int64_t in_stretch = begin % from.stretch;
    const std::int64_t size = std::min(bytes, from.stretch - in_stretch);
    const absl::Status status =
        CopyElements(from.array, from.first + begin / from.stretch * from.stride + in_stretch, size, to);
    if (!status.ok()) return status;
    begin += size;
    bytes -= size;
    to += size;
  }
  return absl::OkStatus();
}

absl::Status CudaLane::CopyIn(const Source& from, std::int64_t begin, std::int64_t bytes, std::byte* to, Slot& slot,
                              Timing* timing) {
  const StageRange range("copy");
  const void* readable = slot.pinned;
  if (IsCopiedByHost(from)) {
    if (bytes <= kPieceBytes) slot.filling_since = Stopwatch();
    const absl::Status status = bytes <= kPieceBytes ? CopyPiece(from, begin, bytes, slot.pinned) : AwaitFilled(slot);
    if (!status.ok()) return status;
    timing->host_copy_us = timing->host_copy_us.value_or(0) + slot.filling_since.micros();
  } else {
    readable = static_cast<const std::byte*>(from.array.data) + from.first + begin;
  }
  REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.copy_begin, copy_stream_));
  const cudaError_t error =
      FAILPOINT("cuda/copy") ? cudaErrorUnknown : cudaMemcpyAsync(to, readable, bytes, cudaMemcpyDefault, copy_stream_);
  if (error != cudaSuccess) return DeviceError(error, "copying a chunk to the device");
  REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.copy_end, copy_stream_));
  REDUCED_RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(kernel_stream_, slot.copy_end));
  return absl::OkStatus();
}

Launch CudaLane::LaunchOf(const ReduceSpec& spec, const void* data, std::int64_t count, std::int64_t base_index,
                          const Slot& slot) const {
  return {.dtype = spec.dtype,
          .op = spec.ops.front(),
          .accumulators = AccumulatorsFor(spec),
          .omit_nan = spec.nan_policy == NanPolicy::kOmit,
          .data = data,
          .count = count,
          .base_index = base_index,
          .scratch = scratch_,
          .out = slot.partial,
          .multiprocessors = multiprocessors_,
          .block_size = spec.block_size,
          .stream = kernel_stream_};
}

// The pipeline's kernel and that of exact sums, whichever there is something for. `alone`: nothing is launched after
// them before they are waited for, so that an event can still be recorded then, if it takes one.
absl::Status CudaLane::StartKernel(const CudaPipeline& pipeline, Launch launch, AccumulatorSet exact_accumulators,
                                   bool alone, Slot& slot) {
  const StageRange range("launch");
  *slot.partial = Partial{};
  slot.partial->count = launch.count;
  const bool exact_wanted = exact_accumulators != 0;
  ExactLaunch exact{.dtype = launch.dtype,
                    .accumulators = exact_accumulators,
                    .others = exact_wanted ? launch.accumulators & kBesideExactSums : 0,
                    .omit_nan = launch.omit_nan,
                    .data = launch.data,
                    .count = launch.count,
                    .base_index = launch.base_index,
                    .scratch = exact_scratch_,
                    .out = slot.exact,
                    .partial = slot.partial,
                    .multiprocessors = launch.multiprocessors,
                    .stream = launch.stream};
  launch.accumulators &= ~exact.others;
  if (exact_wanted) *slot.exact = ExactDigits{};
  const bool pipeline_wanted = launch.accumulators != 0;
  const bool keeps_time = (!pipeline_wanted || (pipeline.keeps_time != nullptr && pipeline.keeps_time(launch))) &&
                          (!exact_wanted || ExactSumsKeepTime(exact));
  slot.timed = 0;
  if (keeps_time) {
    std::fill_n(slot.times, kTimedKernels, KernelTimes{});
    if (pipeline_wanted) launch.times = &slot.times[slot.timed++];
    if (exact_wanted) exact.times = &slot.times[slot.timed++];
  }
  const bool own_scratch = pipeline.scratch_bytes != nullptr;
  if (own_scratch) {
    const std::size_t bytes = pipeline.scratch_bytes(launch);
    const cudaError_t error =
        FAILPOINT("cuda/scratch") ? cudaErrorMemoryAllocation : cudaMallocAsync(&launch.scratch, bytes, kernel_stream_);
    if (error != cudaSuccess) return AllocationError(error, bytes);
  }
  cudaGetLastError();  // launches would report what earlier calls of this thread failed with
  cudaError_t first = FAILPOINT("cuda/launch") ? cudaErrorLaunchOutOfResources : cudaSuccess;
  if (first == cudaSuccess && pipeline.prepare != nullptr) {
    first = cudaEventRecord(slot.prepare_begin, kernel_stream_);
    if (first == cudaSuccess) first = pipeline.prepare(launch);
  }
  if (first == cudaSuccess && !keeps_time) first = cudaEventRecord(slot.kernel_begin, kernel_stream_);
  if (first == cudaSuccess && pipeline_wanted) first = pipeline.launch(launch);
  if (first == cudaSuccess && exact_wanted) first = LaunchExactSums(exact);
  if (own_scratch) cudaFreeAsync(launch.scratch, kernel_stream_);
  if (first != cudaSuccess) return DeviceError(first, "launching a pipeline");
  slot.recorded = !keeps_time || !alone;
  if (slot.recorded) REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.kernel_end, kernel_stream_));
  slot.flight = keeps_time ? Flight::kKernelTimes : Flight::kEvents;
  return absl::OkStatus();
}

absl::Status CudaLane::StartCounting(const ReduceSpec& spec, const Launch& launch, Slot& slot) {
  const StageRange range("launch");
  CountBytesLaunch counting{.data = launch.data,
                            .count = launch.count,
                            .out = byte_counts_,
                            .finds_places = (launch.accumulators & SetOf(Accumulator::kExtrema)) != 0,
                            .base_index = launch.base_index,
                            .multiprocessors = multiprocessors_,
                            .stream = kernel_stream_};
  counting.format = VisitDType(spec.dtype, []<class T>(std::type_identity<T>) { return KeyFormatOf<T>(); });
  counting.format.omit_nan = launch.omit_nan;
  cudaGetLastError();  // as in StartKernel
  REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.kernel_begin, kernel_stream_));
  cudaError_t first = FAILPOINT("cuda/launch") ? cudaErrorLaunchOutOfResources
                                               : cudaMemsetAsync(byte_counts_, 0, sizeof(ByteCounts), kernel_stream_);
  if (first == cudaSuccess) first = LaunchCountBytes(counting);
  if (first != cudaSuccess) return DeviceError(first, "launching a count of bytes");
  REDUCED_RETURN_IF_CUDA_ERROR(
      cudaMemcpyAsync(slot.bytes, byte_counts_, sizeof(ByteCounts), cudaMemcpyDeviceToHost, kernel_stream_));
  REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.kernel_end, kernel_stream_));
  slot.recorded = true;
  slot.flight = Flight::kEvents;
  return absl::OkStatus();
}

cudaError_t CudaLane::AwaitEvent(cudaEvent_t event) {
  const DeviceWaits::Wait wait(waits_, expected_us_);
  while (FAILPOINT("cuda/hang")) absl::SleepFor(absl::Milliseconds(1));
  return cudaEventSynchronize(event);
}

// Kernels that tell their times are over when those are there, before any event could tell. The event tells of those
// that others keep waiting, and if the device fails.
absl::Status CudaLane::AwaitKernel(Slot& slot) {
  constexpr double kPatienceUs = 50;
  if (slot.flight == Flight::kKernelTimes && !FAILPOINT("cuda/hang")) {
    int ended = 0;
    for (const Stopwatch waiting; waiting.micros() < kPatienceUs;) {
      const std::atomic_ref<unsigned long long> end_ns(slot.times[ended].end_ns);
      if (end_ns.load(std::memory_order_acquire) != 0 && ++ended == slot.timed) return absl::OkStatus();
    }
  }
  if (!std::exchange(slot.recorded, true)) {
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.kernel_end, kernel_stream_));
  }
  REDUCED_RETURN_IF_CUDA_ERROR(AwaitEvent(slot.kernel_end));
  return absl::OkStatus();
}

// Waits for the slot's chunk, if it has one, and adds it to the result. Slots are collected in the order they were
// filled.
absl::Status CudaLane::Collect(const Job& job, const CudaPipeline& pipeline, Slot& slot, Answer* result) {
  if (slot.flight == Flight::kNone) return absl::OkStatus();
  const StageRange range("wait for the kernel");
  if (const absl::Status status = AwaitKernel(slot); !status.ok()) return status;
  if (HasKernels(job.spec.dtype)) {
    Combine(*slot.partial, &result->state.partial);
    if (result->state.exact != nullptr) Merge(*slot.exact, result->state.exact.get());
  } else {
    ReduceSpec chunk = job.spec;
    chunk.count = slot.count;
    Combine(StateOfCounts(chunk, *slot.bytes), &result->state);
  }
  Timing& timing = result->timing;
  float millis = 0;
  const Flight flight = std::exchange(slot.flight, Flight::kNone);
  if (flight == Flight::kKernelTimes) {
    const unsigned long long begin_ns = slot.times[0].begin_ns, end_ns = slot.times[slot.timed - 1].end_ns;
    millis = end_ns > begin_ns ? static_cast<float>(end_ns - begin_ns) * 1e-6F : 0;  // 0: too short for a coarse clock
  } else {
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&millis, slot.kernel_begin, slot.kernel_end));
  }
  timing.kernel_us = timing.kernel_us.value_or(0) + 1e3 * millis;
  if (job.array.space != MemorySpace::kDevice) {
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&millis, slot.copy_begin, slot.copy_end));
    timing.host_to_device_us = timing.host_to_device_us.value_or(0) + 1e3 * millis;
  }
  if (pipeline.copy_bytes != nullptr) {
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&millis, slot.prepare_begin, slot.kernel_begin));
    timing.scratch_copy_us = timing.scratch_copy_us.value_or(0) + 1e3 * millis;
  }
  return absl::OkStatus();
}

absl::Status CudaLane::Measure(const Job& job, const PipelineRow& pipeline, int repeats, double expected_us,
                               Measurement* measurement) {
  expected_us_ = expected_us;
  REDUCED_RETURN_IF_CUDA_ERROR(cudaSetDevice(device_));
  const absl::Status status = MeasureOnDevice(job, *pipeline.cuda, repeats, measurement);
  if (!status.ok()) Abandon();
  return status;
}

// Each repeat: prepare, read the ballast, which leaves nothing of the array in the caches, reduce.
absl::Status CudaLane::MeasureOnDevice(const Job& job, const CudaPipeline& pipeline, int repeats,
                                       Measurement* measurement) {
  const std::size_t bytes = static_cast<std::size_t>(job.spec.count) * RowOf(job.spec.dtype).bytes;
  Slot& slot = slots_[0];
  // Declared before what can fail below, freed after it has ended.
  DeviceMemory array;
  DeviceMemory ballast;
  DeviceMemory scratch;
  absl::Status status = array.Allocate(bytes);
  if (status.ok()) status = ballast.Allocate(kBallastBytes);
  if (!status.ok()) return status;
  // On this stream: what cudaMemcpy copies from pageable memory may arrive after it has returned.
  REDUCED_RETURN_IF_CUDA_ERROR(
      cudaMemcpyAsync(array.get(), job.array.data, bytes, cudaMemcpyHostToDevice, kernel_stream_));
  REDUCED_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(ballast.get(), 0x5a, kBallastBytes, kernel_stream_));

  Launch launch = LaunchOf(job.spec, array.get(), job.spec.count, 0, slot);
  if (pipeline.scratch_bytes != nullptr) {
    status = scratch.Allocate(pipeline.scratch_bytes(launch));
    if (!status.ok()) return status;
    launch.scratch = scratch.get();
  }
  if (pipeline.occupancy != nullptr) {
    REDUCED_RETURN_IF_CUDA_ERROR(pipeline.occupancy(launch, &measurement->occupancy.emplace()));
  }

  double scratch_copy_us = 0;
  double read_us = std::numeric_limits<double>::max();
  for (int i = -1; i < repeats; ++i) {  // the first is not counted
    if (status = WhyStop(job); !status.ok()) return status;
    *slot.partial = Partial{};
    cudaGetLastError();  // as in StartKernel
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.prepare_begin, kernel_stream_));
    if (pipeline.prepare != nullptr) REDUCED_RETURN_IF_CUDA_ERROR(pipeline.prepare(launch));
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.copy_begin, kernel_stream_));
    REDUCED_RETURN_IF_CUDA_ERROR(LaunchReadAll(ballast.get(), kBallastBytes, multiprocessors_, kernel_stream_));
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.kernel_begin, kernel_stream_));
    REDUCED_RETURN_IF_CUDA_ERROR(pipeline.launch(launch));
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.kernel_end, kernel_stream_));
    REDUCED_RETURN_IF_CUDA_ERROR(AwaitEvent(slot.kernel_end));
    if (i < 0) continue;
    float millis = 0;
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&millis, slot.prepare_begin, slot.copy_begin));
    scratch_copy_us += 1e3 * millis;
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&millis, slot.copy_begin, slot.kernel_begin));
    read_us = std::min(read_us, 1e3 * millis);
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&millis, slot.kernel_begin, slot.kernel_end));
    measurement->kernel_us.push_back(1e3 * millis);
    measurement->states.emplace_back(*slot.partial);
  }
  measurement->read_bytes = static_cast<std::int64_t>(bytes);
  if (pipeline.copy_bytes != nullptr) {
    measurement->read_bytes = static_cast<std::int64_t>(pipeline.copy_bytes(launch));
    measurement->scratch_copy_us = scratch_copy_us / repeats;
  }
  measurement->read_gb_per_s = static_cast<double>(kBallastBytes) / (read_us * 1e3);
  return absl::OkStatus();
}

absl::Status CudaLane::MeasureMatmul(MatmulJob& job, int repeats, MatmulMeasurement* measurement) {
  expected_us_ = 0;
  REDUCED_RETURN_IF_CUDA_ERROR(cudaSetDevice(device_));
  const absl::Status status = MultiplyOnDevice(job, repeats, measurement);
  if (!status.ok()) Abandon();
  return status;
}

// Each repeat: multiply into memory of NaNs, or of -1, and fetch the product.
absl::Status CudaLane::MultiplyOnDevice(MatmulJob& job, int repeats, MatmulMeasurement* measurement) {
  const MatmulSpec& spec = job.spec;
  const auto bytes_a = static_cast<std::size_t>(spec.bytes_a());
  const auto bytes_b = static_cast<std::size_t>(spec.bytes_b());
  const auto bytes_c = static_cast<std::size_t>(spec.bytes_c());
  Slot& slot = slots_[0];
  // Declared before what can fail below, freed after it has ended.
  DeviceMemory a;
  DeviceMemory b;
  DeviceMemory c;
  absl::Status status = a.Allocate(bytes_a);
  if (status.ok()) status = b.Allocate(bytes_b);
  if (status.ok()) status = c.Allocate(bytes_c);
  if (!status.ok()) return status;
  // On this stream: what cudaMemcpy copies from pageable memory may arrive after it has returned.
  REDUCED_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(a.get(), job.a, bytes_a, cudaMemcpyHostToDevice, kernel_stream_));
  REDUCED_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(b.get(), job.b, bytes_b, cudaMemcpyHostToDevice, kernel_stream_));
  const MatmulLaunch launch{.dtype = spec.dtype,
                            .m = spec.m,
                            .n = spec.n,
                            .k = spec.k,
                            .a = a.get(),
                            .b = b.get(),
                            .c = c.get(),
                            .tile = spec.tile,
                            .block_x = spec.block.x,
                            .block_y = spec.block.y,
                            .stream = kernel_stream_};
  const MatmulKernel& kernel = *spec.row->cuda;
  if (kernel.occupancy != nullptr) {
    REDUCED_RETURN_IF_CUDA_ERROR(kernel.occupancy(launch, &measurement->occupancy.emplace()));
  }
  status = MeasurePeak(spec.dtype, c.get(), &measurement->peak_gflops.emplace());
  if (!status.ok()) return status;
  MatmulVerdict verdict;
  for (int i = -1; i < repeats; ++i) {  // the first is not counted
    if (status = WhyStop(job); !status.ok()) return status;
    REDUCED_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(c.get(), 0xff, bytes_c, kernel_stream_));
    cudaGetLastError();  // as in StartKernel
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.kernel_begin, kernel_stream_));
    const cudaError_t error = FAILPOINT("cuda/launch") ? cudaErrorLaunchOutOfResources : kernel.launch(launch);
    if (error != cudaSuccess) return DeviceError(error, "launching a matrix product");
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.kernel_end, kernel_stream_));
    REDUCED_RETURN_IF_CUDA_ERROR(AwaitEvent(slot.kernel_end));
    if (i < 0) continue;
    float millis = 0;
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&millis, slot.kernel_begin, slot.kernel_end));
    measurement->kernel_us.push_back(1e3 * millis);
    REDUCED_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(job.c, c.get(), bytes_c, cudaMemcpyDeviceToHost, kernel_stream_));
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.copy_end, kernel_stream_));
    REDUCED_RETURN_IF_CUDA_ERROR(AwaitEvent(slot.copy_end));
    verdict.Look(job, measurement);
  }
  return WhyStop(job);
}

// The best of a few runs: the first ones find the clocks low.
absl::Status CudaLane::MeasurePeak(DType dtype, void* sink, double* gflops) {
  constexpr int kRuns = 10;
  Slot& slot = slots_[0];
  *gflops = 0;
  for (int i = 0; i < kRuns; ++i) {
    double operations = 0;
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.kernel_begin, kernel_stream_));
    REDUCED_RETURN_IF_CUDA_ERROR(
        LaunchMatmulPeak(dtype, multiprocessors_, compute_major_, sink, kernel_stream_, &operations));
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.kernel_end, kernel_stream_));
    REDUCED_RETURN_IF_CUDA_ERROR(AwaitEvent(slot.kernel_end));
    float millis = 0;
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&millis, slot.kernel_begin, slot.kernel_end));
    if (millis > 0) *gflops = std::max(*gflops, operations / (1e6 * millis));
  }
  return absl::OkStatus();
}

}  // namespace reduced
