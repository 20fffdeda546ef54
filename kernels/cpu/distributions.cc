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
#include "kernels/engine/output_errors.h"
#include "kernels/folds/fold.h"
#include "oneapi/tbb/blocked_range.h"
#include "oneapi/tbb/parallel_for.h"

namespace reduced {
namespace {

// Longer outputs are cut into blocks.
constexpr std::int64_t kLongOutputBytes = 4 * kBlockBytes;
constexpr std::int64_t kOutputsBetweenLooks = 16;  // at the deadline

// An op, and where its answers go.
struct Asked {
  OpCall call;
  std::byte* answers = nullptr;
  std::int64_t output_bytes = 0;  // of the answer for one output
};

using Folds = std::vector<std::unique_ptr<DistributionFold>>;

class DistributionReduction {
 public:
  DistributionReduction(const Job& job, const std::byte* data, const LoadedPartition& loaded, FoldMemory memory,
                        std::vector<Asked> asked, std::vector<absl::Status>* op_errors)
      : job_(job),
        asked_(std::move(asked)),
        memory_(std::move(memory)),
        width_(RowOf(job.spec.dtype).bytes),
        elements_(*job.partition, job.spec.dtype, data, loaded.grouping, loaded.mask),
        errors_(asked_.size(), op_errors) {}

  // How many outputs make a task.
  std::int64_t task_outputs(std::int64_t outputs, int threads) const {
    constexpr std::int64_t kOutputBytes = 4096;  // what an output costs besides its elements, as bytes of elements
    const std::int64_t bytes = job_.spec.count * width_ / std::max<std::int64_t>(outputs, 1);
    return std::min(kBlockBytes / (bytes + kOutputBytes), outputs / (4 * threads));
  }

  // Answers outputs [begin, end), unless the reduction has stopped.
  void Run(std::int64_t begin, std::int64_t end) {
    Folds folds;
    for (const Asked& each : asked_) folds.push_back(MakeDistributionFold(each.call, job_.spec, memory_));
    for (std::int64_t number = begin; number < end; ++number) {
      if (errors_.Ended(number) || ((number - begin) % kOutputsBetweenLooks == 0 && Stopped())) return;
      const Output output = elements_.Find(number, [this] { return Stopped(); });
      AddAll(output, folds);
      if (stopped()) return;
      Finish(output, folds);
    }
  }

  // Whether the answers are not wanted any more.
  bool stopped() const { return stop_.load(std::memory_order_relaxed); }

  absl::Status status() {
    const absl::MutexLock lock(&mutex_);
    return why_.ok() ? errors_.Finish(elements_.Names()) : why_;
  }

 private:
  bool Stopped() {
    if (!stopped()) Stop(WhyStop(job_));
    return stopped();
  }
  void Stop(const absl::Status& why) {
    if (why.ok()) return;
    stop_.store(true, std::memory_order_relaxed);
    const absl::MutexLock lock(&mutex_);
    why_.Update(why);
  }

  // Adds the elements of an output to its folds, until no fold asks for another pass.
  void AddAll(const Output& output, const Folds& folds) {
    std::vector<DistributionFold*> active;
    for (const auto& fold : folds) {
      fold->Begin(output.count);
      active.push_back(fold.get());
    }
    while (!active.empty() && !stopped()) {
      if (output.count * width_ > kBlockBytes && Stopped()) return;
      if (output.count * width_ <= kLongOutputBytes) {
        Add(output, 0, output.count, active);
      } else {
        AddBlocks(output, active);
      }
      if (stopped()) return;
      std::erase_if(active, [](DistributionFold* fold) { return !fold->NextPass(); });
    }
  }

  void Add(const Output& output, std::int64_t first, std::int64_t count, const std::vector<DistributionFold*>& folds) {
    elements_.ForTiles(output, first, count, [&](const std::byte* elements, std::int64_t rank, std::int64_t number) {
      for (DistributionFold* const fold : folds) Stop(fold->Add(elements, rank, number));
    });
  }

  void AddBlocks(const Output& output, const std::vector<DistributionFold*>& folds) {
    const std::int64_t block = kBlockBytes / width_;
    const std::int64_t blocks = (output.count + block - 1) / block;
    const int workers = static_cast<int>(std::min<std::int64_t>(tbb::this_task_arena::max_concurrency(), blocks));
    std::vector<Folds> parts(static_cast<std::size_t>(workers));
    std::atomic<std::int64_t> next = 0;
    const auto work = [&](const tbb::blocked_range<int>& range) {
      for (int worker = range.begin(); worker < range.end(); ++worker) {
        Folds& own = parts[static_cast<std::size_t>(worker)];
        std::vector<DistributionFold*> adds;
        for (std::int64_t b = next.fetch_add(1); b < blocks && !Stopped(); b = next.fetch_add(1)) {
          if (own.empty()) {
            for (const DistributionFold* const fold : folds) adds.push_back(own.emplace_back(fold->Part()).get());
          }
          Add(output, b * block, std::min(block, output.count - b * block), adds);
        }
      }
    };
    // A thread that waits for the others must not begin another output, which would take memory of its own.
    tbb::this_task_arena::isolate(
        [&] { tbb::parallel_for(tbb::blocked_range<int>(0, workers, 1), work, tbb::simple_partitioner()); });
    for (Folds& own : parts) {
      for (std::size_t i = 0; i < own.size() && !Stopped(); ++i) {
        Stop(folds[i]->Merge(*own[i]));
        own[i] = nullptr;
      }
    }
  }

  void Finish(const Output& output, const Folds& folds) {
    const auto index_of = [&](std::int64_t rank) { return elements_.IndexOf(output, rank); };
    for (std::size_t i = 0; i < folds.size(); ++i) {
      const absl::Status status =
          folds[i]->Finish(index_of, asked_[i].answers + output.number * asked_[i].output_bytes);
      if (!status.ok()) errors_.Fail(i, output.number, status);
    }
  }

  const Job& job_;
  const std::vector<Asked> asked_;
  const FoldMemory memory_;
  const std::int64_t width_;  // bytes of an element
  const OutputElements elements_;
  OutputErrors errors_;
  std::atomic<bool> stop_ = false;
  absl::Mutex mutex_;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);  // to stop
};

// The job of the ops that states answer, `numbers` of all ops, with answers that were placed already. ABORTED: it finds
// other outputs than `loaded` has, since somebody has changed the keys.
absl::Status ReduceOthers(const Job& job, const LoadedPartition& loaded, const std::vector<std::size_t>& numbers,
                          const std::vector<std::byte*>& answers,
                          absl::FunctionRef<absl::Status(const Job&)> by_states) {
  Job others = job;
  others.spec.ops.clear();
  std::vector<std::byte*> places;
  for (const std::size_t number : numbers) {
    others.spec.ops.push_back(job.spec.ops[number]);
    places.push_back(answers[number]);
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
  const absl::Status status = by_states(others);
  for (std::size_t i = 0; i < errors.size(); ++i) (*job.errors)[numbers[i]] = errors[i];
  return status;
}

}  // namespace

absl::Status ReduceDistributions(const Job& job, const std::byte* data, ArrayBudget& scratch, tbb::task_arena& arena,
                                 absl::FunctionRef<absl::Status(const Job&)> by_states) {
  if (job.states != nullptr)
    return absl::UnimplementedError("states: got ops that have none; allowed: ops with states");
  const auto why_stop = [&job] { return WhyStop(job); };
  const GroupingContext context{scratch, arena, why_stop};
  absl::StatusOr<LoadedPartition> loaded = LoadPartition(job, scratch, context);
  if (!loaded.ok()) return loaded.status();
  const absl::StatusOr<std::vector<std::byte*>> answers =
      job.place(loaded->outputs, loaded->grouping.groups, loaded->grouping.keys);
  if (!answers.ok()) return answers.status();

  std::vector<Asked> asked;
  std::vector<std::size_t> numbers, others;  // of these ops, and of those that states answer
  for (std::size_t i = 0; i < job.spec.ops.size(); ++i) {
    const OpCall& call = job.spec.ops[i];
    (HasState(call) ? others : numbers).push_back(i);
    if (HasState(call)) continue;
    asked.push_back({call, (*answers)[i], AnswerElements(call) * RowOf(ResultDType(call, job.spec.dtype)).bytes});
  }
  if (job.errors != nullptr) job.errors->resize(job.spec.ops.size());
  if (!others.empty()) {
    if (absl::Status status = ReduceOthers(job, *loaded, others, *answers, by_states); !status.ok()) return status;
  }
  if (job.partition->keys.has_value()) {
    const absl::Status sorted = SortRows(job.partition->rows, context, &loaded->grouping);
    if (!sorted.ok()) return sorted;
  }
  std::vector<absl::Status> errors;
  DistributionReduction reduction(job, data, *loaded,
                                  {.take = [&](std::int64_t bytes) { return scratch.Take(bytes); },
                                   .give = [&](std::int64_t bytes) { scratch.Give(bytes); }},
                                  std::move(asked), job.errors == nullptr ? nullptr : &errors);
  ForRanges(loaded->outputs, reduction.task_outputs(loaded->outputs, arena.max_concurrency()), arena,
            [&](std::int64_t begin, std::int64_t end) {
              reduction.Run(begin, end);
              return !reduction.stopped();
            });
  absl::Status status = reduction.status();
  for (std::size_t i = 0; i < errors.size(); ++i) (*job.errors)[numbers[i]] = errors[i];
  return status;
}

}  // namespace reduced
