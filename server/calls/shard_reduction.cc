#include "server/calls/shard_reduction.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "kernels/algebra/finalize.h"
#include "kernels/engine/output_errors.h"
#include "kernels/engine/stopwatch.h"
#include "kernels/exact/answers.h"
#include "kernels/folds/fold.h"
#include "kernels/system/status_macros.h"
#include "proto/codec/arrays_state.h"
#include "proto/codec/op_call.h"
#include "server/calls/shard_quantiles.h"

namespace reduced::server {
namespace {

constexpr std::size_t kOutputsBetweenStops = 1024;

// What a device found of its shard.
struct Part {
  const ArrayShard* shard = nullptr;
  ShardSegments segments{};  // with segments
  Answer answer{};
  std::vector<State> states{};         // with a partition, of its outputs
  std::vector<std::byte> keys{};       // of its groups, if they were found
  std::vector<absl::Status> errors{};  // as Job::errors
  absl::Status status{};               // an error about the elements
};

// An error about elements, which may begin with the number of an output or a key, as that of the whole array.
absl::Status OfWhole(const absl::Status& status, std::int64_t first_row) {
  for (const absl::string_view name : {"output [", "keys["}) {
    absl::string_view rest(status.message().data(), status.message().size());
    if (!absl::ConsumePrefix(&rest, name)) continue;
    std::int64_t row = 0;
    const std::size_t end = rest.find_first_of(",]");
    if (end == rest.npos || !absl::SimpleAtoi(rest.substr(0, end), &row)) continue;
    return {status.code(), absl::StrCat(name, first_row + row, rest.substr(end))};
  }
  return status;
}

double TotalUs(const Timing& timing) {
  double us = 0;
  for (const TimingStage& stage : kTimingStages) us += (timing.*stage.micros).value_or(0);
  return us;
}

// The elements of an array of keys, in their order.
std::vector<__int128> KeysOf(DType dtype, const std::vector<std::byte>& bytes) {
  std::vector<__int128> keys;
  VisitDType(dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (std::is_integral_v<T>) {
      for (std::size_t at = 0; at < bytes.size(); at += sizeof(T)) {
        T key;
        std::memcpy(&key, bytes.data() + at, sizeof key);
        keys.push_back(key);
      }
    }
  });
  return keys;
}

class ShardReduction : public std::enable_shared_from_this<ShardReduction> {
 public:
  ShardReduction(ShardedJob sharded, Engine::Done done)
      : sharded_(std::move(sharded)), job_(sharded_.job), merges_(MergesOutputs(job_)), done_(std::move(done)) {
    if (job_.cancelled == nullptr) job_.cancelled = std::make_shared<std::atomic<bool>>(false);
  }

  void Start() {
    if (!merges_) {
      absl::StatusOr<std::vector<std::byte*>> answers = job_.place(job_.partition->layout.outputs, 1, nullptr);
      if (!answers.ok()) return End(answers.status());
      answers_ = *std::move(answers);
    }
    if (!job_.partition.has_value() || !job_.partition->segments.has_value()) return Run(job_);
    const SideArray& bounds = job_.partition->segments->bounds;  // which may be in a file
    const Job reading{.spec = {.dtype = bounds.dtype, .count = bounds.count},
                      .deadline = job_.deadline,
                      .cancelled = job_.cancelled,
                      .admitted = job_.admitted,
                      .caller = job_.caller};
    sharded_.host->OnLane(reading, [self = shared_from_this()](const absl::Status& lane) {
      const absl::Status status = lane.ok() ? self->ReadBounds() : lane;
      status.ok() ? self->Run(self->job_) : self->End(status);
    });
  }

 private:
  absl::Status ReadBounds() {
    const Segments& segments = *job_.partition->segments;
    const SideArray& side = segments.bounds;
    // The bounds, those of the shards, and what is copied.
    const auto offset_bytes = static_cast<std::int64_t>(sizeof(std::int64_t)) * (segments.count() + 1);
    RETURN_IF_ERROR(Hold(2 * offset_bytes + (IsCopied(side.array) ? side.bytes() : 0)));
    std::vector<std::byte> copy;
    const auto* elements = static_cast<const std::byte*>(side.array.data);
    const auto why_stop = [this] { return WhyStop(job_); };
    if (IsCopied(side.array)) {
      copy.resize(static_cast<std::size_t>(side.bytes()));
      RETURN_IF_ERROR(ReadSide(side, why_stop, copy.data()));
      elements = copy.data();
    }
    bounds_.resize(static_cast<std::size_t>(segments.count() + 1));
    return CopyBounds(segments, elements, job_.partition->rows, why_stop, bounds_.data());
  }

  // Has every shard answer a job about the whole array.
  void Run(const Job& asked) {
    const auto self = shared_from_this();  // another thread may be the last
    parts_.clear();
    none_.clear();
    for (const OpCall& op : asked.spec.ops) {
      if (!HasAccumulator(op)) none_.push_back(NoEntries(op, asked.spec.dtype));
    }
    for (const ArrayShard& shard : sharded_.array->shards()) {
      if (shard.count > 0) parts_.push_back({.shard = &shard});
    }
    std::vector<Job> jobs;
    for (Part& part : parts_) {
      absl::StatusOr<Job> job = CutJob(asked, *sharded_.array, *part.shard, sharded_.sides);
      if (!job.ok()) return End(job.status());
      if (!bounds_.empty()) {
        part.segments = CutSegments(bounds_, *part.shard);
        const std::vector<std::int64_t>& offsets = part.segments.offsets;
        job->partition->segments = Segments{{DType::kI64, std::ssize(offsets), {.data = offsets.data()}}};
      }
      if (job->partition.has_value()) merges_ ? AskStates(part, &*job) : AskAnswers(part, &*job);
      jobs.push_back(*std::move(job));
    }
    left_.store(parts_.size(), std::memory_order_relaxed);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      Part& part = parts_[i];
      part.shard->engine->Reduce(
          std::move(jobs[i]), [self, &part](absl::StatusOr<Answer> answer) { self->Ended(part, std::move(answer)); });
    }
  }

  // Outputs that other shards have parts of, too.
  void AskStates(Part& part, Job* job) {
    if (job_.states == nullptr) job->spec.precision = Precision::kExact;  // sums as exact as those of one device
    job->states = &part.states;
    job->errors = nullptr;
    exact_ = ExactAccumulatorsFor(job->spec) != 0;
    job->place = [this, &part](std::int64_t outputs, std::int64_t groups,
                               const std::byte* keys) -> absl::StatusOr<std::vector<std::byte*>> {
      const std::int64_t key_bytes = keys == nullptr ? 0 : groups * RowOf(job_.partition->keys->keys.dtype).bytes;
      RETURN_IF_ERROR(Hold(key_bytes));
      RETURN_IF_ERROR(HoldStates(outputs));
      part.keys.assign(keys, keys + key_bytes);
      return std::vector<std::byte*>();
    };
  }

  // Outputs of its own, whose answers it writes where they belong.
  void AskAnswers(Part& part, Job* job) {
    job->states = job_.states == nullptr ? nullptr : &part.states;
    job->errors = job_.errors == nullptr ? nullptr : &part.errors;
    std::vector<std::byte*> places;
    for (std::size_t op = 0; op < answers_.size(); ++op) {
      places.push_back(answers_[op] + FirstOutput(part) * ResultBytes(job_.spec.ops[op], job_.spec.dtype));
    }
    job->place = [places](std::int64_t, std::int64_t, const std::byte*) { return places; };
  }
  std::int64_t FirstOutput(const Part& part) const {
    return part.shard->first_row * (job_.partition->layout.outputs / sharded_.array->rows());
  }

  absl::Status Hold(std::int64_t bytes) {
    ASSIGN_OR_RETURN(MemoryLease lease,
                     MemoryLease::Take(sharded_.payers.Of(bytes), bytes, "the states of a sharded array"));
    const absl::MutexLock lock(&mutex_);
    leases_.push_back(std::move(lease));
    return absl::OkStatus();
  }

  // For the states of so many outputs, without what is in their entries.
  absl::Status HoldStates(std::int64_t outputs) {
    const std::size_t each = sizeof(State) + none_.size() * sizeof(Entries) + (exact_ ? sizeof(ExactSums) : 0);
    std::int64_t bytes = 0;
    if (__builtin_mul_overflow(outputs, each, &bytes)) bytes = std::numeric_limits<std::int64_t>::max();
    return Hold(bytes);
  }

  void Ended(Part& part, absl::StatusOr<Answer> answer) {
    const absl::Status status = answer.status();
    if (status.ok()) {
      part.answer = *std::move(answer);
    } else if (absl::IsInvalidArgument(status) || absl::IsOutOfRange(status)) {
      part.status = OfWhole(status, part.shard->first_row);
    } else {
      const bool unwanted = absl::IsCancelled(status) || absl::IsDeadlineExceeded(status);  // by no fault of a device
      const absl::MutexLock lock(&mutex_);
      cause_.Update(unwanted ? status : OfDevice(status, part.shard->device));
      job_.cancelled->store(true, std::memory_order_relaxed);
    }
    if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) Join();
  }

  // The last shard has ended.
  void Join() {
    const Stopwatch since;
    absl::Status status = Error();
    if (!status.ok()) return End(status);
    const auto slower = [](const Part& a, const Part& b) {
      return TotalUs(a.answer.timing) < TotalUs(b.answer.timing);
    };
    Add(std::max_element(parts_.begin(), parts_.end(), slower)->answer.timing, &answer_.timing);
    answer_.ran = parts_.front().answer.ran;
    answer_.ran.device = std::string(kAllGpus);
    if (!job_.partition.has_value()) {
      for (Part& part : parts_) {
        Shift(part.shard->first, &part.answer.state);
        Combine(part.answer.state, &answer_.state);
      }
    } else {
      status = merges_ ? JoinStates() : JoinAnswers();
    }
    answer_.timing.kernel_us = answer_.timing.kernel_us.value_or(0) + since.micros();
    if (!status.ok() || !quantiles_.has_value() || quantiles_->calls().empty()) return End(status);
    Job again = job_;
    again.spec.ops = quantiles_->calls();
    again.y.reset();
    again.weights.reset();
    again.admitted = true;
    again.limit.Start(absl::Microseconds(*answer_.timing.kernel_us));
    Run(again);
  }

  absl::Status Error() {
    {
      const absl::MutexLock lock(&mutex_);
      if (!cause_.ok()) return cause_;
    }
    for (const Part& part : parts_) {
      if (!part.status.ok()) return part.status;
    }
    return absl::OkStatus();
  }

  absl::Status JoinAnswers() {
    if (job_.errors != nullptr) job_.errors->resize(job_.spec.ops.size());
    for (Part& part : parts_) {
      for (std::size_t op = 0; op < part.errors.size(); ++op) {
        (*job_.errors)[op].Update(OfWhole(part.errors[op], part.shard->first_row));
      }
      if (job_.states == nullptr) continue;
      job_.states->insert(job_.states->end(), std::make_move_iterator(part.states.begin()),
                          std::make_move_iterator(part.states.end()));
    }
    return absl::OkStatus();
  }

  absl::Status JoinStates() {
    std::vector<State> states;
    std::vector<std::byte> keys;
    absl::Status status = FindsKeys() ? MergeByKeys(&states, &keys) : Merge(&states);
    std::int64_t entries = 0;
    for (const State& state : states) entries += EntriesBytes(state);
    constexpr std::int64_t kCopies = 3;  // of a part, merged, and as a message
    if (status.ok() && entries > 0) status = Hold(kCopies * entries);
    if (!status.ok()) return status;
    if (quantiles_.has_value()) {
      if (keys != keys_) {
        return absl::AbortedError("keys: got other ones in another round; allowed: keys that nobody changes");
      }
      status = quantiles_->Next(states);
    } else {
      states_ = std::move(states);
      keys_ = std::move(keys);
      status = FirstRound();
    }
    return status.ok() && quantiles_->calls().empty() ? StoreAnswers() : status;
  }

  absl::Status FirstRound() {
    const auto outputs = static_cast<std::int64_t>(states_.size());
    const std::int64_t groups = FindsKeys() ? outputs / job_.partition->layout.outputs : job_.partition->groups();
    ASSIGN_OR_RETURN(answers_, job_.place(outputs, groups, FindsKeys() ? keys_.data() : nullptr));
    if (job_.states != nullptr) *job_.states = states_;
    quantiles_.emplace(job_.spec, job_.partition->positions());
    return sharded_.results && quantiles_->needed() ? quantiles_->Start(states_) : absl::OkStatus();
  }

  bool FindsKeys() const { return job_.partition->keys.has_value() && job_.partition->groups() == 0; }

  // How many positions of each output lie before the shard; of the segments, of the first one that it has rows of.
  std::int64_t PositionsBefore(const Part& part) const {
    const std::int64_t row = part.shard->first_row;
    if (!bounds_.empty()) {
      return std::max<std::int64_t>(0, row - bounds_[static_cast<std::size_t>(part.segments.first)]);
    }
    return row * (job_.partition->positions() / sharded_.array->rows());
  }

  absl::Status Merge(std::vector<State>* to) {
    const std::int64_t columns = job_.partition->layout.outputs, outputs = job_.partition->groups() * columns;
    RETURN_IF_ERROR(HoldStates(outputs));
    to->resize(static_cast<std::size_t>(outputs));
    for (State& state : *to) state.entries = none_;  // no shard has rows of some segments
    for (Part& part : parts_) {
      State* const first = to->data() + part.segments.first * columns;
      const std::int64_t before = PositionsBefore(part);
      for (std::size_t i = 0; i < part.states.size(); ++i) {
        RETURN_IF_ERROR(CheckStop(i));
        if (bounds_.empty() || std::cmp_less(i, columns)) Shift(before, &part.states[i]);
        Combine(part.states[i], &first[i]);
      }
      part.states = {};
    }
    return absl::OkStatus();
  }

  absl::Status MergeByKeys(std::vector<State>* to, std::vector<std::byte>* keys) {
    const DType dtype = job_.partition->keys->keys.dtype;
    const std::size_t width = RowOf(dtype).bytes;
    const auto columns = static_cast<std::size_t>(job_.partition->layout.outputs);
    keys->reserve(width);  // there is memory to point to also if there is no key
    struct Group {
      __int128 key;
      Part* part;
      std::size_t number;
    };
    std::vector<Group> groups;
    for (Part& part : parts_) {
      for (const __int128 key : KeysOf(dtype, part.keys)) {
        const bool first = groups.empty() || groups.back().part != &part;
        groups.push_back({key, &part, first ? 0 : groups.back().number + 1});
      }
    }
    std::stable_sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) { return a.key < b.key; });
    std::size_t different = 0;
    for (std::size_t i = 0; i < groups.size(); ++i) different += i == 0 || groups[i - 1].key != groups[i].key ? 1 : 0;
    RETURN_IF_ERROR(HoldStates(static_cast<std::int64_t>(different * columns)));
    to->reserve(different * columns);
    for (std::size_t i = 0; i < groups.size(); ++i) {
      RETURN_IF_ERROR(CheckStop(i));
      const Group& group = groups[i];
      if (i == 0 || groups[i - 1].key != group.key) {
        to->resize(to->size() + columns);
        const auto key = group.part->keys.begin() + static_cast<std::ptrdiff_t>(group.number * width);
        keys->insert(keys->end(), key, key + static_cast<std::ptrdiff_t>(width));
      }
      for (std::size_t column = 0; column < columns; ++column) {
        State& state = group.part->states[group.number * columns + column];
        Shift(PositionsBefore(*group.part), &state);
        Combine(state, &(*to)[to->size() - columns + column]);
        state = {};
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckStop(std::size_t number) const {
    return number % kOutputsBetweenStops == 0 ? WhyStop(job_) : absl::OkStatus();
  }

  // From the merged states.
  absl::Status StoreAnswers() {
    ReduceSpec spec = job_.spec;
    if (quantiles_->needed() && sharded_.results) {
      RETURN_IF_ERROR(quantiles_->Finish(&states_, &spec));
    }
    if (answers_.empty()) return absl::OkStatus();
    const FoldLimits limits{[](std::int64_t) { return absl::OkStatus(); }, [](std::int64_t) {},
                            [this] { return WhyStop(job_); }};
    std::vector<std::unique_ptr<DistributionFold>> folds;  // null: of an op that accumulators answer
    for (const OpCall& op : spec.ops) {
      folds.push_back(HasAccumulator(op) ? nullptr : MakeDistributionFold(op, spec, limits));
    }
    OutputErrors errors(spec.ops.size(), job_.errors);
    const auto exact = ExactAccumulatorsFor(spec);
    for (std::size_t i = 0; i < states_.size() && !errors.Ended(static_cast<std::int64_t>(i)); ++i) {
      RETURN_IF_ERROR(CheckStop(i));
      State& state = states_[i];
      if (exact != 0 && state.exact == nullptr) state.exact = std::make_unique<ExactSums>();
      const auto output = static_cast<std::int64_t>(i);
      spec.count = state.partial.count;
      std::size_t entries = 0;
      for (std::size_t op = 0; op < folds.size(); ++op) {
        absl::Status status;
        if (folds[op] != nullptr) {
          std::byte* const to = answers_[op] + output * ResultBytes(spec.ops[op], spec.dtype);
          status = AnswerFromState(state.entries[entries++], *folds[op], to);
        } else {
          const absl::StatusOr<Value> value = Finalize(spec, spec.ops[op], state);
          status = value.status();
          if (value.ok()) StoreAnswer(*value, answers_[op], output);
        }
        const bool of_elements = absl::IsInvalidArgument(status) || absl::IsOutOfRange(status);
        if (!status.ok() && !of_elements) return status;
        if (!status.ok()) errors.Fail(op, output, status);
      }
    }
    Layout names{.shape = job_.partition->layout.shape};
    if (job_.partition->grouped()) {
      names.shape.insert(names.shape.begin(), static_cast<std::int64_t>(states_.size()) /
                                                  std::max<std::int64_t>(1, job_.partition->layout.outputs));
    }
    return errors.Finish(names);
  }

  // Nothing of the caller's is used afterwards.
  void End(const absl::Status& status) {
    parts_.clear();
    states_ = {};
    quantiles_.reset();
    {
      const absl::MutexLock lock(&mutex_);
      leases_.clear();
    }
    if (!status.ok()) return std::move(done_)(status);
    std::move(done_)(std::move(answer_));
  }

  const ShardedJob sharded_;
  Job job_;
  const bool merges_;
  Engine::Done done_;
  std::vector<Part> parts_;                  // of shards that are not empty, in their order
  std::atomic<std::size_t> left_ = 0;        // of these
  Answer answer_;                            // of the whole array
  std::vector<std::int64_t> bounds_;         // of segments
  std::vector<Entries> none_;                // of an output without elements, in this round
  bool exact_ = false;                       // whether states have exact sums, in this round
  std::vector<std::byte*> answers_;          // as Job::place
  std::vector<State> states_;                // merged, of the first round
  std::vector<std::byte> keys_;              // likewise, that were found
  std::optional<ShardQuantiles> quantiles_;  // from then on
  absl::Mutex mutex_;
  std::vector<MemoryLease> leases_ ABSL_GUARDED_BY(mutex_);
  absl::Status cause_ ABSL_GUARDED_BY(mutex_);  // that ends all shards
};

}  // namespace

void ReduceShards(ShardedJob sharded, Engine::Done done) {
  std::make_shared<ShardReduction>(std::move(sharded), std::move(done))->Start();
}

}  // namespace reduced::server
