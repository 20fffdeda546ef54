// CudaLane::ReduceGroups: what the host does for reductions of segments, by keys and under masks.
//
// The whole array is in device memory, and so is its mask: they are copied there if they are elsewhere, in pieces if
// there is no room for all (group_pieces.cc). Groups are found (find_groups.cc), and room for their answers is asked
// for. Then outputs are answered from tables by key, to which the rows have been added meanwhile (key_tables.cc), or
// side by side by the device (quick_groups.cc); all others from states, which come back in batches of the lane's own
// memory and are finalized here, by several threads.
#include "kernels/cuda/groups.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "kernels/cuda/group_reduction.h"
#include "kernels/cuda/lane.h"
#include "kernels/cuda/stage_range.h"
#include "kernels/cuda/status.h"
#include "kernels/exact/answers.h"
#include "kernels/system/failpoint.h"
#include "oneapi/tbb/parallel_for.h"

namespace reduced {

SliceDimensions CudaLane::GroupReduction::DimensionsFrom(const std::vector<Dimension>& dimensions) {
  SliceDimensions result;
  for (const Dimension& dimension : dimensions) {
    result.size[result.count] = dimension.size;
    result.stride[result.count++] = dimension.stride;
  }
  return result;
}

CudaLane::GroupReduction::GroupReduction(CudaLane& lane, const Job& job, CudaArrays& arrays, ArrayBudget& scratch,
                                         Timing* timing, const Within& within)
    : lane_(lane),
      job_(job),
      partition_(*job.partition),
      arrays_(arrays),
      scratch_(scratch),
      timing_(timing),
      within_(within),
      keyed_(partition_.keys.has_value()),
      grouped_(partition_.grouped()),
      columns_(partition_.layout.outputs),
      width_(RowOf(job_.spec.dtype).bytes),
      is_quantiles_(!AnsweredByAccumulators(job_.spec)),
      quick_(job_.states == nullptr && !is_quantiles_ ? QuickOpsOf(job_.spec) : std::vector<QuickOps>()) {}

absl::Status CudaLane::GroupReduction::Run() {
  absl::Status status = HoldArray();
  if (status.ok() && grouped_) status = FindGroups();
  if (status.ok()) status = PlaceAnswers();
  if (!status.ok() || outputs_ == 0) return status;
  status = tables_.empty() ? AnswerAll() : AnswerFromTables();
  return status.ok() ? error() : status;
}

absl::Status CudaLane::GroupReduction::AnswerAll() {
  absl::Status status;
  if (keyed_ && partition_.rows > 0 && !brackets_.has_value()) status = SortRows();
  SetPositions();
  if (status.ok() && is_quantiles_) return AnswerQuantiles();
  if (status.ok() && !quick_.empty()) {
    status = AnswerQuickly();
    std::vector<std::int64_t> left;
    {
      const absl::MutexLock lock(&mutex_);
      left.swap(left_);
    }
    std::sort(left.begin(), left.end());
    if (status.ok()) status = AnswerInParts(left, Method::kStates);
  } else if (status.ok()) {
    status = AnswerAllInParts(Method::kStates);
  }
  return status;
}

Job CudaLane::GroupReduction::JobOf(const ArrayRef& array, std::int64_t count) const {
  Job job{job_.spec, array, job_.deadline, job_.cancelled, job_.admitted, job_.caller, job_.limit};
  job.spec.count = count;
  return job;
}

absl::StatusOr<std::byte*> CudaLane::GroupReduction::Allocate(std::int64_t bytes,
                                                              std::vector<std::unique_ptr<ArrayMemory>>* held) {
  absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = arrays_.Allocate(bytes);
  if (absl::IsResourceExhausted(memory.status())) {
    constexpr std::int64_t kAlignment = 256;
    if (bytes <= lane_.chunk_bytes_ - spare_taken_) {
      std::byte* const spare = lane_.slots_[0].device + spare_taken_;
      spare_taken_ = std::min(lane_.chunk_bytes_, spare_taken_ + (bytes + kAlignment - 1) / kAlignment * kAlignment);
      return spare;
    }
    lacks_room_ = true;
  }
  if (!memory.ok()) {
    return absl::Status(memory.status().code(),
                        absl::StrCat("the array, its mask, bounds and rows by key must be in the device's memory: ",
                                     std::string(memory.status().message())));
  }
  held->push_back(*std::move(memory));
  return static_cast<std::byte*>(const_cast<void*>(held->back()->array().data));
}

absl::Status CudaLane::GroupReduction::Allocate(const std::vector<Room>& rooms) {
  for (const Room& room : rooms) {
    const absl::StatusOr<std::byte*> memory = Allocate(room.bytes, room.held);
    if (!memory.ok()) return memory.status();
    *room.memory = *memory;
  }
  return absl::OkStatus();
}

absl::StatusOr<const std::byte*> CudaLane::GroupReduction::Hold(const ArrayRef& array, std::int64_t count,
                                                                std::int64_t width) {
  const Job job = JobOf(array, count);
  if (absl::Status status = AwaitReady(job); !status.ok()) return status;
  const auto* const data = static_cast<const std::byte*>(array.data);
  if (array.space == MemorySpace::kDevice && reinterpret_cast<std::uintptr_t>(data) % width == 0) return data;
  const absl::StatusOr<std::byte*> to = Allocate(count * width, &device_memory_);
  if (!to.ok()) return to.status();
  const absl::Status status = lane_.CopyToDevice(job, {job.array}, count * width, *to, timing_);
  if (!status.ok()) return status;
  return *to;
}

absl::Status CudaLane::GroupReduction::CopyBack(const std::byte* from, std::int64_t bytes) {
  const Slot& slot = state_slot();
  REDUCED_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(slot.pinned, from, static_cast<std::size_t>(bytes),
                                               cudaMemcpyDeviceToHost, lane_.kernel_stream_));
  REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.copy_end, lane_.kernel_stream_));
  REDUCED_RETURN_IF_CUDA_ERROR(lane_.AwaitEvent(slot.copy_end));
  return absl::OkStatus();
}

absl::Status CudaLane::GroupReduction::HoldArray() {
  array_.columns = columns_;
  if (job_.spec.count == 0) return absl::OkStatus();
  const absl::StatusOr<const std::byte*> data = Hold(job_.array, job_.spec.count, width_);
  if (!data.ok()) return data.status();
  array_.data = *data;
  if (!partition_.mask.has_value()) return absl::OkStatus();
  const Mask& mask = *partition_.mask;
  const absl::StatusOr<const std::byte*> bytes = Hold(mask.array.array, mask.array.count, 1);
  if (!bytes.ok()) return bytes.status();
  array_.mask = reinterpret_cast<const std::uint8_t*>(*bytes);
  array_.mask_bits = mask.bits;
  array_.first_bit = mask.first_bit;
  return absl::OkStatus();
}

absl::Status CudaLane::GroupReduction::PlaceAnswers() {
  if (__builtin_mul_overflow(grouping_.groups, columns_, &outputs_)) {
    outputs_ = std::numeric_limits<std::int64_t>::max();  // more than there is memory for
  }
  absl::StatusOr<std::vector<std::byte*>> answers = job_.place(outputs_, grouping_.groups, grouping_.keys);
  if (!answers.ok()) return answers.status();
  answers_ = *std::move(answers);
  placed_ = true;
  if (job_.states != nullptr) job_.states->resize(static_cast<std::size_t>(outputs_));
  names_.shape = partition_.layout.shape;
  if (grouped_) names_.shape.insert(names_.shape.begin(), grouping_.groups);
  return absl::OkStatus();
}

void CudaLane::GroupReduction::SetPositions() {
  if (!grouped_) {
    array_.reduced = DimensionsFrom(partition_.layout.reduced);
  } else if (array_.rows == nullptr) {
    array_.reduced = {.count = 1, .size = {partition_.rows}, .stride = {columns_}};
  }
  // The mask of one column has been heeded: what it leaves out is no row of any group.
  if (keyed_ && columns_ == 1) array_.mask = nullptr;
}

GroupPart CudaLane::GroupReduction::WholeOf(std::int64_t output) const {
  if (!grouped_) {
    const std::int64_t positions = partition_.layout.elements;
    return {.start = positions == 0 ? 0 : partition_.layout.Start(output), .end = positions};
  }
  const std::int64_t group = output / columns_;
  const std::int64_t column = output % columns_;
  const std::int64_t first = grouping_.bounds[group];
  const std::int64_t start = keyed_ ? first : first * columns_ + column;
  return {.start = start, .column = column, .end = grouping_.bounds[group + 1] - first};
}

absl::Status CudaLane::GroupReduction::Begin(absl::FunctionRef<cudaError_t()> launches, std::int64_t bytes,
                                             const Slot& slot) {
  if (absl::Status why = WhyStop(job_); !why.ok()) return why;
  const StageRange range("launch");
  cudaGetLastError();  // launches would report what earlier calls of this thread failed with
  // Outputs that are left for later, and the ends of small folds, are copied to the host too: never what the memory had
  // before.
  if (bytes > 0) {
    REDUCED_RETURN_IF_CUDA_ERROR(
        cudaMemsetAsync(slot.device, 0, static_cast<std::size_t>(bytes), lane_.kernel_stream_));
  }
  REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.kernel_begin, lane_.kernel_stream_));
  const cudaError_t error = FAILPOINT("cuda/launch") ? cudaErrorLaunchOutOfResources : launches();
  if (error != cudaSuccess) return DeviceError(error, "launching a reduction of groups");
  REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.kernel_end, lane_.kernel_stream_));
  if (bytes > 0) {
    REDUCED_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(slot.pinned, slot.device, static_cast<std::size_t>(bytes),
                                                 cudaMemcpyDeviceToHost, lane_.kernel_stream_));
  }
  REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.copy_end, lane_.kernel_stream_));
  return absl::OkStatus();
}

absl::Status CudaLane::GroupReduction::End(const Slot& slot) {
  REDUCED_RETURN_IF_CUDA_ERROR(lane_.AwaitEvent(slot.copy_end));
  float millis = 0;
  REDUCED_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&millis, slot.kernel_begin, slot.kernel_end));
  timing_->kernel_us = timing_->kernel_us.value_or(0) + 1e3 * millis;
  return absl::OkStatus();
}

absl::Status CudaLane::GroupReduction::Launch(absl::FunctionRef<cudaError_t()> launches, std::int64_t bytes) {
  if (absl::Status status = Begin(launches, bytes, state_slot()); !status.ok()) return status;
  return End(state_slot());
}

absl::Status CudaLane::GroupReduction::AnswerAllInParts(Method method) {
  if (absl::Status status = FetchBounds(); !status.ok()) return status;
  for (std::int64_t output = 0; output < outputs_ && !HasEnded(); ++output) {
    if (absl::Status status = AnswerInParts(output, WholeOf(output), method); !status.ok()) return status;
  }
  return AnswerPending(method);
}

absl::Status CudaLane::GroupReduction::AnswerInParts(const std::vector<std::int64_t>& outputs, Method method) {
  if (outputs.empty()) return absl::OkStatus();
  // All bounds are fetched if not much fewer are needed.
  constexpr std::int64_t kRatio = 4;
  const bool locates =
      bounds_ != nullptr && grouping_.bounds == nullptr && std::ssize(outputs) * kRatio < grouping_.groups;
  if (!locates) {
    if (absl::Status status = FetchBounds(); !status.ok()) return status;
  }
  const std::int64_t room = lane_.chunk_bytes_ / static_cast<std::int64_t>(sizeof(GroupPart));
  std::vector<GroupPart> wholes;
  for (std::int64_t i = 0; i < std::ssize(outputs) && !HasEnded(); ++i) {
    const std::int64_t output = outputs[static_cast<std::size_t>(i)];
    if (locates && i % room == 0) {
      wholes.resize(static_cast<std::size_t>(std::min(room, std::ssize(outputs) - i)));
      if (absl::Status status = Locate(outputs.data() + i, &wholes); !status.ok()) return status;
    }
    const GroupPart whole = locates ? wholes[static_cast<std::size_t>(i % room)] : WholeOf(output);
    if (absl::Status status = AnswerInParts(output, whole, method); !status.ok()) return status;
  }
  return AnswerPending(method);
}

absl::Status CudaLane::GroupReduction::Locate(const std::int64_t* numbers, std::vector<GroupPart>* wholes) {
  const Slot& up = part_slot();
  const std::size_t bytes = wholes->size() * sizeof(std::int64_t);
  std::memcpy(up.pinned, numbers, bytes);
  REDUCED_RETURN_IF_CUDA_ERROR(
      cudaMemcpyAsync(up.device, up.pinned, bytes, cudaMemcpyHostToDevice, lane_.kernel_stream_));
  LocateLaunch launch{.array = array_,
                      .numbers = reinterpret_cast<const std::int64_t*>(up.device),
                      .count = std::ssize(*wholes),
                      .wholes = reinterpret_cast<GroupPart*>(state_slot().device),
                      .stream = lane_.kernel_stream_};
  launch.outputs.bounds = bounds_;
  launch.outputs.columns = columns_;
  const std::size_t whole_bytes = wholes->size() * sizeof(GroupPart);
  const absl::Status status = Launch([&] { return LaunchLocate(launch); }, static_cast<std::int64_t>(whole_bytes));
  if (status.ok()) std::memcpy(wholes->data(), state_slot().pinned, whole_bytes);
  return status;
}

absl::Status CudaLane::GroupReduction::AnswerInParts(std::int64_t output, const GroupPart& whole, Method method) {
  constexpr std::int64_t kMostPending = 1 << 16;
  const auto takes = [&](const QuickOps& ops) { return whole.end < EndOfQuickElements(ops.kind, job_.spec.dtype); };
  if (method == Method::kQuick && !std::all_of(quick_.begin(), quick_.end(), takes)) {
    const absl::MutexLock lock(&mutex_);
    left_.push_back(output);
    return absl::OkStatus();
  }
  const bool exact = ExactAccumulatorsFor(job_.spec) != 0;
  const std::int64_t state_bytes = method == Method::kQuick ? quick_.size() * sizeof(GroupPartFold)
                                                            : sizeof(Partial) + (exact ? sizeof(ExactDigits) : 0);
  const std::int64_t room = lane_.chunk_bytes_ / state_bytes;  // states of a batch; parts take less
  constexpr std::int64_t kBlocks = 16;                         // that each multiprocessor should have
  const std::int64_t wanted = kBlocks * lane_.multiprocessors_;
  const std::int64_t least = method == Method::kQuick ? 1 << 12 : 1 << 10;  // positions that are worth one
  const std::int64_t size = std::max(least, (job_.spec.count + wanted - 1) / wanted);
  const std::int64_t positions = whole.end;
  const std::int64_t parts = std::min((positions + size - 1) / size, room);
  if (std::ssize(parts_) + parts > room || std::ssize(pending_) == kMostPending) {
    if (absl::Status status = AnswerPending(method); !status.ok()) return status;
  }
  pending_.push_back({output, std::ssize(parts_), parts});
  if (parts == 0) return absl::OkStatus();
  GroupPart part = whole;
  const std::int64_t step = (positions + parts - 1) / parts;
  for (std::int64_t i = 0; i < parts; ++i) {
    part.begin = std::min(positions, i * step);
    part.end = std::min(positions, part.begin + step);
    parts_.push_back(part);
  }
  return absl::OkStatus();
}

absl::Status CudaLane::GroupReduction::AnswerPending(Method method) {
  if (pending_.empty()) return absl::OkStatus();
  if (absl::Status why = WhyStop(job_); !why.ok()) return why;
  if (!parts_.empty()) {
    const Slot& up = part_slot();
    const std::size_t bytes = parts_.size() * sizeof(GroupPart);
    std::memcpy(up.pinned, parts_.data(), bytes);
    REDUCED_RETURN_IF_CUDA_ERROR(
        cudaMemcpyAsync(up.device, up.pinned, bytes, cudaMemcpyHostToDevice, lane_.kernel_stream_));
    const absl::Status status = method == Method::kQuick ? FoldQuickly() : FoldToStates();
    if (!status.ok()) return status;
  }
  lane_.copiers_.execute([&] {
    tbb::parallel_for(std::size_t{0}, pending_.size(), [&](std::size_t i) {
      const Pending& pending = pending_[i];
      if (method == Method::kStates) return Store(pending.output, StateOf(pending));
      if (AnswerFromFolds(pending)) return;
      const absl::MutexLock lock(&mutex_);
      left_.push_back(pending.output);
    });
  });
  pending_.clear();
  parts_.clear();
  return absl::OkStatus();
}

absl::Status CudaLane::GroupReduction::FoldToStates() {
  const Slot& slot = state_slot();
  const auto count = static_cast<std::int64_t>(parts_.size());
  const std::int64_t partial_bytes = count * static_cast<std::int64_t>(sizeof(Partial));
  GroupStatesLaunch launch{.dtype = job_.spec.dtype,
                           .accumulators = AccumulatorsFor(job_.spec),
                           .exact_accumulators = ExactAccumulatorsFor(job_.spec),
                           .omit_nan = job_.spec.nan_policy == NanPolicy::kOmit,
                           .array = array_,
                           .parts = reinterpret_cast<const GroupPart*>(part_slot().device),
                           .count = static_cast<int>(count),
                           .partials = reinterpret_cast<Partial*>(slot.device),
                           .stream = lane_.kernel_stream_};
  std::int64_t bytes = partial_bytes;
  if (launch.exact_accumulators != 0) {
    launch.digits = reinterpret_cast<ExactDigits*>(slot.device + partial_bytes);
    bytes += count * static_cast<std::int64_t>(sizeof(ExactDigits));
  }
  return Launch([&] { return LaunchGroupStates(launch); }, bytes);
}

// From the states of its parts in the pinned memory of state_slot().
State CudaLane::GroupReduction::StateOf(const Pending& pending) const {
  const Slot& slot = state_slot();
  const auto* const partials = reinterpret_cast<const Partial*>(slot.pinned);
  const auto* const digits = reinterpret_cast<const ExactDigits*>(slot.pinned + parts_.size() * sizeof(Partial));
  State state;
  if (ExactAccumulatorsFor(job_.spec) != 0) state.exact = std::make_unique<ExactSums>();
  for (std::int64_t part = pending.first; part < pending.first + pending.parts; ++part) {
    Combine(partials[part], &state.partial);
    if (state.exact != nullptr) Merge(digits[part], state.exact.get());
  }
  return state;
}

void CudaLane::GroupReduction::Store(std::int64_t output, State state) {
  if (!answers_.empty()) {
    ReduceSpec one = job_.spec;
    one.count = state.partial.count;
    errors_.Store(one, state, answers_, output);
  }
  std::vector<State>* const states = job_.states;
  if (states != nullptr) (*states)[static_cast<std::size_t>(output)] = std::move(state);
}

absl::Status CudaLane::GroupReduction::error() {
  return errors_.Finish(within_.whole != nullptr ? within_.whole->names_ : names_, within_.output);
}

absl::Status CudaLane::ReduceGroups(Job& job, CudaArrays& arrays, ArrayBudget& scratch, Timing* timing) {
  const StageRange range("reduce groups");
  // The same bits, however an output is answered.
  if (job.states == nullptr) job.spec.precision = Precision::kExact;
  GroupReduction reduction(*this, job, arrays, scratch, timing, {});
  absl::Status status = reduction.Run();
  // What is in flight uses memory of the reduction.
  if (!status.ok()) Abandon();
  if (reduction.LacksRoom(status) && job.array.space != MemorySpace::kDevice) {
    status = reduction.RunInPieces(status);
    if (!status.ok()) Abandon();
  }
  return status;
}

}  // namespace reduced
