// CudaLane::ReduceSlices: what the host does for reductions along axes.
//
// Long contiguous outputs are reduced one after the other, as arrays. Of all others the whole array is in device
// memory: it is copied there if it is elsewhere. The states of its outputs come back in batches of the lane's own
// memory and are finalized here, by several threads.
#include "kernels/cuda/slices.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/algebra/finalize.h"
#include "kernels/cuda/lane.h"
#include "kernels/cuda/stage_range.h"
#include "kernels/cuda/status.h"
#include "kernels/exact/answers.h"
#include "kernels/system/failpoint.h"
#include "oneapi/tbb/parallel_for.h"

namespace reduced {
namespace {

// Of contiguous outputs: what is worth launches of its own, in device memory, and elsewhere, from where it is copied.
constexpr std::int64_t kLongDeviceBytes = std::int64_t{32} << 20;
constexpr std::int64_t kLongHostBytes = std::int64_t{4} << 20;

SliceDimensions DimensionsOf(const std::vector<Dimension>& dimensions) {
  SliceDimensions result;
  for (const Dimension& dimension : dimensions) {
    result.size[result.count] = dimension.size;
    result.stride[result.count++] = dimension.stride;
  }
  return result;
}

// The array from byte `begin` on.
ArrayRef From(ArrayRef array, std::int64_t begin) {
  if (array.data != nullptr) array.data = static_cast<const std::byte*>(array.data) + begin;
  array.offset += begin;
  return array;
}

}  // namespace

// One job, whose array is in device memory.
class CudaLane::Slices {
 public:
  Slices(CudaLane& lane, const SlicesJob& slices, const std::byte* data, Timing* timing)
      : lane_(lane), slices_(slices), layout_(slices.layout), one_(slices.job.spec), timing_(timing) {
    one_.count = layout_.elements;
    array_ = {.data = data,
              .outputs = layout_.outputs,
              .elements = layout_.elements,
              .kept = DimensionsOf(layout_.kept),
              .reduced = DimensionsOf(layout_.reduced)};
  }

  absl::Status Run() {
    const absl::Status status = layout_.elements == 0 || layout_.outputs == 0 ? AnswerEmpty() : AnswerAll();
    return status.ok() ? error_ : status;
  }

  // Stores the answers of an output with that state, or keeps its error. Thread-safe.
  void Store(std::int64_t output, const State& state) {
    const absl::StatusOr<std::vector<Value>> values = Finalize(one_, state);
    if (!values.ok()) return Fail(output, values.status());
    for (std::size_t i = 0; i < values->size(); ++i) {
      const Value& value = (*values)[i];
      StoreValue(value, slices_.answers[i] + output * RowOf(value.dtype).bytes);
    }
  }

 private:
  // Where states of a batch come back through. The array may be in slot 0.
  Slot& state_slot() const { return lane_.slots_[2]; }

  absl::Status AnswerEmpty() {
    for (std::int64_t output = 0; output < layout_.outputs && error_.ok(); ++output) Store(output, State());
    return absl::OkStatus();
  }

  // Runs launches on the kernel stream, and adds the time that they take. Blocks until they are done.
  template <class Launches>
  absl::Status Timed(Launches launches) {
    if (absl::Status why = WhyStop(slices_.job); !why.ok()) return why;
    const StageRange range("launch");
    Slot& slot = state_slot();
    cudaGetLastError();  // launches would report what earlier calls of this thread failed with
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.kernel_begin, lane_.kernel_stream_));
    const cudaError_t error = FAILPOINT("cuda/launch") ? cudaErrorLaunchOutOfResources : launches();
    if (error != cudaSuccess) return DeviceError(error, "launching a reduction along axes");
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.kernel_end, lane_.kernel_stream_));
    REDUCED_RETURN_IF_CUDA_ERROR(lane_.AwaitEvent(slot.kernel_end));
    float millis = 0;
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&millis, slot.kernel_begin, slot.kernel_end));
    timing_->kernel_us = timing_->kernel_us.value_or(0) + 1e3 * millis;
    return absl::OkStatus();
  }

  // Answers all outputs from their states.
  absl::Status AnswerAll() {
    const std::int64_t count = layout_.outputs;
    constexpr std::int64_t kBlocks = 8;              // of each multiprocessor, that there should be
    constexpr std::int64_t kPartElements = 1 << 10;  // at least
    constexpr std::int64_t kMostParts = 64;
    SliceStatesLaunch launch{.dtype = one_.dtype,
                             .accumulators = AccumulatorsFor(one_),
                             .exact_accumulators = ExactAccumulatorsFor(one_),
                             .omit_nan = one_.nan_policy == NanPolicy::kOmit,
                             .array = array_,
                             .stream = lane_.kernel_stream_};
    const bool exact = launch.exact_accumulators != 0;
    const auto state_bytes = static_cast<std::int64_t>(sizeof(Partial) + (exact ? sizeof(ExactDigits) : 0));
    const std::int64_t room = lane_.chunk_bytes_ / state_bytes;  // states of a batch
    const std::int64_t parts =
        std::clamp<std::int64_t>(std::min(kBlocks * lane_.multiprocessors_ / count, layout_.elements / kPartElements),
                                 1, std::min(kMostParts, room));
    launch.parts = static_cast<int>(parts);
    const std::int64_t batch = room / parts;
    for (launch.first = 0; launch.first < count && error_.ok(); launch.first += batch) {
      launch.count = static_cast<int>(std::min(batch, count - launch.first));
      if (absl::Status status = FoldBatch(launch); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status FoldBatch(SliceStatesLaunch launch) {
    const std::int64_t states = std::int64_t{launch.count} * launch.parts;
    const std::int64_t partial_bytes = states * static_cast<std::int64_t>(sizeof(Partial));
    const bool exact = launch.exact_accumulators != 0;
    Slot& slot = state_slot();
    launch.partials = reinterpret_cast<Partial*>(slot.device);
    launch.digits = exact ? reinterpret_cast<ExactDigits*>(slot.device + partial_bytes) : nullptr;
    if (absl::Status status = Timed([&] { return LaunchSliceStates(launch); }); !status.ok()) return status;
    const std::int64_t bytes = partial_bytes + (exact ? states * static_cast<std::int64_t>(sizeof(ExactDigits)) : 0);
    REDUCED_RETURN_IF_CUDA_ERROR(
        cudaMemcpyAsync(slot.pinned, slot.device, bytes, cudaMemcpyDeviceToHost, lane_.kernel_stream_));
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.copy_end, lane_.kernel_stream_));
    REDUCED_RETURN_IF_CUDA_ERROR(lane_.AwaitEvent(slot.copy_end));
    const auto* const partials = reinterpret_cast<const Partial*>(slot.pinned);
    const auto* const digits = reinterpret_cast<const ExactDigits*>(slot.pinned + partial_bytes);
    lane_.copiers_.execute([&] {
      tbb::parallel_for(0, launch.count, [&](int i) {
        State state;
        if (exact) state.exact = std::make_unique<ExactSums>();
        for (int at = i * launch.parts; at < (i + 1) * launch.parts; ++at) {
          Combine(partials[at], &state.partial);
          if (exact) Merge(digits[at], state.exact.get());
        }
        state.partial.count = layout_.elements;
        Store(launch.first + i, state);
      });
    });
    return absl::OkStatus();
  }

  // Keeps the error of the first output that has one.
  void Fail(std::int64_t output, const absl::Status& status) {
    const absl::MutexLock lock(&mutex_);
    if (output >= failed_) return;
    failed_ = output;
    error_ = absl::Status(status.code(),
                          absl::StrCat("output ", OutputName(layout_, output), ": ", std::string(status.message())));
  }

  CudaLane& lane_;
  const SlicesJob& slices_;
  const Layout& layout_;
  ReduceSpec one_;  // the question about one output
  SliceArray array_;
  Timing* const timing_;
  absl::Mutex mutex_;                                               // of what follows, while several threads finalize
  std::int64_t failed_ = std::numeric_limits<std::int64_t>::max();  // the first output with an error
  absl::Status error_;                                              // of that one
};

absl::Status CudaLane::ReduceSlices(const SlicesJob& slices, CudaArrays& arrays, double expected_us,
                                    SlicesResult* result) {
  const StageRange range("reduce along axes");
  expected_us_ = expected_us;
  REDUCED_RETURN_IF_CUDA_ERROR(cudaSetDevice(device_));
  absl::Status status = AnswerSlices(slices, arrays, result);
  if (!status.ok()) Abandon();
  return status;
}

absl::Status CudaLane::AnswerSlices(const SlicesJob& slices, CudaArrays& arrays, SlicesResult* result) {
  const Layout& layout = slices.layout;
  const Job& job = slices.job;
  const std::int64_t bytes = layout.elements * RowOf(job.spec.dtype).bytes;
  const std::int64_t long_bytes = job.array.space == MemorySpace::kDevice ? kLongDeviceBytes : kLongHostBytes;
  if (layout.elements > 0 && layout.run() >= layout.elements && (layout.outputs == 1 || bytes >= long_bytes)) {
    return AnswerOneByOne(slices, &result->timing);
  }
  std::unique_ptr<ArrayMemory> memory;
  const std::byte* data = nullptr;
  if (layout.elements > 0 && layout.outputs > 0) {
    const absl::StatusOr<const std::byte*> held = HoldArray(job, arrays, &memory, &result->timing);
    if (!held.ok()) return held.status();
    data = *held;
  }
  const absl::Status status = Slices(*this, slices, data, &result->timing).Run();
  // What is in flight reads the array, whose memory goes.
  if (!status.ok()) Abandon();
  return status;
}

// Each output as an array of its own: they are contiguous.
absl::Status CudaLane::AnswerOneByOne(const SlicesJob& slices, Timing* timing) {
  const PipelineRow& pipeline = DefaultPipeline(EngineKind::kCuda);
  const std::int64_t width = RowOf(slices.job.spec.dtype).bytes;
  Job one = slices.job;
  one.spec.count = slices.layout.elements;
  EngineResult sum;
  for (std::int64_t output = 0; output < slices.layout.outputs; ++output) {
    one.array = From(slices.job.array, slices.layout.Start(output) * width);
    EngineResult result;
    result.timing = sum.timing;
    if (absl::Status status = FoldChunks(one, *pipeline.cuda, &result); !status.ok()) return status;
    sum.timing = result.timing;
    const absl::StatusOr<std::vector<Value>> values = Finalize(one.spec, result.state);
    if (!values.ok()) {
      return absl::Status(values.status().code(), absl::StrCat("output ", OutputName(slices.layout, output), ": ",
                                                               std::string(values.status().message())));
    }
    for (std::size_t i = 0; i < values->size(); ++i) {
      StoreValue((*values)[i], slices.answers[i] + output * RowOf((*values)[i].dtype).bytes);
    }
  }
  const std::optional<double> queue_us = timing->queue_us;
  *timing = sum.timing;
  timing->queue_us = queue_us;
  return absl::OkStatus();
}

// Device memory with the whole array in it: its own, or a copy in the lane's memory or, if that is too small, in
// `memory`, which comes from `arrays`.
absl::StatusOr<const std::byte*> CudaLane::HoldArray(const Job& job, CudaArrays& arrays,
                                                     std::unique_ptr<ArrayMemory>* memory, Timing* timing) {
  const std::int64_t width = RowOf(job.spec.dtype).bytes;
  if (const absl::Status status = AwaitReady(job); !status.ok()) return status;
  const auto* const data = static_cast<const std::byte*>(job.array.data);
  if (job.array.space == MemorySpace::kDevice && reinterpret_cast<std::uintptr_t>(data) % width == 0) return data;
  const std::int64_t bytes = job.spec.count * width;
  std::byte* to = slots_[0].device;
  if (bytes > chunk_bytes_) {
    absl::StatusOr<std::unique_ptr<ArrayMemory>> allocated = arrays.Allocate(bytes);
    if (!allocated.ok()) {
      return absl::Status(allocated.status().code(),
                          absl::StrCat("along axes the whole array must be in the device's memory: ",
                                       std::string(allocated.status().message())));
    }
    *memory = *std::move(allocated);
    to = static_cast<std::byte*>(const_cast<void*>((*memory)->array().data));
  }
  const absl::Status status = CopyToDevice(job, bytes, to, timing);
  if (!status.ok()) return status;
  return to;
}

absl::Status CudaLane::CopyToDevice(const Job& job, std::int64_t bytes, std::byte* to, Timing* timing) {
  std::vector<Slot*> copying(kSlots);  // null: nothing is copied from it
  const auto await = [&](std::int64_t chunk) -> absl::Status {
    Slot* const slot = std::exchange(copying[static_cast<std::size_t>(chunk % kSlots)], nullptr);
    if (slot == nullptr) return absl::OkStatus();
    REDUCED_RETURN_IF_CUDA_ERROR(AwaitEvent(slot->copy_end));
    float millis = 0;
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&millis, slot->copy_begin, slot->copy_end));
    timing->host_to_device_us = timing->host_to_device_us.value_or(0) + 1e3 * millis;
    return absl::OkStatus();
  };
  const std::int64_t chunks = (bytes + chunk_bytes_ - 1) / chunk_bytes_;
  const auto bytes_of = [&](std::int64_t chunk) { return std::min(chunk_bytes_, bytes - chunk * chunk_bytes_); };
  absl::Status status;
  std::int64_t filled = 0;
  for (std::int64_t chunk = 0; chunk < chunks && status.ok(); ++chunk) {
    status = WhyStop(job);
    for (; filled < chunks && filled <= chunk + 1 && status.ok(); ++filled) {  // one ahead
      status = await(filled);
      if (status.ok()) StartFilling(job.array, filled * chunk_bytes_, bytes_of(filled), slots_[filled % kSlots]);
    }
    Slot& slot = slots_[chunk % kSlots];
    if (status.ok()) {
      status = CopyIn(job.array, chunk * chunk_bytes_, bytes_of(chunk), to + chunk * chunk_bytes_, slot, timing);
    }
    if (status.ok()) copying[static_cast<std::size_t>(chunk % kSlots)] = &slot;
  }
  for (std::int64_t i = 0; i < kSlots && status.ok(); ++i) status = await(i);
  if (!status.ok()) Abandon();  // copies to memory that goes
  return status;
}

}  // namespace reduced
