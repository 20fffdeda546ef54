// CudaLane::ReducePartition along axes: what the host does.
//
// Long contiguous outputs are reduced one after the other, as arrays. Of all others the whole array is in device
// memory: it is copied there if it is elsewhere, in pieces of whole outputs if there is no room for all, or of parts of
// them (group_pieces.cc) if there is none for those either. Where quick_slices.h has launches for all ops, their
// results are written there and copied to the answers. The states of other outputs, and of those that are not known so,
// come back in batches of the lane's own memory and are finalized here, by several threads.
#include "kernels/cuda/slices.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/group_reduction.h"
#include "kernels/cuda/lane.h"
#include "kernels/cuda/quick_slices.h"
#include "kernels/cuda/slice_pieces.h"
#include "kernels/cuda/stage_range.h"
#include "kernels/cuda/status.h"
#include "kernels/engine/output_errors.h"
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

}  // namespace

// One job, whose array is in device memory.
class CudaLane::Slices {
 public:
  // `arrays`: where memory for results comes from, beyond what the lane has. `layout`, `answers`: of all outputs of the
  // job, or of those from `first` on that a piece of the array has. On an error, what is in flight is to be waited for
  // before this goes.
  Slices(CudaLane& lane, CudaArrays& arrays, const Job& job, const Layout& layout,
         const std::vector<std::byte*>& answers, const std::byte* data, std::int64_t first, Timing* timing)
      : lane_(lane),
        arrays_(arrays),
        job_(job),
        layout_(layout),
        answers_(answers),
        first_(first),
        one_(job.spec),
        timing_(timing) {
    one_.count = layout_.elements;
    if (job.states == nullptr) one_.precision = Precision::kExact;  // sums take no longer than in f64
    array_ = {.data = data,
              .outputs = layout_.outputs,
              .elements = layout_.elements,
              .kept = DimensionsOf(layout_.kept),
              .reduced = DimensionsOf(layout_.reduced)};
  }

  absl::Status Run() {
    const absl::Status status = layout_.elements == 0 || layout_.outputs == 0 ? AnswerEmpty() : AnswerAll();
    return status.ok() ? errors_.Finish(job_.partition->layout, first_) : status;
  }

  // Stores the answers of an output with that state, and the state, as far as they are wanted. Thread-safe.
  void Store(std::int64_t output, State state) {
    errors_.Store(one_, state, answers_, output);
    if (job_.states != nullptr) (*job_.states)[static_cast<std::size_t>(first_ + output)] = std::move(state);
  }

 private:
  // Where states of a batch come back through. The array may be in slot 0.
  Slot& state_slot() const { return lane_.slots_[2]; }

  absl::Status AnswerEmpty() {
    for (std::int64_t output = 0; output < layout_.outputs && !errors_.Ended(output); ++output) {
      State state;
      if (ExactAccumulatorsFor(one_) != 0) state.exact = std::make_unique<ExactSums>();
      Store(output, std::move(state));
    }
    return absl::OkStatus();
  }

  // Starts launches on the kernel stream.
  template <class Launches>
  absl::Status Start(Launches launches) {
    if (absl::Status why = WhyStop(job_); !why.ok()) return why;
    const StageRange range("launch");
    Slot& slot = state_slot();
    cudaGetLastError();  // launches would report what earlier calls of this thread failed with
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.kernel_begin, lane_.kernel_stream_));
    const cudaError_t error = FAILPOINT("cuda/launch") ? cudaErrorLaunchOutOfResources : launches();
    if (error != cudaSuccess) return DeviceError(error, "launching a reduction along axes");
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.kernel_end, lane_.kernel_stream_));
    return absl::OkStatus();
  }
  // Blocks until they are done, and adds the time that they took.
  absl::Status Finish() {
    const Slot& slot = state_slot();
    REDUCED_RETURN_IF_CUDA_ERROR(lane_.AwaitEvent(slot.kernel_end));
    return lane_.AddTime(slot.kernel_begin, slot.kernel_end, &Timing::kernel_us, timing_);
  }

  // Answers all outputs: quickly, if there are kernels for all ops and room for all results, or else from states.
  absl::Status AnswerAll() {
    if (job_.states != nullptr) return AnswerFromStates(nullptr);
    bool known = false;
    std::vector<std::int64_t> others;
    if (absl::Status status = AnswerQuickly(&known, &others); !status.ok()) return status;
    if (!known) return AnswerFromStates(nullptr);
    return others.empty() ? absl::OkStatus() : AnswerFromStates(&others);
  }

  // Of each kind of op; none if there is no kind for an op, or no plan.
  std::vector<QuickLaunch> LaunchesOf(const std::vector<QuickOps>& kinds) const {
    const std::optional<QuickPlan> plan =
        PlanQuickSlices(array_, RowOf(one_.dtype).bytes, lane_.multiprocessors_, lane_.chunk_bytes_ / kQuickFoldBytes);
    if (!plan.has_value()) return {};
    std::vector<QuickLaunch> launches;
    for (const QuickOps& ops : kinds) {
      QuickLaunch launch{.elements = ops.elements, .kind = ops.kind, .array = array_, .plan = *plan};
      launch.elements.count = layout_.elements;
      launch.ops = static_cast<int>(ops.positions.size());
      std::copy(std::begin(ops.answers), std::end(ops.answers), launch.answers);
      launch.folds = lane_.slots_[1].device;
      launch.multiprocessors = lane_.multiprocessors_;
      launch.stream = lane_.kernel_stream_;
      launches.push_back(launch);
    }
    return launches;
  }

  // Answers outputs on the device, if it can: then *known, and `others` are those that are to be answered from states.
  absl::Status AnswerQuickly(bool* known, std::vector<std::int64_t>* others) {
    const std::vector<QuickOps> kinds = QuickOpsOf(one_);
    std::vector<QuickLaunch> launches = LaunchesOf(kinds);
    if (launches.empty()) return absl::OkStatus();
    // How many are to be redone, which, a bit each, and the results of each op.
    constexpr std::int64_t kAlignment = 256;
    std::int64_t bytes = 0;
    std::vector<Region> regions;
    const auto add_region = [&](std::int64_t size, std::byte* to) {
      regions.push_back({bytes, size, to});
      bytes += (size + kAlignment - 1) / kAlignment * kAlignment;
    };
    unsigned long long redone = 0;
    std::vector<std::uint32_t> redo(static_cast<std::size_t>((layout_.outputs + 31) / 32));
    add_region(sizeof(redone), reinterpret_cast<std::byte*>(&redone));
    add_region(static_cast<std::int64_t>(redo.size() * sizeof(redo[0])), reinterpret_cast<std::byte*>(redo.data()));
    const std::int64_t cleared = bytes;
    for (std::size_t i = 0; i < one_.ops.size(); ++i) {
      add_region(layout_.outputs * RowOf(ResultDType(one_.ops[i], one_.dtype)).bytes, answers_[i]);
    }
    std::byte* results = state_slot().device;
    if (bytes > lane_.chunk_bytes_) {
      absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = arrays_.Allocate(bytes);
      if (absl::IsResourceExhausted(memory.status())) return absl::OkStatus();  // states take less room
      if (!memory.ok()) return memory.status();
      results_ = *std::move(memory);
      results = static_cast<std::byte*>(const_cast<void*>(results_->array().data));
    }
    for (std::size_t k = 0; k < launches.size(); ++k) {
      QuickLaunch& launch = launches[k];
      for (int i = 0; i < launch.ops; ++i) {
        launch.answers[i].results = results + regions[2 + kinds[k].positions[i]].begin;
      }
      launch.redone = reinterpret_cast<unsigned long long*>(results);
      launch.redo = reinterpret_cast<std::uint32_t*>(results + regions[1].begin);
    }
    absl::Status status = Start([&] {
      cudaError_t error = cudaMemsetAsync(results, 0, static_cast<std::size_t>(cleared), lane_.kernel_stream_);
      for (const QuickLaunch& launch : launches) {
        if (error == cudaSuccess) error = LaunchQuick(launch);
      }
      return error;
    });
    if (status.ok()) status = lane_.CopyToHost(job_, results, bytes, regions, timing_);
    if (status.ok()) status = Finish();
    if (!status.ok()) return status;
    *known = true;
    others->reserve(redone);
    for (std::size_t i = 0; redone > 0 && i < redo.size(); ++i) {
      for (std::uint32_t word = redo[i]; word != 0; word &= word - 1) {
        others->push_back(static_cast<std::int64_t>(32 * i) + std::countr_zero(word));
      }
    }
    return absl::OkStatus();
  }

  // Answers all outputs, or those listed, from their states.
  absl::Status AnswerFromStates(const std::vector<std::int64_t>* which) {
    const std::int64_t count = which != nullptr ? static_cast<std::int64_t>(which->size()) : layout_.outputs;
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
    for (std::int64_t first = 0; first < count && !errors_.Ended(layout_.outputs); first += batch) {
      launch.first = first;
      launch.count = static_cast<int>(std::min(batch, count - first));
      const std::int64_t* const listed = which != nullptr ? which->data() + first : nullptr;
      if (absl::Status status = FoldBatch(launch, listed); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // Sends a list of outputs to the device.
  absl::StatusOr<const std::int64_t*> Send(const std::int64_t* listed, int count) {
    Slot& slot = lane_.slots_[1];
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(*listed);  // less than of their states
    std::memcpy(slot.pinned, listed, bytes);
    REDUCED_RETURN_IF_CUDA_ERROR(
        cudaMemcpyAsync(slot.device, slot.pinned, bytes, cudaMemcpyHostToDevice, lane_.kernel_stream_));
    return reinterpret_cast<const std::int64_t*>(slot.device);
  }

  // `listed`: the outputs of the batch, on the host; null: they follow each other.
  absl::Status FoldBatch(SliceStatesLaunch launch, const std::int64_t* listed) {
    if (listed != nullptr) {
      const absl::StatusOr<const std::int64_t*> sent = Send(listed, launch.count);
      if (!sent.ok()) return sent.status();
      launch.which = *sent;
    }
    const std::int64_t states = std::int64_t{launch.count} * launch.parts;
    const std::int64_t partial_bytes = states * static_cast<std::int64_t>(sizeof(Partial));
    const bool exact = launch.exact_accumulators != 0;
    Slot& slot = state_slot();
    launch.partials = reinterpret_cast<Partial*>(slot.device);
    launch.digits = exact ? reinterpret_cast<ExactDigits*>(slot.device + partial_bytes) : nullptr;
    absl::Status status = Start([&] { return LaunchSliceStates(launch); });
    if (status.ok()) status = Finish();
    if (!status.ok()) return status;
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
        Store(listed != nullptr ? listed[i] : launch.first + i, std::move(state));
      });
    });
    return absl::OkStatus();
  }

  CudaLane& lane_;
  CudaArrays& arrays_;
  std::unique_ptr<ArrayMemory> results_;  // of the device, if the lane's memory is too small for them
  const Job& job_;
  const Layout& layout_;
  const std::vector<std::byte*>& answers_;  // of each op; empty: none are wanted
  const std::int64_t first_;
  ReduceSpec one_;  // the question about one output
  SliceArray array_;
  Timing* const timing_;
  OutputErrors errors_{answers_.size(), job_.errors};
};

absl::Status CudaLane::ReducePartition(Job& job, CudaArrays& arrays, ArrayBudget& scratch, double expected_us,
                                       Timing* timing) {
  expected_us_ = expected_us;
  REDUCED_RETURN_IF_CUDA_ERROR(cudaSetDevice(device_));
  std::vector<std::unique_ptr<ArrayMemory>> gathered;
  if (absl::Status status = GatherArrays(job, arrays, &gathered, timing); !status.ok()) {
    Abandon();
    return status;
  }
  if (!HasKernels(job.spec.dtype) && !HasLongOutputs(job)) {
    const absl::Status status = ReduceOnHost(job, arrays, scratch, timing);
    if (!status.ok()) Abandon();
    return status;
  }
  if (!AnsweredByAccumulators(job.spec)) return ReduceDistributions(job, arrays, scratch, timing);
  return ReduceFromStates(job, arrays, scratch, timing);
}

absl::Status CudaLane::ReduceFromStates(Job& job, CudaArrays& arrays, ArrayBudget& scratch, Timing* timing) {
  if (!job.partition->uniform()) return ReduceGroups(job, arrays, scratch, timing);
  const StageRange range("reduce along axes");
  absl::Status status = ReduceSlices(job, arrays, scratch, timing);
  if (!status.ok()) Abandon();
  return status;
}

absl::Status CudaLane::ReduceSlices(const Job& job, CudaArrays& arrays, ArrayBudget& scratch, Timing* timing) {
  const Layout& layout = job.partition->layout;
  const std::int64_t bytes = layout.elements * RowOf(job.spec.dtype).bytes;
  const absl::StatusOr<std::vector<std::byte*>> answers = job.place(layout.outputs, /*groups=*/1, /*keys=*/nullptr);
  if (!answers.ok()) return answers.status();
  if (job.states != nullptr) job.states->resize(static_cast<std::size_t>(layout.outputs));
  const std::int64_t long_bytes = job.array.space == MemorySpace::kDevice ? kLongDeviceBytes : kLongHostBytes;
  const bool one_by_one = layout.outputs == 1 || bytes >= long_bytes || !HasKernels(job.spec.dtype);
  if (layout.elements > 0 && layout.run() >= layout.elements && one_by_one) {
    return AnswerOneByOne(job, *answers, timing);
  }
  std::unique_ptr<ArrayMemory> memory;
  const std::byte* data = nullptr;
  if (layout.elements > 0 && layout.outputs > 0) {
    const absl::StatusOr<const std::byte*> held = HoldArray(job, arrays, &memory, timing);
    if (absl::IsResourceExhausted(held.status()) && job.array.space != MemorySpace::kDevice) {
      return AnswerInPieces(job, *answers, arrays, scratch, held.status(), timing);
    }
    if (!held.ok()) return held.status();
    data = *held;
  }
  Slices all(*this, arrays, job, layout, *answers, data, 0, timing);
  const absl::Status status = all.Run();
  // What is in flight reads the array and writes results, whose memory goes.
  if (!status.ok()) Abandon();
  return status;
}

// As many outputs at a time as there is room for, with their results in the lane's memory.
absl::Status CudaLane::AnswerInPieces(const Job& job, const std::vector<std::byte*>& answers, CudaArrays& arrays,
                                      ArrayBudget& scratch, const absl::Status& why, Timing* timing) {
  const Layout& layout = job.partition->layout;
  const SliceCut cut = CutOf(layout);
  const std::int64_t width = RowOf(job.spec.dtype).bytes;
  const std::int64_t item_bytes = cut.elements * cut.stretches * width;
  std::unique_ptr<ArrayMemory> memory;
  std::byte* to = slots_[0].device;
  std::int64_t room = chunk_bytes_;
  for (const std::int64_t wanted : {std::max(kPieceChunks * chunk_bytes_, item_bytes), item_bytes}) {
    if (memory != nullptr || wanted <= chunk_bytes_) continue;
    absl::StatusOr<std::unique_ptr<ArrayMemory>> allocated = arrays.Allocate(wanted);
    if (absl::IsResourceExhausted(allocated.status())) continue;
    if (!allocated.ok()) return allocated.status();
    memory = *std::move(allocated);
    to = static_cast<std::byte*>(const_cast<void*>(memory->array().data));
    room = wanted;
  }
  if (item_bytes > room) {
    if (layout.run() >= layout.elements) return AnswerOneByOne(job, answers, timing);
    return AnswerFromParts(job, answers, arrays, scratch, why, timing);
  }
  std::int64_t result_bytes = 1;  // of each output, with what tells whether it is to be redone
  for (const Op op : job.spec.ops) result_bytes += RowOf(ResultDType(op, job.spec.dtype)).bytes;
  const std::int64_t results = chunk_bytes_ / 2 / result_bytes;  // that fit in half of it, wherever they begin
  const std::int64_t most = std::max<std::int64_t>(1, std::min(room / item_bytes, results / cut.outputs));
  for (std::int64_t item = 0; item < cut.items; item += most) {
    const std::int64_t items = std::min(most, cut.items - item);
    const Layout piece = PieceOf(layout, items);
    const std::int64_t first = item * cut.outputs;
    std::vector<std::byte*> places = answers;
    for (std::size_t i = 0; i < places.size(); ++i) {
      places[i] += first * RowOf(ResultDType(job.spec.ops[i], job.spec.dtype)).bytes;
    }
    const Source source{.array = job.array,
                        .first = item * cut.elements * width,
                        .stretch = cut.stretches == 1 ? 0 : items * cut.elements * width,
                        .stride = cut.stride * width};
    absl::Status status = CopyToDevice(job, source, items * item_bytes, to, timing);
    if (!status.ok()) return status;
    Slices some(*this, arrays, job, piece, places, to, first, timing);
    status = some.Run();
    if (!status.ok()) {
      Abandon();  // what is in flight reads the piece, whose memory goes
      return status;
    }
  }
  return absl::OkStatus();
}

// From the states of parts of outputs: not even one index of the dimension that is cut has room.
absl::Status CudaLane::AnswerFromParts(const Job& job, const std::vector<std::byte*>& answers, CudaArrays& arrays,
                                       ArrayBudget& scratch, const absl::Status& why, Timing* timing) {
  Job parts = job;
  if (parts.states == nullptr) parts.spec.precision = Precision::kExact;  // as Slices
  parts.place = [&](std::int64_t, std::int64_t, const std::byte*) { return answers; };
  GroupReduction reduction(*this, parts, arrays, scratch, timing, {});
  return reduction.RunInPieces(why);
}

// Each output as an array of its own: they are contiguous.
absl::Status CudaLane::AnswerOneByOne(const Job& job, const std::vector<std::byte*>& answers, Timing* timing) {
  const Layout& layout = job.partition->layout;
  const PipelineRow& pipeline = DefaultPipeline(EngineKind::kCuda);
  const std::int64_t width = RowOf(job.spec.dtype).bytes;
  Job one{job.spec, job.array, job.deadline, job.cancelled, job.admitted, job.caller, job.limit};
  one.spec.count = layout.elements;
  Answer sum;
  sum.timing = *timing;  // of ops that were answered before
  OutputErrors errors(answers.size(), job.errors);
  for (std::int64_t output = 0; output < layout.outputs && !errors.Ended(output); ++output) {
    one.array = From(job.array, layout.Start(output) * width);
    Answer result;
    result.timing = sum.timing;
    if (absl::Status status = FoldChunks(one, *pipeline.cuda, &result); !status.ok()) return status;
    sum.timing = result.timing;
    errors.Store(one.spec, result.state, answers, output);
    if (job.states != nullptr) (*job.states)[static_cast<std::size_t>(output)] = std::move(result.state);
  }
  *timing = sum.timing;
  return errors.Finish(layout);
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
      return absl::Status(
          allocated.status().code(),
          absl::StrCat("along axes an array, or a piece of its outputs, must be in the device's memory: ",
                       std::string(allocated.status().message())));
    }
    *memory = *std::move(allocated);
    to = static_cast<std::byte*>(const_cast<void*>((*memory)->array().data));
  }
  const absl::Status status = CopyToDevice(job, {job.array}, bytes, to, timing);
  if (!status.ok()) return status;
  return to;
}

absl::Status CudaLane::CopyToDevice(const Job& job, const Source& from, std::int64_t bytes, std::byte* to,
                                    Timing* timing) {
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
      if (status.ok()) StartFilling(from, filled * chunk_bytes_, bytes_of(filled), slots_[filled % kSlots]);
    }
    Slot& slot = slots_[chunk % kSlots];
    if (status.ok()) {
      status = CopyIn(from, chunk * chunk_bytes_, bytes_of(chunk), to + chunk * chunk_bytes_, slot, timing);
    }
    if (status.ok()) copying[static_cast<std::size_t>(chunk % kSlots)] = &slot;
  }
  for (std::int64_t i = 0; i < kSlots && status.ok(); ++i) status = await(i);
  if (!status.ok()) Abandon();  // copies to memory that goes
  return status;
}

absl::Status CudaLane::AddTime(cudaEvent_t begin, cudaEvent_t end, std::optional<double> Timing::*stage,
                               Timing* timing) {
  float millis = 0;
  REDUCED_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&millis, begin, end));
  timing->*stage = (timing->*stage).value_or(0) + 1e3 * millis;
  return absl::OkStatus();
}

// Through pinned memory, while what came before is copied on.
absl::Status CudaLane::CopyToHost(const Job& job, const std::byte* from, std::int64_t bytes,
                                  const std::vector<Region>& regions, Timing* timing) {
  const std::int64_t chunks = (bytes + chunk_bytes_ - 1) / chunk_bytes_;
  for (std::int64_t i = 0; i <= chunks; ++i) {
    if (i < chunks) {
      if (absl::Status why = WhyStop(job); !why.ok()) return why;
      Slot& slot = slots_[i % kSlots];
      const auto size = static_cast<std::size_t>(std::min(chunk_bytes_, bytes - i * chunk_bytes_));
      REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.copy_begin, kernel_stream_));
      REDUCED_RETURN_IF_CUDA_ERROR(
          cudaMemcpyAsync(slot.pinned, from + i * chunk_bytes_, size, cudaMemcpyDeviceToHost, kernel_stream_));
      REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.copy_end, kernel_stream_));
    }
    if (i == 0) continue;
    const Slot& slot = slots_[(i - 1) % kSlots];
    REDUCED_RETURN_IF_CUDA_ERROR(AwaitEvent(slot.copy_end));
    if (absl::Status status = AddTime(slot.copy_begin, slot.copy_end, &Timing::device_to_host_us, timing);
        !status.ok()) {
      return status;
    }
    const std::int64_t begin = (i - 1) * chunk_bytes_, end = std::min(bytes, i * chunk_bytes_);
    for (const Region& region : regions) {
      const std::int64_t first = std::max(begin, region.begin);
      const std::int64_t last = std::min(end, region.begin + region.bytes);
      if (first < last) Spread(slot.pinned + (first - begin), last - first, region.to + (first - region.begin));
    }
  }
  return absl::OkStatus();
}

void CudaLane::Spread(const std::byte* from, std::int64_t bytes, std::byte* to) {
  constexpr std::int64_t kPiece = std::int64_t{256} << 10;
  if (bytes <= kPiece) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
    return;
  }
  copiers_.execute([&] {
    tbb::parallel_for(std::int64_t{0}, (bytes + kPiece - 1) / kPiece, [&](std::int64_t i) {
      std::memcpy(to + i * kPiece, from + i * kPiece, static_cast<std::size_t>(std::min(kPiece, bytes - i * kPiece)));
    });
  });
}

}  // namespace reduced
