// CudaLane::ReduceDistributions: the ops about distributions.
//
// Long outputs, whose elements are neighbours, are answered by kernels, one after the other (whole_array.h); of other
// outputs quantiles are by kernels for many of them, whatever the partition (quantiles.cc), and sums of pairs along
// axes (pair_slices.h); the matrix ops have a kernel (column_products.h). What has no kernel, as all ops but
// fingerprint of floats of 8 bits, is answered on the host, by the CPU engine's functions: the array, and what says
// which elements belong to which output, are copied to host memory, which is counted.
#include "kernels/cpu/distributions.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/arrays.h"
#include "kernels/cpu/groups.h"
#include "kernels/cpu/side_arrays.h"
#include "kernels/cpu/slices.h"
#include "kernels/cuda/group_reduction.h"
#include "kernels/cuda/lane.h"
#include "kernels/cuda/stage_range.h"
#include "kernels/cuda/whole_array.h"
#include "kernels/engine/output_errors.h"

namespace reduced {
namespace {

// The host answers shorter outputs sooner than a kernel is launched for each pass, and so all outputs of an array that
// is no longer.
constexpr std::int64_t kLongOutputBytes = std::int64_t{64} << 10;

// The places of a job's answers, for jobs of some of its ops that are done after each other. The job is asked once; all
// of them must find the same outputs.
class SharedPlaces {
 public:
  explicit SharedPlaces(const Job& job) : job_(job) {}

  // Does the job of those ops.
  absl::Status Reduce(const std::vector<std::size_t>& ops, absl::FunctionRef<absl::Status(Job&)> reduce) {
    if (ops.empty()) return absl::OkStatus();
    Job some = job_;
    some.spec.ops.clear();
    for (const std::size_t op : ops) some.spec.ops.push_back(job_.spec.ops[op]);
    some.place = [&](std::int64_t outputs, std::int64_t groups, const std::byte* keys) {
      return PlacesOf(ops, outputs, groups, keys);
    };
    std::vector<absl::Status> errors;
    if (job_.errors != nullptr) some.errors = &errors;
    const absl::Status status = reduce(some);
    if (job_.errors == nullptr || !status.ok()) return status;
    job_.errors->resize(job_.spec.ops.size());
    for (std::size_t i = 0; i < errors.size(); ++i) (*job_.errors)[ops[i]] = errors[i];
    return status;
  }

 private:
  absl::StatusOr<std::vector<std::byte*>> PlacesOf(const std::vector<std::size_t>& ops, std::int64_t outputs,
                                                   std::int64_t groups, const std::byte* keys) {
    const std::int64_t key_bytes = keys == nullptr ? 0 : groups * RowOf(job_.partition->keys->keys.dtype).bytes;
    const std::string_view bytes(reinterpret_cast<const char*>(keys), static_cast<std::size_t>(key_bytes));
    const std::size_t found = absl::HashOf(outputs, groups, bytes);
    if (!is_placed_) {
      absl::StatusOr<std::vector<std::byte*>> all = job_.place(outputs, groups, keys);
      if (!all.ok()) return all.status();
      all_ = *std::move(all);
      found_ = found;
      is_placed_ = true;
    }
    if (found != found_) {
      return absl::AbortedError("keys: got other ones the second time; allowed: keys that nobody changes");
    }
    std::vector<std::byte*> places;
    for (const std::size_t op : ops) {
      if (!all_.empty()) places.push_back(all_[op]);
    }
    return places;
  }

  const Job& job_;
  bool is_placed_ = false;
  std::size_t found_ = 0;  // a hash of what says which outputs there are
  std::vector<std::byte*> all_;
};

}  // namespace

bool CudaLane::HasLongOutputs(const Job& job) {
  const Layout& layout = job.partition->layout;
  const bool neighbours = job.partition->uniform() && layout.run() >= layout.elements && layout.outputs > 0;
  return neighbours && layout.elements * RowOf(job.spec.dtype).bytes >= kLongOutputBytes;
}

absl::Status CudaLane::ReduceDistributions(const Job& job, CudaArrays& arrays, ArrayBudget& scratch, Timing* timing) {
  const StageRange range("reduce distributions");
  const Layout& layout = job.partition->layout;
  const bool whole = HasLongOutputs(job);
  const bool one_by_one = whole && layout.elements > LongestOfMany(job.spec.count, multiprocessors_);
  const bool at_once = job.states == nullptr && job.spec.count * RowOf(job.spec.dtype).bytes >= kLongOutputBytes;
  // Ops that are not answered for all outputs at once.
  std::vector<std::size_t> others(job.spec.ops.size());
  std::iota(others.begin(), others.end(), std::size_t{0});
  SharedPlaces places(job);
  absl::Status status;
  const auto answer_at_once = [&](absl::FunctionRef<bool(const OpCall&)> takes,
                                  absl::FunctionRef<absl::Status(Job&)> reduce) {
    if (!at_once || !status.ok()) return;
    const auto end =
        std::stable_partition(others.begin(), others.end(), [&](std::size_t op) { return !takes(job.spec.ops[op]); });
    const std::vector<std::size_t> taken(end, others.end());
    others.erase(end, others.end());
    status = places.Reduce(taken, reduce);
    if (!absl::IsResourceExhausted(status) && !absl::IsUnimplemented(status)) return;
    others.insert(others.end(), taken.begin(), taken.end());  // the host may have room, or the folds
    std::sort(others.begin(), others.end());
    status = absl::OkStatus();
  };
  answer_at_once([&](const OpCall& call) { return IsQuantile(call) && !one_by_one && HasKernels(job.spec.dtype); },
                 [&](Job& some) {
                   GroupReduction reduction(*this, some, arrays, scratch, timing, {});
                   absl::Status answered = reduction.Run();
                   if (!answered.ok()) Abandon();  // what is in flight uses memory of the reduction
                   return answered;
                 });
  answer_at_once([&](const OpCall& call) { return AnswersPairsAlongAxes(job, call, one_by_one); },
                 [&](Job& some) { return ReducePairsAlongAxes(some, arrays, timing); });
  answer_at_once([&](const OpCall& call) { return AnswersMatrix(job, call); },
                 [&](Job& some) { return ReduceMatrices(some, arrays, timing); });
  if (!status.ok()) return status;
  status = places.Reduce(others, [&](Job& some) {
    if (AnsweredByAccumulators(some.spec)) return ReduceFromStates(some, arrays, scratch, timing);
    const std::vector<OpCall>& ops = some.spec.ops;
    const auto answers = [&](const OpCall& call) { return WholeArray::Answers(some, call); };
    const auto saves = [&](const OpCall& call) { return WholeArray::HasState(call.op) && answers(call); };
    const bool by_kernels = whole && (some.states == nullptr ? std::any_of(ops.begin(), ops.end(), answers)
                                                             : std::all_of(ops.begin(), ops.end(), saves));
    return by_kernels ? ReduceWholeArrays(some, arrays, scratch, timing) : ReduceOnHost(some, arrays, scratch, timing);
  });
  if (!status.ok()) Abandon();
  return status;
}

// Each output is an array of its own. Ops without kernels are left to others; where states are wanted, all ops are if
// one is.
absl::Status CudaLane::ReduceWholeArrays(const Job& job, CudaArrays& arrays, ArrayBudget& scratch, Timing* timing) {
  const Layout& layout = job.partition->layout;
  const std::int64_t width = RowOf(job.spec.dtype).bytes;
  std::unique_ptr<ArrayMemory> memory;
  const absl::StatusOr<const std::byte*> data = HoldArray(job, arrays, &memory, timing);
  if (absl::IsResourceExhausted(data.status())) return ReduceOnHost(job, arrays, scratch, timing);
  if (!data.ok()) return data.status();
  const absl::StatusOr<std::vector<std::byte*>> answers = job.place(layout.outputs, /*groups=*/1, /*keys=*/nullptr);
  if (!answers.ok()) return answers.status();

  if (job.states != nullptr) {
    State none;
    none.partial.count = layout.elements;
    none.entries.resize(job.spec.ops.size());
    job.states->assign(static_cast<std::size_t>(layout.outputs), none);
  }
  std::vector<std::unique_ptr<ArrayMemory>> others;
  std::map<OtherOperand, const std::byte*> held;  // in `others`, or where they were; null: not yet
  Job rest = job;
  rest.spec.ops.clear();
  std::vector<std::size_t> left;  // of all ops, those of `rest`
  std::vector<absl::Status> errors;
  OutputErrors op_errors(job.spec.ops.size(), job.errors == nullptr ? nullptr : &errors);
  std::optional<WholeArray> array(std::in_place, *this, job, arrays, timing);
  for (std::size_t i = 0; i < job.spec.ops.size(); ++i) {
    const OpCall& call = job.spec.ops[i];
    bool answered = WholeArray::Answers(job, call);
    const std::byte*& other = held[OtherOf(call.op)];
    if (answered && other == nullptr && OtherOf(call.op) != OtherOperand::kNone) {
      const absl::StatusOr<const std::byte*> there = HoldOther(job, OtherOf(job, call).array, arrays, &others, timing);
      answered = !absl::IsResourceExhausted(there.status());
      if (answered && !there.ok()) return there.status();
      if (answered) other = *there;
    }
    const std::int64_t bytes = AnswerElements(call) * RowOf(ResultDType(call, job.spec.dtype)).bytes;
    for (std::int64_t output = 0; answered && output < layout.outputs && !op_errors.Ended(output); ++output) {
      absl::Status op_error;
      const std::int64_t begin = layout.Start(output) * width;
      Entries* const state =
          job.states == nullptr ? nullptr : &(*job.states)[static_cast<std::size_t>(output)].entries[i];
      std::byte* const to = answers->empty() ? nullptr : (*answers)[i] + output * bytes;
      const absl::Status status = array->Answer(call, *data + begin, other == nullptr ? nullptr : other + begin,
                                                layout.elements, to, state, &op_error);
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
  if (job.states != nullptr) {
    rest.spec.ops = job.spec.ops;
    left.resize(job.spec.ops.size());
    std::iota(left.begin(), left.end(), std::size_t{0});
  }

  memory.reset();  // the rest may need the room
  array.reset();
  others.clear();
  rest.place = [&](std::int64_t, std::int64_t, const std::byte*) {
    std::vector<std::byte*> places;
    for (const std::size_t op : left) {
      if (!answers->empty()) places.push_back((*answers)[op]);
    }
    return places;
  };
  std::vector<absl::Status> rest_errors;
  if (job.errors != nullptr) rest.errors = &rest_errors;
  status = AnsweredByAccumulators(rest.spec) && HasKernels(rest.spec.dtype)
               ? ReduceFromStates(rest, arrays, scratch, timing)
               : ReduceOnHost(rest, arrays, scratch, timing);
  for (std::size_t i = 0; i < rest_errors.size(); ++i) (*job.errors)[left[i]] = rest_errors[i];
  return status;
}

absl::StatusOr<const std::byte*> CudaLane::HoldOther(const Job& job, const SideArray& other, CudaArrays& arrays,
                                                     std::vector<std::unique_ptr<ArrayMemory>>* memory,
                                                     Timing* timing) {
  if (absl::Status ready = AwaitReady(job, other.array); !ready.ok()) return ready;
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
    if (absl::Status ready = AwaitReady(job, *array); !ready.ok()) return ready;
    absl::StatusOr<std::unique_ptr<ArrayMemory>> room = AllocateCpuArray(bytes, scratch, job.caller);
    if (!room.ok()) {
      return absl::Status(room.status().code(), absl::StrCat("a copy of the array in host memory, for what has "
                                                             "no kernel: ",
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
  const Stopwatch since_start;
  const auto why_stop = [&job] { return WhyStop(job); };
  const GroupingContext context{scratch, copiers_, why_stop};
  absl::StatusOr<LoadedPartition> loaded = LoadPartition(host, *data, context);
  if (!loaded.ok()) return loaded.status();
  const auto by_accumulators = [&](const Job& some) {
    if (!HasKernels(some.spec.dtype)) {
      return some.partition->uniform() ? reduced::ReduceSlices(some, *data, &copiers_)
                                       : reduced::ReduceGroups(some, *data, context, &*loaded);
    }
    Job states = some;
    states.array = job.array;
    states.partition = job.partition;
    return ReduceFromStates(states, arrays, scratch, timing);
  };
  status = AnsweredByAccumulators(host.spec) ? by_accumulators(host)
                                             : reduced::ReduceDistributions(host, context, &*loaded, by_accumulators);
  timing->kernel_us = timing->kernel_us.value_or(0) + since_start.micros();
  return status;
}

}  // namespace reduced
