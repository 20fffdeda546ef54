#include "kernels/cpu/distributions.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kernels/cpu/folding.h"
#include "kernels/cpu/for_ranges.h"
#include "kernels/cpu/output_elements.h"
#include "kernels/cpu/task_stop.h"
#include "kernels/engine/output_errors.h"
#include "kernels/folds/fold.h"
#include "kernels/folds/fold_array.h"
#include "oneapi/tbb/blocked_range.h"
#include "oneapi/tbb/parallel_for.h"

namespace reduced {
namespace {

// Longer outputs are cut into blocks.
constexpr std::int64_t kLongOutputBytes = 4 * kBlockBytes;

// An op, and where its answers go.
struct Asked {
  OpCall call;
  std::size_t other = 0;          // which of the sources its other operand is, or kPositions; 0: it has none
  std::byte* answers = nullptr;   // null: they are not wanted
  std::int64_t output_bytes = 0;  // of the answer for one output
};

// What a fold of an output is for. A quantile has one fold that answers and another one for its state.
struct Role {
  std::size_t asked = 0;
  bool answers = false;
  bool saves = false;
};

std::vector<Role> RolesOf(const std::vector<Asked>& asked, bool states) {
  std::vector<Role> roles;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const bool answers = asked[i].answers != nullptr, apart = IsQuantile(asked[i].call.op);
    if (answers || (states && !apart)) roles.push_back({i, answers, states && !apart});
    if (states && apart) roles.push_back({i, false, true});
  }
  return roles;
}

using Folds = std::vector<std::unique_ptr<DistributionFold>>;

// A fold that elements are added to.
struct Adds {
  DistributionFold* fold = nullptr;
  std::size_t other = 0;  // as Asked has it
};

class DistributionReduction {
 public:
  DistributionReduction(const Job& job, const LoadedPartition& loaded, ArrayBudget& scratch, std::vector<Asked> asked,
                        std::vector<absl::Status>* op_errors)
      : job_(job),
        asked_(std::move(asked)),
        roles_(RolesOf(asked_, job.states != nullptr)),
        limits_{.take = [&scratch, &job](std::int64_t bytes) { return scratch.Take(bytes, job.caller); },
                .give = [&scratch, &job](std::int64_t bytes) { scratch.Give(bytes, job.caller); },
                .why_stop = [&job] { return WhyStop(job); }},
        width_(RowOf(job.spec.dtype).bytes),
        elements_(*job.partition, loaded, loaded.sources.size(),
                  std::any_of(asked_.begin(), asked_.end(),
                              [](const Asked& each) { return each.other == OutputElements::kPositions; })),
        errors_(asked_.size(), op_errors),
        stop_(job) {
    // Finding the index of an element that a mask keeps takes a walk through its run.
    const std::int64_t answer = elements_.mask() ? OutputElements::kRun / 8 : 8;
    for (const Asked& each : asked_) output_work_ += answer * AnswerElements(each.call);
  }

  ~DistributionReduction() { limits_.give(saved_bytes_); }

  // How many outputs make a task.
  std::int64_t task_outputs(std::int64_t outputs, int threads) const {
    constexpr std::int64_t kOutputBytes = 4096;
    const std::int64_t bytes = job_.spec.count * width_ / std::max<std::int64_t>(outputs, 1);
    return std::min(kBlockBytes / (bytes + kOutputBytes), outputs / (4 * threads));
  }

  // Answers outputs [begin, end), unless the reduction has stopped.
  void Run(std::int64_t begin, std::int64_t end) {
    Folds folds = TakeFolds();
    std::int64_t work = kBlockBytes;  // since the last look at the deadline, as bytes that one op reads
    for (std::int64_t number = begin; number < end; ++number) {
      if (errors_.Ended(number)) break;
      if (work >= kBlockBytes && stop_.Due()) return;
      if (work >= kBlockBytes) work = 0;
      const Output output = elements_.Find(number, [this] { return stop_.Due(); });
      if (stop_.requested()) return;
      AddAll(output, folds);
      if (stop_.requested()) return;
      Finish(output, folds);
      if (stop_.requested()) return;
      work += output_work_ + output.positions * width_ * std::ssize(folds);
    }
    const absl::MutexLock lock(&mutex_);
    idle_.push_back(std::move(folds));
  }

  // Whether the answers are not wanted any more.
  bool stopped() const { return stop_.requested(); }

  absl::Status status() {
    const absl::Status why = stop_.why();
    return why.ok() ? errors_.Finish(elements_.Names()) : why;
  }

 private:
  // Folds of the ops, which keep their memory from task to task.
  Folds TakeFolds() {
    Folds folds;
    const absl::MutexLock lock(&mutex_);
    if (!idle_.empty()) {
      folds = std::move(idle_.back());
      idle_.pop_back();
      return folds;
    }
    for (const Role& role : roles_) {
      const OpCall& call = asked_[role.asked].call;
      folds.push_back(role.saves ? MakeStateFold(call, job_.spec, limits_)
                                 : MakeDistributionFold(call, job_.spec, limits_));
    }
    return folds;
  }

  // Adds the elements of an output to its folds, until no fold asks for another pass.
  void AddAll(const Output& output, const Folds& folds) {
    std::vector<Adds> active;
    for (std::size_t i = 0; i < folds.size(); ++i) {
      stop_.Request(folds[i]->Begin(output.count));
      if (stop_.requested()) return;
      AddSample(output, *folds[i]);
      active.push_back({folds[i].get(), asked_[roles_[i].asked].other});
    }
    while (!active.empty() && !stop_.requested()) {
      AddOnce(output, active);
      if (stop_.requested()) return;
      std::erase_if(active, [this](const Adds& each) {
        const absl::StatusOr<bool> again = each.fold->NextPass();
        stop_.Request(again.status());
        return !again.ok() || !*again;
      });
    }
  }

  // Shows a fold the sample that it wants, if it costs little: short runs of neighbours at places that are spread by
  // the golden ratio, so that no period of the data falls in step with them.
  void AddSample(const Output& output, DistributionFold& fold) {
    constexpr std::int64_t kRun = 16;
    constexpr std::uint64_t kGoldenRatio = 0x9e3779b97f4a7c15;  // its fraction, in units of 2^-64
    const std::int64_t wanted = fold.SampleElements();
    FoldArray<std::byte> sample(limits_);
    if (wanted == 0 || !elements_.in_place() || !sample.Resize(wanted * width_).ok()) return;
    std::uint64_t place = 0;
    for (std::int64_t run = 0; run < wanted / kRun; ++run) {
      place += kGoldenRatio;
      const auto first = static_cast<std::int64_t>(
          static_cast<unsigned __int128>(place) * static_cast<std::uint64_t>(output.count - kRun + 1) >> 64);
      elements_.ForTiles(
          output, first, kRun, [this] { return stop_.Due(); },
          [&](const std::byte* const* elements, std::int64_t /*rank*/, std::int64_t number) {
            std::memcpy(sample.data() + run * kRun * width_, elements[0], static_cast<std::size_t>(number * width_));
          });
    }
    stop_.Request(fold.Sample(sample.data(), wanted / kRun * kRun));
  }

  // Long outputs are added by several threads: the first one adds to the folds themselves, the others to parts.
  void AddOnce(const Output& output, const std::vector<Adds>& folds) {
    // Blocks are of positions, since a mask may leave little of much, and smaller where there is more to do.
    constexpr std::int64_t kRun = OutputElements::kRun;
    const std::int64_t block = std::max<std::int64_t>(1, kBlockBytes / width_ / std::ssize(folds) / kRun) * kRun;
    const std::int64_t blocks = (output.positions + block - 1) / block;
    std::atomic<std::int64_t> next = 0;
    const auto add = [&](const std::vector<Adds>& to) {
      for (std::int64_t b = next.fetch_add(1); b < blocks && (b == 0 || !stop_.Due()); b = next.fetch_add(1)) {
        const std::int64_t first = elements_.RankFrom(output, b * block);
        const std::int64_t last = elements_.RankFrom(output, std::min(output.positions, (b + 1) * block));
        elements_.ForTiles(
            output, first, last - first, [this] { return stop_.Due(); },
            [&](const std::byte* const* elements, std::int64_t rank, std::int64_t number) {
              for (const auto& [fold, other] : to) {
                stop_.Request(fold->Add(elements[0], other == 0 ? nullptr : elements[other], rank, number));
              }
            });
      }
    };
    if (output.positions * width_ <= kLongOutputBytes) return add(folds);

    const int workers = static_cast<int>(std::min<std::int64_t>(tbb::this_task_arena::max_concurrency(), blocks));
    std::vector<Folds> parts(static_cast<std::size_t>(workers));
    const auto work = [&](const tbb::blocked_range<int>& range) {
      for (int worker = range.begin(); worker < range.end() && next.load() < blocks; ++worker) {
        if (worker == 0) {
          add(folds);
        } else if (Folds& own = parts[static_cast<std::size_t>(worker)]; MakeParts(folds, &own)) {
          std::vector<Adds> adds;
          for (std::size_t i = 0; i < own.size(); ++i) adds.push_back({own[i].get(), folds[i].other});
          add(adds);
        }
      }
    };
    // A thread that waits for the others must not begin another output, which would take memory of its own.
    tbb::this_task_arena::isolate(
        [&] { tbb::parallel_for(tbb::blocked_range<int>(0, workers, 1), work, tbb::simple_partitioner()); });
    for (Folds& own : parts) {
      for (std::size_t i = 0; i < own.size() && !stop_.Due(); ++i) {
        stop_.Request(folds[i].fold->Merge(*own[i]));
        own[i] = nullptr;
      }
    }
  }

  // Whether there is memory for a part of each fold. If not, other threads do the work.
  static bool MakeParts(const std::vector<Adds>& folds, Folds* parts) {
    for (const Adds& each : folds) {
      absl::StatusOr<std::unique_ptr<DistributionFold>> part = each.fold->Part();
      if (!part.ok()) return parts->clear(), false;
      parts->push_back(*std::move(part));
    }
    return true;
  }

  void Finish(const Output& output, const Folds& folds) {
    const auto index_of = [&](std::int64_t rank) { return elements_.IndexOf(output, rank); };
    if (job_.states != nullptr) StateOf(output).partial.count = output.count;
    for (std::size_t i = 0; i < folds.size(); ++i) {
      const Role& role = roles_[i];
      const Asked& asked = asked_[role.asked];
      if (role.saves) {
        Entries& entries = StateOf(output).entries[role.asked];
        stop_.Request(folds[i]->Save(index_of, &entries));
        if (stop_.requested()) return;
        const absl::Status taken = limits_.take(entries.bytes());
        if (taken.ok()) saved_bytes_ += entries.bytes();
        stop_.Request(taken);
        if (stop_.requested()) return;
      }
      if (!role.answers) continue;
      const absl::Status status = folds[i]->Finish(index_of, asked.answers + output.number * asked.output_bytes);
      if (absl::IsInvalidArgument(status) || absl::IsOutOfRange(status)) {
        errors_.Fail(role.asked, output.number, status);
      } else {
        stop_.Request(status);
      }
    }
  }

  State& StateOf(const Output& output) { return (*job_.states)[static_cast<std::size_t>(output.number)]; }

  const Job& job_;
  const std::vector<Asked> asked_;
  const std::vector<Role> roles_;  // of the folds of an output
  const FoldLimits limits_;
  const std::int64_t width_;  // bytes of an element
  const OutputElements elements_;
  std::int64_t output_work_ = 16 << 10;  // what an output costs besides its elements, as bytes that one op reads
  OutputErrors errors_;
  std::atomic<std::int64_t> saved_bytes_ = 0;  // of the memory, for states
  TaskStop stop_;
  absl::Mutex mutex_;
  std::vector<Folds> idle_ ABSL_GUARDED_BY(mutex_);
};

// The job of the ops that accumulators answer, `numbers` of all ops, with answers that were placed already. ABORTED: it
// loads the partition again and finds other outputs than `loaded` has, since somebody has changed the keys.
absl::Status ReduceOthers(const Job& job, const LoadedPartition& loaded, const std::vector<std::size_t>& numbers,
                          const std::vector<std::byte*>& answers,
                          absl::FunctionRef<absl::Status(const Job&)> by_accumulators) {
  Job others = job;
  others.y.reset();
  others.weights.reset();
  others.spec.ops.clear();
  std::vector<std::byte*> places;
  for (const std::size_t number : numbers) {
    others.spec.ops.push_back(job.spec.ops[number]);
    if (!answers.empty()) places.push_back(answers[number]);
  }
  others.place = [&](std::int64_t outputs, std::int64_t groups,
                     const std::byte* keys) -> absl::StatusOr<std::vector<std::byte*>> {
    const std::byte* const found = loaded.grouping.keys;
    const bool same =
        outputs == loaded.outputs && groups == loaded.grouping.groups &&
        (found == nullptr ||
         std::memcmp(found, keys, static_cast<std::size_t>(groups) * RowOf(job.partition->keys->keys.dtype).bytes) ==
             0);
    if (!same) return absl::AbortedError("keys: got other ones the second time; allowed: keys that nobody changes");
    return places;
  };
  std::vector<absl::Status> errors;
  others.errors = job.errors == nullptr ? nullptr : &errors;
  const absl::Status status = by_accumulators(others);
  for (std::size_t i = 0; i < errors.size(); ++i) (*job.errors)[numbers[i]] = errors[i];
  return status;
}

}  // namespace

absl::Status ReduceDistributions(const Job& job, const GroupingContext& context, LoadedPartition* loaded,
                                 absl::FunctionRef<absl::Status(const Job&)> by_accumulators) {
  const absl::StatusOr<std::vector<std::byte*>> answers =
      job.place(loaded->outputs, loaded->grouping.groups, loaded->grouping.keys);
  if (!answers.ok()) return answers.status();

  std::vector<Asked> asked;
  std::vector<std::size_t> numbers, others;  // of these ops, and of those that accumulators answer
  for (std::size_t i = 0; i < job.spec.ops.size(); ++i) {
    const OpCall& call = job.spec.ops[i];
    (HasAccumulator(call) ? others : numbers).push_back(i);
    if (HasAccumulator(call)) continue;
    const OtherOperand other = OtherOf(call.op);
    const std::size_t source = call.op == Op::kFingerprint                       ? OutputElements::kPositions
                               : other == OtherOperand::kNone                    ? 0
                               : other == OtherOperand::kY || !job.y.has_value() ? 1
                                                                                 : 2;
    asked.push_back({call, source, answers->empty() ? nullptr : (*answers)[i],
                     AnswerElements(call) * RowOf(ResultDType(call, job.spec.dtype)).bytes});
  }
  if (job.errors != nullptr) job.errors->resize(job.spec.ops.size());
  if (!others.empty()) {
    if (absl::Status status = ReduceOthers(job, *loaded, others, *answers, by_accumulators); !status.ok())
      return status;
  }
  if (job.states != nullptr) {
    std::vector<Entries> none;
    for (const Asked& each : asked) none.push_back(NoEntries(each.call, job.spec.dtype));
    job.states->resize(static_cast<std::size_t>(loaded->outputs));
    for (State& state : *job.states) state.entries = none;
  }
  if (job.partition->keys.has_value()) {
    const absl::Status sorted = SortRows(job.partition->rows, context, &loaded->grouping);
    if (!sorted.ok()) return sorted;
  }
  std::vector<absl::Status> errors;
  DistributionReduction reduction(job, *loaded, context.budget, std::move(asked),
                                  job.errors == nullptr ? nullptr : &errors);
  ForRanges(loaded->outputs, reduction.task_outputs(loaded->outputs, context.arena.max_concurrency()), context.arena,
            [&](std::int64_t begin, std::int64_t end) {
              reduction.Run(begin, end);
              return !reduction.stopped();
            });
  absl::Status status = reduction.status();
  for (std::size_t i = 0; i < errors.size(); ++i) (*job.errors)[numbers[i]] = errors[i];
  return status;
}

}  // namespace reduced
