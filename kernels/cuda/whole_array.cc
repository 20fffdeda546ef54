#include "kernels/cuda/whole_array.h"

#include <utility>

#include "kernels/cuda/histogram.h"
#include "kernels/cuda/stage_range.h"
#include "kernels/cuda/status.h"
#include "kernels/exact/terms.h"
#include "kernels/folds/elements.h"
#include "kernels/folds/fold.h"
#include "kernels/folds/histogram_bins.h"
#include "kernels/system/failpoint.h"

namespace reduced {

bool CudaLane::WholeArray::Answers(const Job& job, const OpCall& call) {
  if (call.op == Op::kFingerprint) return AnswersFingerprint(job, call);
  if (OtherOf(call.op) != OtherOperand::kNone) return AnswersPairs(job, call);
  if (IsFromCounts(job, call)) return true;
  if (call.op == Op::kDistinctExact) return false;
  return !HasAccumulator(call) && TermsOf(call.op).empty();
}

absl::Status CudaLane::WholeArray::Answer(const OpCall& call, const std::byte* data, const std::byte* other,
                                          std::int64_t count, std::byte* answers, Entries* state,
                                          absl::Status* op_error) {
  memory_.clear();
  if (absl::Status why = WhyStop(job_); !why.ok()) return why;
  if (HasState(call.op)) {
    absl::StatusOr<Entries> found = StateOf(call, data, other, count);
    if (!found.ok()) return found.status();
    const FoldLimits limits = UncountedLimits();
    absl::Status status;
    if (answers != nullptr) status = AnswerFromState(*found, *MakeDistributionFold(call, job_.spec, limits), answers);
    if (state != nullptr) *state = *std::move(found);
    return status;
  }
  if (IsFromCounts(job_, call)) return FromCounts(call, data, count, answers, op_error);
  switch (call.op) {
    case Op::kHistogram:
      return Histogram(call, data, count, answers);
    case Op::kMedian:
    case Op::kQuantile:
      return Quantiles(call, data, count, answers, op_error);
    case Op::kTopK:
    case Op::kBottomK:
    case Op::kArgTopK:
    case Op::kArgBottomK:
      return Top(call, data, count, answers, op_error);
    default:
      return Distinct(data, count, answers);
  }
}

absl::StatusOr<Entries> CudaLane::WholeArray::StateOf(const OpCall& call, const std::byte* data, const std::byte* other,
                                                      std::int64_t count) {
  if (call.op == Op::kFingerprint) return Fingerprint(call, data, count);
  if (call.op == Op::kCompare || call.op == Op::kDistanceMax) return Compare(call, data, other, count);
  return Pairs(call, data, other, count);
}

absl::StatusOr<std::byte*> CudaLane::WholeArray::Allocate(std::int64_t bytes, std::unique_ptr<ArrayMemory>* memory) {
  absl::StatusOr<std::unique_ptr<ArrayMemory>> room = arrays_.Allocate(bytes);
  if (!room.ok()) return room.status();
  *memory = *std::move(room);
  return static_cast<std::byte*>(const_cast<void*>((*memory)->array().data));
}

absl::Status CudaLane::WholeArray::Run(absl::FunctionRef<cudaError_t()> launches, const std::byte* from,
                                       std::int64_t bytes, const std::vector<Region>& regions) {
  if (absl::Status why = WhyStop(job_); !why.ok()) return why;
  Slot& slot = lane_.slots_[kSlots - 1];
  cudaGetLastError();  // launches would report what earlier calls of this thread failed with
  REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.kernel_begin, lane_.kernel_stream_));
  const cudaError_t error = FAILPOINT("cuda/launch") ? cudaErrorLaunchOutOfResources : launches();
  if (error != cudaSuccess) return DeviceError(error, "launching a pass over an array");
  REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.kernel_end, lane_.kernel_stream_));
  if (absl::Status status = lane_.CopyToHost(job_, from, bytes, regions, timing_); !status.ok()) return status;
  return AddTime(slot.kernel_begin, slot.kernel_end, &Timing::kernel_us, timing_);
}

absl::Status CudaLane::WholeArray::Histogram(const OpCall& call, const std::byte* data, std::int64_t count,
                                             std::byte* answers) {
  return VisitDType(job_.spec.dtype, [&]<class T>(std::type_identity<T>) -> absl::Status {
    using Value = typename BinFinder<T>::Value;
    const HistogramBins<T> bins(call.given().edges);
    BinFinder<T> finder = bins.finder();
    const std::int64_t entries = finder.used + 1;
    std::vector<std::uint64_t> counts(static_cast<std::size_t>(entries));
    if (finder.used > 0) {
      const std::int64_t counts_bytes = entries * 8, lowest_bytes = entries * std::int64_t{sizeof(Value)};
      const absl::StatusOr<std::byte*> room = Allocate(counts_bytes + lowest_bytes, &memory_.emplace_back());
      if (!room.ok()) return room.status();
      const Value* const lowest = std::exchange(finder.lowest, reinterpret_cast<const Value*>(*room + counts_bytes));
      const HistogramLaunch launch{.dtype = job_.spec.dtype,
                                   .data = data,
                                   .count = count,
                                   .finder = &finder,
                                   .bins = finder.used,
                                   .counts = reinterpret_cast<unsigned long long*>(*room),
                                   .shared_bytes = lane_.shared_bytes_,
                                   .multiprocessors = lane_.multiprocessors_,
                                   .stream = lane_.kernel_stream_};
      const auto launches = [&] {
        cudaError_t error = cudaMemsetAsync(*room, 0, static_cast<std::size_t>(counts_bytes), lane_.kernel_stream_);
        if (error == cudaSuccess) {
          error = cudaMemcpyAsync(*room + counts_bytes, lowest, static_cast<std::size_t>(lowest_bytes),
                                  cudaMemcpyHostToDevice, lane_.kernel_stream_);
        }
        return error == cudaSuccess ? LaunchHistogram(launch) : error;
      };
      const absl::Status status =
          Run(launches, *room, counts_bytes, {{0, counts_bytes, reinterpret_cast<std::byte*>(counts.data())}});
      if (!status.ok()) return status;
    }
    for (std::int64_t bin = 0; bin < bins.bins(); ++bin) StoreAt(bins.In(bin, counts.data()), bin, answers);
    return absl::OkStatus();
  });
}

}  // namespace reduced
