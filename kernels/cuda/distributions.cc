// CudaLane::ReduceDistributions: the ops about distributions.
//
// Long outputs, whose elements are neighbours, are answered by kernels, one after the other (whole_array.h). What has
// no kernel is answered on the host, by the CPU engine's folds: the array, and what says which elements belong to which
// output, are copied to host memory, which is counted.
#include "kernels/cpu/distributions.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/arrays.h"
#include "kernels/cpu/side_arrays.h"
#include "kernels/cuda/lane.h"
#include "kernels/cuda/stage_range.h"
#include "kernels/cuda/whole_array.h"
#include "kernels/engine/output_errors.h"

namespace reduced {
namespace {

// Shorter ones are sooner answered by the host than a kernel is launched for each of its passes.
constexpr std::int64_t kLongOutputBytes = std::int64_t{64} << 10;

}  // namespace

absl::Status CudaLane::ReduceDistributions(const Job& job, CudaArrays& arrays, ArrayBudget& scratch, Timing* timing) {
  const StageRange range("reduce distributions");
  const Layout& layout = job.partition->layout;
  const bool is_long = layout.elements * RowOf(job.spec.dtype).bytes >= kLongOutputBytes;
  const bool whole = job.partition->uniform() && layout.run() >= layout.elements && layout.outputs > 0 && is_long;
  const auto answers = [&](const OpCall& call) { return WholeArray::Answers(job, call); };
  const bool by_kernels =
      job.states == nullptr && whole && std::any_of(job.spec.ops.begin(), job.spec.ops.end(), answers);
  absl::Status status =
      by_kernels ? ReduceWholeArrays(job, arrays, scratch, timing) : ReduceOnHost(job, arrays, scratch, timing);
  if (!status.ok()) Abandon();
  return status;
}

// Each output is an array of its own. Ops without kernels are left to others.
absl::Status CudaLane::ReduceWholeArrays(const Job& job, CudaArrays& arrays, ArrayBudget& scratch, Timing* timing) {
  const Layout& layout = job.partition->layout;
  const std::int64_t width = RowOf(job.spec.dtype).bytes;
  std::unique_ptr<ArrayMemory> memory;
  const absl::StatusOr<const std::byte*> data = HoldArray(job, arrays, &memory, timing);
  if (absl::IsResourceExhausted(data.status())) return ReduceOnHost(job, arrays, scratch, timing);
  if (!data.ok()) return data.status();
  const absl::StatusOr<std::vector<std::byte*>> answers = job.place(layout.outputs, /*groups=*/1, /*keys=*/nullptr);
  if (!answers.ok()) return answers.status();

  std::vector<std::unique_ptr<ArrayMemory>> others;
  Job rest = job;
  rest.spec.ops.clear();
  std::vector<std::size_t> left;  // of all ops, those of `rest`
  std::vector<absl::Status> errors;
  OutputErrors op_errors(job.spec.ops.size(), job.errors == nullptr ? nullptr : &errors);
  for (std::size_t i = 0; i < job.spec.ops.size(); ++i) {
    WholeArray array(*this, job, arrays, timing);
    const OpCall& call = job.spec.ops[i];
    bool answered = WholeArray::Answers(job, call);
    const std::byte* other = nullptr;
    if (answered && OtherOf(call.op) != OtherOperand::kNone) {
      const absl::StatusOr<const std::byte*> held = HoldOther(job, OtherOf(job, call).array, arrays, &others, timing);
      answered = !absl::IsResourceExhausted(held.status());
      if (answered && !held.ok()) return held.status();
      if (answered) other = *held;
    }
    const std::int64_t bytes = AnswerElements(call) * RowOf(ResultDType(call, job.spec.dtype)).bytes;
    for (std::int64_t output = 0; answered && output < layout.outputs && !op_errors.Ended(output); ++output) {
      absl::Status op_error;
      const std::int64_t begin = layout.Start(output) * width;
      const absl::Status status = array.Answer(call, *data + begin, other == nullptr ? nullptr : other + begin,
                                               layout.elements, (*answers)[i] + output * bytes, &op_error);
      if (!status.ok()) Abandon();  // what is in flight uses memory of the answer
      // The host may have what the device has no memory or no kernel for.
      answered = !absl::IsResourceExhausted(status) && !absl::IsUnimplemented(status);
      if (answered && !status.ok()) return status;
      if (!op_error.ok()) op_errors.Fail(i, output, op_error);
    }
    if (answered) continue;
    left.push_back(i);
    rest.spec.ops.push_back(call);
  }
  absl::Status status = op_errors.Finish(layout);
  if (job.errors != nullptr) {
    errors.resize(job.spec.ops.size());
    *job.errors = errors;
  }
  if (!status.ok() || left.empty()) return status;

  memory.reset();  // the rest may need the room
  others.clear();
  rest.place = [&](std::int64_t, std::int64_t, const std::byte*) {
    std::vector<std::byte*> places;
    for (const std::size_t op : left) places.push_back((*answers)[op]);
    return places;
  };
  std::vector<absl::Status> rest_errors;
  if (job.errors != nullptr) rest.errors = &rest_errors;
  status = AnsweredByAccumulators(rest.spec) ? ReduceFromStates(rest, arrays, scratch, timing)
                                             : ReduceOnHost(rest, arrays, scratch, timing);
  for (std::size_t i = 0; i < rest_errors.size(); ++i) (*job.errors)[left[i]] = rest_errors[i];
  return status;
}

absl::StatusOr<const std::byte*> CudaLane::HoldOther(const Job& job, const SideArray& other, CudaArrays& arrays,
                                                     std::vector<std::unique_ptr<ArrayMemory>>* memory,
                                                     Timing* timing) {
  const auto* const data = static_cast<const std::byte*>(other.array.data);
  const std::int64_t width = RowOf(other.dtype).bytes;
  if (other.array.space == MemorySpace::kDevice && reinterpret_cast<std::uintptr_t>(data) % width == 0) return data;
  absl::StatusOr<std::unique_ptr<ArrayMemory>> room = arrays.Allocate(other.bytes());
  if (!room.ok()) return room.status();
  memory->push_back(*std::move(room));
  auto* const to = static_cast<std::byte*>(const_cast<void*>(memory->back()->array().data));
  if (absl::Status status = CopyToDevice(job, {other.array}, other.bytes(), to, timing); !status.ok()) return status;
  return to;
}

absl::Status CudaLane::ReduceOnHost(const Job& job, CudaArrays& arrays, ArrayBudget& scratch, Timing* timing) {
  if (const absl::Status status = AwaitReady(job); !status.ok()) return status;
  std::vector<std::unique_ptr<ArrayMemory>> memory;
  const auto bring = [&](std::int64_t bytes, ArrayRef* array) -> absl::Status {
    if (array->space != MemorySpace::kDevice) return absl::OkStatus();
    absl::StatusOr<std::unique_ptr<ArrayMemory>> room = AllocateCpuArray(bytes, scratch, job.caller);
    if (!room.ok()) {
      return absl::Status(room.status().code(), absl::StrCat("a copy of the array in host memory, for ops without "
                                                             "a kernel: ",
                                                             std::string(room.status().message())));
    }
    memory.push_back(*std::move(room));
    auto* const to = static_cast<std::byte*>(const_cast<void*>(memory.back()->array().data));
    const auto* const from = static_cast<const std::byte*>(array->data);
    *array = memory.back()->array();
    return CopyToHost(job, from, bytes, {{0, bytes, to}}, timing);
  };
  Job host = job;
  absl::Status status = bring(job.spec.count * RowOf(job.spec.dtype).bytes, &host.array);
  for (const auto& [field, side] : SidesOf(host)) {
    if (status.ok()) status = bring(side->bytes(), &side->array);
  }
  if (!status.ok()) return status;
  const SideArray whole{job.spec.dtype, job.spec.count, host.array};
  const absl::StatusOr<const std::byte*> data =
      SideInMemory(whole, job, scratch, &memory);  // a file may have to be read
  if (!data.ok()) return data.status();
  const auto by_accumulators = [&](const Job& some) {
    Job states = some;
    states.array = job.array;
    states.partition = job.partition;
    return ReduceFromStates(states, arrays, scratch, timing);
  };
  const Stopwatch since_start;
  const auto why_stop = [&job] { return WhyStop(job); };
  const GroupingContext context{scratch, copiers_, why_stop};
  absl::StatusOr<LoadedPartition> loaded = LoadPartition(host, *data, context);
  if (!loaded.ok()) return loaded.status();
  status = reduced::ReduceDistributions(host, context, &*loaded, by_accumulators);
  timing->kernel_us = timing->kernel_us.value_or(0) + since_start.micros();
  return status;
}

}  // namespace reduced
