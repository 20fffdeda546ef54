#include "kernels/cuda/cuda_lane.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "kernels/cuda/pipeline.h"
#include "kernels/stopwatch.h"

namespace reduced {

absl::Status DeviceError(cudaError_t error, const char* what) {
  return absl::UnavailableError(
      absl::StrFormat("the CUDA device failed: %s (%s): %s", cudaGetErrorString(error), cudaGetErrorName(error), what));
}

CudaLane::CudaLane(int device, std::int64_t chunk_bytes, const cudaDeviceProp& properties)
    : device_(device),
      chunk_bytes_(chunk_bytes),
      multiprocessors_(properties.multiProcessorCount),
      clusters_(properties.major >= 9) {}

absl::StatusOr<std::unique_ptr<CudaLane>> CudaLane::Make(int device, std::int64_t chunk_bytes,
                                                         const cudaDeviceProp& properties) {
  auto lane = std::unique_ptr<CudaLane>(new CudaLane(device, chunk_bytes, properties));
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
    for (cudaEvent_t event : {slot.copy_begin, slot.copy_end, slot.kernel_begin, slot.kernel_end}) {
      if (event != nullptr) cudaEventDestroy(event);
    }
  }
  cudaFree(scratch_);
  if (copy_stream_ != nullptr) cudaStreamDestroy(copy_stream_);
  if (kernel_stream_ != nullptr) cudaStreamDestroy(kernel_stream_);
}

absl::Status CudaLane::Allocate() {
  REDUCED_RETURN_IF_CUDA_ERROR(cudaSetDevice(device_));
  REDUCED_RETURN_IF_CUDA_ERROR(cudaStreamCreateWithFlags(&copy_stream_, cudaStreamNonBlocking));
  REDUCED_RETURN_IF_CUDA_ERROR(cudaStreamCreateWithFlags(&kernel_stream_, cudaStreamNonBlocking));
  REDUCED_RETURN_IF_CUDA_ERROR(cudaMalloc(&scratch_, kScratchBytes));
  REDUCED_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(scratch_, 0, kScratchBytes, kernel_stream_));
  REDUCED_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(kernel_stream_));
  for (Slot& slot : slots_) {
    REDUCED_RETURN_IF_CUDA_ERROR(
        cudaHostAlloc(reinterpret_cast<void**>(&slot.pinned), chunk_bytes_, cudaHostAllocDefault));
    REDUCED_RETURN_IF_CUDA_ERROR(cudaMalloc(reinterpret_cast<void**>(&slot.device), chunk_bytes_));
    REDUCED_RETURN_IF_CUDA_ERROR(
        cudaHostAlloc(reinterpret_cast<void**>(&slot.partial), sizeof(Partial), cudaHostAllocMapped));
    for (cudaEvent_t* event : {&slot.copy_begin, &slot.copy_end, &slot.kernel_begin, &slot.kernel_end}) {
      REDUCED_RETURN_IF_CUDA_ERROR(cudaEventCreate(event));
    }
  }
  return absl::OkStatus();
}

absl::Status CudaLane::Reduce(const Job& job, EngineResult* result) {
  REDUCED_RETURN_IF_CUDA_ERROR(cudaSetDevice(device_));
  absl::Status status = FoldChunks(job, result);
  for (int i = 0; status.ok() && i < kSlots; ++i) status = Collect(slots_[(oldest_ + i) % kSlots], result);
  if (!status.ok()) {  // what is still in flight is waited for and forgotten
    cudaStreamSynchronize(copy_stream_);
    cudaStreamSynchronize(kernel_stream_);
    for (Slot& slot : slots_) slot.in_flight = slot.copied = false;
  }
  return status;
}

absl::Status CudaLane::FoldChunks(const Job& job, EngineResult* result) {
  const std::int64_t element_bytes = RowOf(job.spec.dtype).bytes;
  const auto* const data = static_cast<const std::byte*>(job.array.data);
  // Device memory is reduced where it is, unless its elements straddle their natural alignment.
  const bool in_place = job.array.space == MemorySpace::kDevice &&
                        reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(element_bytes) == 0;
  const std::int64_t chunk = in_place ? job.spec.count : chunk_bytes_ / element_bytes;
  for (std::int64_t first = 0; first < job.spec.count; first += chunk) {
    if (job.cancelled != nullptr && job.cancelled->load(std::memory_order_relaxed)) {
      return absl::CancelledError("the caller is gone");
    }
    if (absl::Now() >= job.deadline) return absl::DeadlineExceededError("the deadline passed during the reduction");
    Slot& slot = slots_[oldest_];
    oldest_ = (oldest_ + 1) % kSlots;
    if (const absl::Status status = Collect(slot, result); !status.ok()) return status;
    const std::int64_t count = std::min(chunk, job.spec.count - first);
    const std::byte* chunk_data = data + first * element_bytes;
    if (!in_place) {
      const absl::Status status = CopyIn(chunk_data, job.array.space, count * element_bytes, slot, &result->timing);
      if (!status.ok()) return status;
      chunk_data = slot.device;
    }
    if (const absl::Status status = StartKernel(job.spec, chunk_data, count, first, slot); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CudaLane::CopyIn(const std::byte* from, MemorySpace space, std::int64_t bytes, Slot& slot,
                              Timing* timing) {
  if (space == MemorySpace::kHost) {
    const Stopwatch stopwatch;
    std::memcpy(slot.pinned, from, static_cast<std::size_t>(bytes));
    timing->host_copy_us = timing->host_copy_us.value_or(0) + stopwatch.micros();
    from = slot.pinned;
  }
  REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.copy_begin, copy_stream_));
  REDUCED_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(slot.device, from, bytes, cudaMemcpyDefault, copy_stream_));
  REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.copy_end, copy_stream_));
  REDUCED_RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(kernel_stream_, slot.copy_end));
  slot.copied = space == MemorySpace::kHost;
  return absl::OkStatus();
}

absl::Status CudaLane::StartKernel(const ReduceSpec& spec, const void* data, std::int64_t count,
                                   std::int64_t base_index, Slot& slot) {
  *slot.partial = Partial{};
  const Launch launch{.dtype = spec.dtype,
                      .accumulators = AccumulatorsFor(spec),
                      .omit_nan = spec.nan_policy == NanPolicy::kOmit,
                      .data = data,
                      .count = count,
                      .base_index = base_index,
                      .scratch = scratch_,
                      .out = slot.partial,
                      .multiprocessors = multiprocessors_,
                      .clusters = clusters_,
                      .stream = kernel_stream_};
  REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.kernel_begin, kernel_stream_));
  REDUCED_RETURN_IF_CUDA_ERROR(LaunchSinglePass(launch));
  REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.kernel_end, kernel_stream_));
  slot.in_flight = true;
  return absl::OkStatus();
}

// Waits for the slot's chunk, if it has one, and adds it to the result. Slots are collected in the order they were
// filled.
absl::Status CudaLane::Collect(Slot& slot, EngineResult* result) {
  if (!slot.in_flight) return absl::OkStatus();
  slot.in_flight = false;
  REDUCED_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(slot.kernel_end));
  Combine(*slot.partial, &result->partial);
  Timing& timing = result->timing;
  float millis = 0;
  REDUCED_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&millis, slot.kernel_begin, slot.kernel_end));
  timing.kernel_us = timing.kernel_us.value_or(0) + 1e3 * millis;
  if (slot.copied) {
    slot.copied = false;
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&millis, slot.copy_begin, slot.copy_end));
    timing.host_to_device_us = timing.host_to_device_us.value_or(0) + 1e3 * millis;
  }
  return absl::OkStatus();
}

}  // namespace reduced
