#include "kernels/cpu/groups.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "kernels/algebra/finalize.h"
#include "kernels/cpu/arrays.h"
#include "kernels/cpu/folding.h"
#include "kernels/cpu/for_ranges.h"
#include "kernels/cpu/grouping.h"
#include "kernels/cpu/key_tables.h"
#include "kernels/cpu/output_elements.h"
#include "kernels/cpu/quick_answers.h"
#include "kernels/cpu/task_stop.h"
#include "kernels/engine/output_errors.h"
#include "oneapi/tbb/blocked_range.h"
#include "oneapi/tbb/parallel_for.h"
#include "oneapi/tbb/parallel_reduce.h"

namespace reduced {
namespace {

// Outputs of more bytes are folded by themselves.
constexpr std::int64_t kShortBytes = 16 << 10;

constexpr std::int64_t kOutputs = 64;  // between two looks at the deadline

// Outputs that are side by side are gathered together: of short ones so many bytes, of long ones a buffer for each.
constexpr std::int64_t kBesideBytes = 128 << 10;
constexpr std::int64_t kColumnBuffer = (16 << 10) + 192;  // lines a power of two apart would share a set of the cache
constexpr std::int64_t kMostColumns = 16;
static_assert(kBesideBytes >= kShortBytes && kQuickOutputs <= OutputElements::kMostBeside);

class GroupReduction {
 public:
  // The bounds and rows of keys may come later, before Run.
  GroupReduction(const Job& job, const std::byte* data, const LoadedPartition& loaded, std::vector<std::byte*> answers)
      : spec_(SpecOf(job)),
        layout_(job.partition->layout),
        data_(data),
        grouping_(loaded.grouping),
        elements_(*job.partition, loaded, /*sources=*/1),
        answers_(std::move(answers)),
        plan_(spec_),
        width_(RowOf(spec_.dtype).bytes),
        quick_(job.states == nullptr ? QuickAnswers::For(spec_) : std::nullopt),
        states_(job.states),
        names_(elements_.Names()),
        stop_(job),
        errors_(answers_.size(), job.errors) {
    ReduceSpec none = spec_;
    none.count = 0;
    const State state = StateOf({}, none);
    for (const Op op : none.ops) of_nothing_.push_back(Finalize(none, op, state));
  }

  // The tables that answer all ops of most groups; null: there are none.
  absl::StatusOr<std::unique_ptr<KeyTables>> Tables(const GroupingContext& context) const {
    if (!elements_.keyed() || layout_.outputs != 1 || !quick_.has_value()) return nullptr;
    if (quick_->takes(Term::kMagnitude) || quick_->takes(Term::kNonzero) || quick_->takes_bits()) return nullptr;
    const auto asks = [&](auto what) { return std::any_of(spec_.ops.begin(), spec_.ops.end(), what); };
    return MakeKeyTables(
        spec_.dtype, data_, spec_.count, grouping_,
        {.counts = asks([](Op op) { return RowOf(op).accumulator != Accumulator::kExtrema; }),
         .sums = quick_->takes(Term::kElement),
         .squares = quick_->takes(Term::kSquare),
         .lowest = asks([](Op op) { return op == Op::kMin || op == Op::kArgmin || op == Op::kRange; }),
         .highest = asks([](Op op) { return op == Op::kMax || op == Op::kArgmax || op == Op::kRange; }),
         .omit_nans = quick_->omits_nans()},
        context);
  }

  // Answers groups [begin, end) from their tables, but for some, which are returned.
  std::vector<std::int64_t> Run(const KeyTables& tables, std::int64_t begin, std::int64_t end) {
    std::vector<std::int64_t> left;
    for (std::int64_t first = begin; first < end && !stop_.Due(); first += kQuickOutputs) {
      const std::int64_t size = std::min(kQuickOutputs, end - first);
      QuickFound found;
      std::int64_t counts[kQuickOutputs];
      tables.Load(first, size, &found, counts);
      Store(found, counts, first, size, [&](std::int64_t /*i*/, std::int64_t number) {
        if (counts[number - first] == 0) {
          Answer({.number = number});
        } else {
          left.push_back(number);
        }
      });
    }
    return left;
  }

  // Answers outputs [begin, end), unless the reduction has stopped.
  void Run(std::int64_t begin, std::int64_t end) {
    if (quick_.has_value() && elements_.adjacent() && elements_.grouped() && !elements_.mask())
      return RunSegments(begin, end);
    std::vector<Output> together;
    std::int64_t bytes = 0;
    const auto answer = [&] {
      if (!together.empty()) AnswerTogether(together);
      together.clear();
      bytes = 0;
    };
    for (std::int64_t number = begin; number < end; ++number) {
      if (Passed(number, number - begin)) return;
      if (const std::int64_t beside = std::min(elements_.Beside(number), end - number);
          beside > 1 && states_ == nullptr) {
        answer();
        number += AnswerBeside(number, beside) - 1;
        continue;
      }
      Output output = OutputOf(number);
      const std::int64_t more = output.count * width_;
      // A mask may leave little of much.
      const bool is_short = quick_.has_value() && more <= kShortBytes && output.positions * width_ <= kBlockBytes;
      if (!is_short || bytes + more > kShortBytes || std::ssize(together) == kQuickOutputs) answer();
      if (!is_short) {
        Answer(output);
        continue;
      }
      together.push_back(std::move(output));
      bytes += more;
    }
    answer();
  }

  // How many outputs make a task. An output without a quick answer takes much longer than others: each thread has
  // several tasks.
  std::int64_t task_outputs(std::int64_t outputs, int threads) const {
    const std::int64_t bytes = spec_.count * width_ / std::max<std::int64_t>(outputs, 1);
    const std::int64_t some =
        std::min(kBlockBytes / (bytes + AnswerBytes(quick_.has_value())), outputs / (4 * threads));
    // A task has at least as many long outputs as are read together.
    return elements_.Beside(0) > 1 ? std::max(some, std::min(beside_, outputs / threads)) : some;
  }

  // Whether the answers are not wanted any more.
  bool stopped() const { return stop_.requested(); }

  absl::Status status() {
    const absl::Status why = stop_.why();
    return why.ok() ? errors_.Finish(names_) : why;
  }

 private:
  // Whether output `number`, the `since`-th of some, need not be answered any more.
  bool Passed(std::int64_t number, std::int64_t since) {
    return errors_.Ended(number) || (since % kOutputs == 0 && stop_.Due());
  }

  // Short segments as they lie.
  void RunSegments(std::int64_t begin, std::int64_t end) {
    const std::int64_t* const bounds = grouping_.bounds;
    const auto bytes = [&](std::int64_t g, std::int64_t size) { return (bounds[g + size] - bounds[g]) * width_; };
    const auto is_short = [&](std::int64_t g) { return bytes(g, 1) <= kShortBytes; };
    for (std::int64_t first = begin; first < end;) {
      if (Passed(first, 0)) return;
      std::int64_t size = 0;
      while (size < kQuickOutputs && first + size < end && is_short(first + size) && bytes(first, size) < kQuickBytes) {
        ++size;
      }
      if (size == 0) {
        Answer(OutputOf(first++));
        continue;
      }
      AnswerTogether(data_, bounds + first, first, size, nullptr);
      first += size;
    }
  }

  // How an output is answered depends on the number of threads and on other outputs. Exact sums have the same bits each
  // way.
  static ReduceSpec SpecOf(const Job& job) {
    ReduceSpec spec = job.spec;
    if (job.states == nullptr) spec.precision = Precision::kExact;
    return spec;
  }

  Output OutputOf(std::int64_t number) {
    return elements_.Find(number, [this] { return stop_.Due(); });
  }

  void FoldBlocks(const Output& output, const tbb::blocked_range<std::int64_t>& blocks, Folded* into) {
    const std::int64_t block = kBlockBytes / width_;
    for (std::int64_t b = blocks.begin(); b != blocks.end(); ++b) {
      if (stop_.Due()) return;
      elements_.ForTiles(
          output, b * block, std::min(block, output.count - b * block), [this] { return stop_.Due(); },
          [&](const std::byte* const* elements, std::int64_t first, std::int64_t count) {
            FoldElements(plan_, elements[0], first, count, into);
          });
    }
  }

  State StateOf(const Output& output, const ReduceSpec& one) {
    State state;
    if (plan_.exact_accumulators != 0) state.exact = std::make_unique<ExactSums>();
    absl::Mutex mutex;  // of the exact sums
    const auto fold = [&](const tbb::blocked_range<std::int64_t>& blocks, Partial partial) {
      Folded into(one, plan_, &partial);
      FoldBlocks(output, blocks, &into);
      if (into.exact.has_value()) {
        const absl::MutexLock lock(&mutex);
        Merge(into.exact->sums(), state.exact.get());
      }
      return partial;
    };
    const auto combine = [](Partial earlier, const Partial& later) {
      Combine(later, &earlier);
      return earlier;
    };
    const tbb::blocked_range<std::int64_t> blocks = BlocksOf(one);
    state.partial = blocks.is_divisible() ? tbb::parallel_deterministic_reduce(blocks, Partial(), fold, combine)
                                          : fold(blocks, Partial());
    state.partial.count = output.count;
    SetIndexes(output, &state);
    return state;
  }

  // Replaces the ranks of extrema by what answers call their indexes.
  void SetIndexes(const Output& output, State* state) const {
    ExtremaState& extrema = state->partial.extrema;
    for (std::int64_t* const index : {&extrema.min_index, &extrema.max_index, &extrema.nan_index}) {
      if (*index != kNoIndex) *index = elements_.IndexOf(output, *index);
    }
  }

  // Writes the answers of an output.
  void Answer(const Output& output) {
    if (output.count == 0 && states_ == nullptr) return errors_.Store(of_nothing_, answers_, output.number);
    ReduceSpec one = spec_;
    one.count = output.count;
    const State state = StateOf(output, one);
    if (stop_.requested()) return;
    if (states_ != nullptr) (*states_)[static_cast<std::size_t>(output.number)] = state;
    errors_.Store(one, state, answers_, output.number);
  }

  // Answers at most so many outputs from `number` on, which are side by side: their elements are gathered in one read
  // of the rows that they lie in. Returns how many.
  std::int64_t AnswerBeside(std::int64_t number, std::int64_t outputs) {
    const Output first = elements_.At(number);
    const std::int64_t bytes = first.positions * width_;
    const bool is_short = quick_.has_value() && bytes <= kShortBytes && first.positions <= OutputElements::kRun;
    if (!is_short) {
      outputs = std::min(outputs, beside_);
      AnswerColumns(first, outputs);
      return outputs;
    }
    outputs = std::min({outputs, kQuickOutputs, kBesideBytes / std::max(bytes, width_)});
    std::byte* const buffer = BufferFor(kBesideBytes);
    std::int64_t bounds[kQuickOutputs + 1] = {};
    std::vector<Output> all;  // for indexes, if extrema are asked for
    std::int64_t counts[kQuickOutputs] = {};
    elements_.GatherBeside(first, outputs, 0, first.positions, buffer, bytes, counts);
    for (std::int64_t i = 0; i < outputs; ++i) {
      const auto size = static_cast<std::size_t>(counts[i] * width_);
      if (bounds[i] < i * first.positions) std::memmove(buffer + bounds[i] * width_, buffer + i * bytes, size);
      bounds[i + 1] = bounds[i] + counts[i];
    }
    for (std::int64_t i = 0; quick_->takes_extrema() && i < outputs; ++i) all.push_back(elements_.At(number + i));
    AnswerTogether(buffer, bounds, number, outputs, all.empty() ? nullptr : all.data());
    return outputs;
  }

  // Answers outputs that are side by side, each with an accumulator of its own.
  void AnswerColumns(const Output& first, std::int64_t outputs) {
    const std::int64_t run = std::min(kColumnBuffer / width_ / 2, OutputElements::kRun);
    std::byte* const buffer = BufferFor(outputs * kColumnBuffer);
    std::vector<Partial> partials(static_cast<std::size_t>(outputs));
    std::vector<Folded> folded;
    std::int64_t has[kMostColumns] = {}, ranks[kMostColumns] = {};
    folded.reserve(partials.size());
    for (Partial& partial : partials) folded.emplace_back(spec_, plan_, &partial);
    const auto fold = [&](std::int64_t i) {
      FoldElements(plan_, buffer + i * kColumnBuffer, ranks[i], has[i], &folded[static_cast<std::size_t>(i)]);
      ranks[i] += std::exchange(has[i], 0);
    };
    for (std::int64_t position = 0; position < first.positions; position += run) {
      if (position % (run * OutputElements::kRunsBetweenLooks) == 0 && stop_.Due()) return;
      elements_.GatherBeside(first, outputs, position, std::min(run, first.positions - position), buffer, kColumnBuffer,
                             has);
      for (std::int64_t i = 0; i < outputs; ++i) {
        if (has[i] > run) fold(i);
      }
    }
    const bool has_positions = std::any_of(spec_.ops.begin(), spec_.ops.end(), [](Op op) { return HasPosition(op); });
    for (std::int64_t i = 0; i < outputs; ++i) {
      if (has[i] > 0) fold(i);
      const auto at = static_cast<std::size_t>(i);
      State state;
      state.partial = partials[at];
      state.partial.count = ranks[i];
      if (folded[at].exact.has_value()) state.exact = std::make_unique<ExactSums>(folded[at].exact->sums());
      if (ranks[i] == 0) {
        Answer({.number = first.number + i});
      } else {
        if (has_positions) SetIndexes(OutputOf(first.number + i), &state);
        ReduceSpec one = spec_;
        one.count = ranks[i];
        errors_.Store(one, state, answers_, first.number + i);
      }
    }
  }

  static std::byte* BufferFor(std::int64_t bytes) {
    constexpr std::int64_t kMost = std::max(kBesideBytes, kMostColumns * kColumnBuffer);
    thread_local const auto buffer = std::make_unique<std::byte[]>(kMost);
    return bytes <= kMost ? buffer.get() : nullptr;
  }

  // Gathers short outputs, which follow each other, and answers them.
  void AnswerTogether(const std::vector<Output>& outputs) {
    std::int64_t bounds[kQuickOutputs + 1] = {};
    thread_local std::unique_ptr<std::byte[]> buffer;
    if (buffer == nullptr) buffer = std::make_unique<std::byte[]>(kShortBytes);
    const auto size = static_cast<std::int64_t>(outputs.size());
    for (std::int64_t i = 0; i < size; ++i) {
      bounds[i + 1] = bounds[i] + outputs[i].count;
      elements_.ForTiles(
          outputs[i], 0, outputs[i].count, [this] { return stop_.Due(); },
          [&](const std::byte* const* elements, std::int64_t first, std::int64_t count) {
            std::memcpy(buffer.get() + (bounds[i] + first) * width_, elements[0],
                        static_cast<std::size_t>(count * width_));
          });
    }
    AnswerTogether(buffer.get(), bounds, outputs.front().number, size, outputs.data());
  }

  // Answers short outputs from number `first` on, side by side, and those that can't be answered so from their states.
  // `outputs`: null: positions are ranks, or by keys in order rows from that of the output's bound on.
  void AnswerTogether(const std::byte* start, const std::int64_t* bounds, std::int64_t first, std::int64_t size,
                      const Output* outputs) {
    QuickFound found;
    std::int64_t counts[kQuickOutputs];
    for (std::int64_t i = 0; i < size; ++i) counts[i] = bounds[i + 1] - bounds[i];
    quick_->FindSegments(start, bounds, size, &found);
    const auto index = [&](std::int64_t i, std::int64_t position) {
      if (outputs != nullptr) return elements_.IndexOf(outputs[i], position);
      return elements_.counts_rows() ? bounds[i] + position : position;
    };
    const bool indexes = (outputs != nullptr || elements_.counts_rows()) && quick_->takes_extrema();
    for (std::int64_t i = 0; indexes && i < size; ++i) {
      QuickExtrema& extrema = found.extrema;
      if (extrema.has_nan[i]) continue;
      if (quick_->positions().lowest) extrema.lowest_at[i] = index(i, extrema.lowest_at[i]);
      if (quick_->positions().highest) extrema.highest_at[i] = index(i, extrema.highest_at[i]);
    }
    Store(found, counts, first, size, [&](std::int64_t i, std::int64_t number) {
      if (counts[i] == 0) return Answer({.number = number});
      Specials specials;
      if (quick_->MayBeSpecial(found, i)) quick_->Look(start + bounds[i] * width_, counts[i], width_, 0, &specials);
      if (specials.first_nan.has_value()) specials.first_nan = index(i, *specials.first_nan);
      if (!quick_->StoreSpecial(found, i, specials, counts[i], answers_, number)) Answer(OutputOf(number));
    });
  }

  // Writes the answers of `size` outputs from number `first` on; calls other(i, number) with those of which one is not
  // known.
  template <class Other>
  void Store(const QuickFound& found, const std::int64_t* counts, std::int64_t first, std::int64_t size,
             const Other& other) {
    bool known[kQuickOutputs];
    std::fill_n(known, size, true);
    quick_->Store(found, counts, size, answers_, first, known);
    for (std::int64_t i = 0; i < size; ++i) {
      if (!known[i]) other(i, first + i);
    }
  }

  const ReduceSpec spec_;  // the question about the whole array
  const Layout& layout_;
  const std::byte* const data_;
  const Grouping& grouping_;
  const OutputElements elements_;
  const std::vector<std::byte*> answers_;  // of each op
  const Plan plan_;
  const std::int64_t width_;  // bytes of an element
  // Long outputs that are read together: at least a cache line.
  const std::int64_t beside_ = std::clamp<std::int64_t>(64 / width_, 8, kMostColumns);
  const std::optional<QuickAnswers> quick_;  // of all ops
  std::vector<State>* const states_;         // null: they are not wanted
  const Layout names_;                       // of the outputs, for messages
  // Of an output without elements.
  std::vector<absl::StatusOr<Value>> of_nothing_;

  TaskStop stop_;
  OutputErrors errors_;
};

}  // namespace

absl::Status ReduceGroups(const Job& job, const std::byte* data, const GroupingContext& context,
                          LoadedPartition* loaded) {
  const Partition& partition = *job.partition;
  tbb::task_arena& arena = context.arena;
  Grouping& grouping = loaded->grouping;
  const std::int64_t outputs = loaded->outputs;
  absl::StatusOr<std::vector<std::byte*>> answers = job.place(outputs, grouping.groups, grouping.keys);
  if (!answers.ok()) return answers.status();
  if (job.states != nullptr) job.states->resize(static_cast<std::size_t>(outputs));

  GroupReduction reduction(job, data, *loaded, *std::move(answers));
  absl::StatusOr<std::unique_ptr<KeyTables>> tables = reduction.Tables(context);
  if (absl::IsResourceExhausted(tables.status())) tables = nullptr;  // sorting the rows may take less
  if (!tables.ok()) return tables.status();
  if (*tables != nullptr) {
    constexpr std::int64_t kGrain = 16 * kQuickOutputs;
    absl::Mutex mutex;
    std::vector<std::int64_t> left;
    ForRanges(outputs, kGrain, arena, [&](std::int64_t begin, std::int64_t end) {
      const std::vector<std::int64_t> some = reduction.Run(**tables, begin, end);
      const absl::MutexLock lock(&mutex);
      left.insert(left.end(), some.begin(), some.end());
      return !reduction.stopped();
    });
    if (reduction.stopped()) return reduction.status();
    if (left.empty()) return reduction.status();
    tables->reset();
    const absl::Status sorted = SortRows(partition.rows, context, &grouping, &left);
    if (!sorted.ok()) return sorted;
    ForRanges(std::ssize(left), 1, arena, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t number = left[static_cast<std::size_t>(i)];
        reduction.Run(number, number + 1);
      }
      return !reduction.stopped();
    });
    return reduction.status();
  }
  if (partition.keys.has_value()) {
    if (const absl::Status sorted = SortRows(partition.rows, context, &grouping); !sorted.ok()) return sorted;
  }
  ForRanges(outputs, reduction.task_outputs(outputs, arena.max_concurrency()), arena,
            [&](std::int64_t begin, std::int64_t end) {
              reduction.Run(begin, end);
              return !reduction.stopped();
            });
  return reduction.status();
}

}  // namespace reduced
