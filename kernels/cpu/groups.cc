#include "kernels/cpu/groups.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "kernels/algebra/finalize.h"
#include "kernels/cpu/arrays.h"
#include "kernels/cpu/folding.h"
#include "kernels/cpu/grouping.h"
#include "kernels/cpu/key_tables.h"
#include "kernels/cpu/quick_answers.h"
#include "kernels/cpu/side_arrays.h"
#include "kernels/engine/output_errors.h"
#include "oneapi/tbb/blocked_range.h"
#include "oneapi/tbb/parallel_for.h"
#include "oneapi/tbb/parallel_reduce.h"

namespace reduced {
namespace {

// Positions that are looked at in one go, and between two ranks that are known.
constexpr std::int64_t kRun = 4096;
// Outputs of more bytes are folded by themselves.
constexpr std::int64_t kShortBytes = 16 << 10;

constexpr std::int64_t kOutputs = 64;  // between two looks at the deadline

// Copies elements at `indices` of the array. Word: of an element's size.
template <class Word>
void Pick(const std::byte* data, const std::int64_t* indices, std::int64_t count, std::byte* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(out + i * sizeof(Word), data + indices[i] * static_cast<std::int64_t>(sizeof(Word)), sizeof(Word));
  }
}

// Copies the neighbouring elements that the mask keeps; returns how many. `out` has room for all.
template <class Word>
std::int64_t Keep(const std::byte* data, const std::uint8_t* kept, std::int64_t count, std::byte* out) {
  std::int64_t n = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(out + n * sizeof(Word), data + i * sizeof(Word), sizeof(Word));
    n += kept[i] != 0;
  }
  return n;
}

// By the size of an element.
struct Moves {
  void (*pick)(const std::byte* data, const std::int64_t* indices, std::int64_t count, std::byte* out);
  std::int64_t (*keep)(const std::byte* data, const std::uint8_t* kept, std::int64_t count, std::byte* out);
};
Moves MovesOf(std::int64_t width) {
  switch (width) {
    case 1:
      return {&Pick<std::uint8_t>, &Keep<std::uint8_t>};
    case 2:
      return {&Pick<std::uint16_t>, &Keep<std::uint16_t>};
    case 4:
      return {&Pick<std::uint32_t>, &Keep<std::uint32_t>};
    default:
      return {&Pick<std::uint64_t>, &Keep<std::uint64_t>};
  }
}

// One output. Its positions are those of its elements before the mask, its ranks those of its elements.
struct Output {
  std::int64_t number = 0;
  std::int64_t start = 0;      // index of position 0 in the array; with keys: in the sorted rows
  std::int64_t column = 0;     // with keys
  std::int64_t positions = 0;  // how many
  std::int64_t count = 0;      // of elements
  // With a mask, and more than kRun positions: the rank of the first element from each kRun-th position on.
  std::vector<std::int64_t> ranks{};
};

class GroupReduction {
 public:
  // `grouping`: of segments or keys; the bounds and rows of keys may come later, before Run.
  GroupReduction(const Job& job, const std::byte* data, const Grouping& grouping, MaskView mask,
                 std::vector<std::byte*> answers)
      : job_(job),
        spec_(SpecOf(job)),
        layout_(job.partition->layout),
        data_(data),
        grouping_(grouping),
        keyed_(job.partition->keys.has_value()),
        grouped_(job.partition->grouped()),
        mask_(keyed_ && layout_.outputs == 1 ? MaskView() : mask),  // else it made the groups
        answers_(std::move(answers)),
        plan_(spec_),
        width_(RowOf(spec_.dtype).bytes),
        moves_(MovesOf(width_)),
        adjacent_(!keyed_ && (grouped_ ? layout_.outputs == 1 : layout_.run() >= layout_.elements)),
        quick_(job.states == nullptr ? QuickAnswers::For(spec_) : std::nullopt),
        states_(job.states),
        errors_(answers_.size(), job.errors) {
    names_.shape = layout_.shape;
    if (grouped_) names_.shape.insert(names_.shape.begin(), grouping.groups);
    ReduceSpec none = spec_;
    none.count = 0;
    const State state = StateOf({}, none);
    for (const Op op : none.ops) of_nothing_.push_back(Finalize(none, op, state));
  }

  // The tables that answer all ops of most groups; null: there are none.
  absl::StatusOr<std::unique_ptr<KeyTables>> Tables(const GroupingContext& context) const {
    if (!keyed_ || layout_.outputs != 1 || !quick_.has_value()) return nullptr;
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
    for (std::int64_t first = begin; first < end && !Stopped(); first += kQuickOutputs) {
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
    if (quick_.has_value() && adjacent_ && grouped_ && !mask_) return RunSegments(begin, end);
    std::vector<Output> together;
    std::int64_t bytes = 0;
    const auto answer = [&] {
      if (!together.empty()) AnswerTogether(together);
      together.clear();
      bytes = 0;
    };
    for (std::int64_t number = begin; number < end; ++number) {
      if (Passed(number, number - begin)) return;
      Output output = OutputOf(number);
      const std::int64_t more = output.count * width_;
      const bool is_short = quick_.has_value() && more <= kShortBytes;
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
    return std::min(kBlockBytes / (bytes + AnswerBytes(quick_.has_value())), outputs / (4 * threads));
  }

  // Whether the answers are not wanted any more.
  bool stopped() const { return stop_.load(std::memory_order_relaxed); }

  absl::Status status() {
    const absl::MutexLock lock(&mutex_);
    return why_.ok() ? errors_.Finish(names_) : why_;
  }

 private:
  // Whether output `number`, the `since`-th of some, need not be answered any more.
  bool Passed(std::int64_t number, std::int64_t since) {
    return errors_.Ended(number) || (since % kOutputs == 0 && Stopped());
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

  bool Stopped() {
    if (stop_.load(std::memory_order_relaxed)) return true;
    absl::Status why = WhyStop(job_);
    if (why.ok()) return false;
    stop_.store(true, std::memory_order_relaxed);
    const absl::MutexLock lock(&mutex_);
    why_.Update(why);
    return true;
  }

  Output OutputOf(std::int64_t number) {
    Output output{.number = number};
    if (grouped_) {
      const std::int64_t group = number / layout_.outputs;
      output.column = number % layout_.outputs;
      const std::int64_t begin = grouping_.bounds[group];
      output.positions = grouping_.bounds[group + 1] - begin;
      output.start = keyed_ ? begin : begin * layout_.outputs + output.column;
    } else {
      output.positions = layout_.elements;
      output.start = layout_.elements == 0 ? 0 : layout_.Start(number);
    }
    output.count = output.positions;
    if (mask_) CountRanks(&output);
    return output;
  }

  // The indexes in the array of some positions.
  void Indices(const Output& output, std::int64_t first, std::int64_t count, std::int64_t* indices) const {
    const std::int64_t columns = layout_.outputs;
    if (keyed_) {
      const std::uint32_t* const rows = grouping_.rows + output.start + first;
      for (std::int64_t i = 0; i < count; ++i) indices[i] = std::int64_t{rows[i]} * columns + output.column;
    } else if (grouped_) {
      for (std::int64_t i = 0; i < count; ++i) indices[i] = output.start + (first + i) * columns;
    } else if (!layout_.reduced.empty()) {
      const Dimension& inner = layout_.reduced.back();
      for (std::int64_t i = 0; i < count;) {
        const std::int64_t run = std::min(count - i, inner.size - (first + i) % inner.size);
        const std::int64_t start = output.start + layout_.At(first + i);
        for (std::int64_t j = 0; j < run; ++j) indices[i + j] = start + j * inner.stride;
        i += run;
      }
    } else {
      indices[0] = output.start;  // of the only position
    }
  }

  // The number of elements from position `first` on, of at most kRun positions.
  std::int64_t CountKept(const Output& output, std::int64_t first, std::int64_t positions) const {
    if (adjacent_) return mask_.Count(output.start + first, positions);
    std::int64_t indices[kRun];
    Indices(output, first, positions, indices);
    std::int64_t kept = 0;
    for (std::int64_t i = 0; i < positions; ++i) kept += mask_.Keeps(indices[i]);
    return kept;
  }

  void CountRanks(Output* output) {
    if (output->positions <= kRun) {
      output->count = CountKept(*output, 0, output->positions);
      return;
    }
    const std::int64_t runs = (output->positions + kRun - 1) / kRun;
    output->ranks.resize(static_cast<std::size_t>(runs));
    const auto count = [&](const tbb::blocked_range<std::int64_t>& range) {
      if (Stopped()) return;
      for (std::int64_t run = range.begin(); run < range.end(); ++run) {
        output->ranks[run] = CountKept(*output, run * kRun, std::min(kRun, output->positions - run * kRun));
      }
    };
    tbb::parallel_for(tbb::blocked_range<std::int64_t>(0, runs, 64), count, tbb::simple_partitioner());
    std::int64_t rank = 0;
    for (std::int64_t& run : output->ranks) rank += std::exchange(run, rank);
    output->count = rank;
  }

  // Copies the elements of at most kRun positions to `out`, which has room for as many; returns how many there are.
  std::int64_t Gather(const Output& output, std::int64_t first, std::int64_t positions, std::byte* out) const {
    if (adjacent_) {
      const std::int64_t index = output.start + first;
      if (!mask_) {
        std::memcpy(out, data_ + index * width_, static_cast<std::size_t>(positions * width_));
        return positions;
      }
      std::uint8_t room[kRun];
      return moves_.keep(data_ + index * width_, mask_.Bytes(index, positions, room), positions, out);
    }
    std::int64_t indices[kRun];
    Indices(output, first, positions, indices);
    std::int64_t kept = positions;
    if (mask_) {
      kept = 0;
      for (std::int64_t i = 0; i < positions; ++i) {
        const std::int64_t index = indices[i];
        indices[kept] = index;
        kept += mask_.Keeps(index);
      }
    }
    moves_.pick(data_, indices, kept, out);
    return kept;
  }

  // Calls `fold(data, rank, count)` for elements [first, first + count), in pieces of a tile.
  template <class Fold>
  void ForTiles(const Output& output, std::int64_t first, std::int64_t count, const Fold& fold) const {
    if (count == 0) return;
    if (adjacent_ && !mask_) return fold(data_ + (output.start + first) * width_, first, count);
    const std::int64_t tile = kTileBytes / width_;
    thread_local std::unique_ptr<std::byte[]> buffer;  // a tile, and what comes with the run in which it ends
    if (buffer == nullptr) buffer = std::make_unique<std::byte[]>(kTileBytes + kRun * sizeof(std::uint64_t));
    std::int64_t position = first;
    std::int64_t skip = 0;  // of the first run
    if (mask_) {
      const auto after = std::upper_bound(output.ranks.begin(), output.ranks.end(), first);
      const std::int64_t run = output.ranks.empty() ? 0 : after - output.ranks.begin() - 1;
      position = run * kRun;
      skip = first - (output.ranks.empty() ? 0 : output.ranks[run]);
    }
    std::int64_t has = 0;  // elements in the buffer
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t wanted = std::min(tile, count - done);
      while (has < wanted && position < output.positions) {
        const std::int64_t run = std::min(kRun, output.positions - position);
        std::byte* const end = buffer.get() + has * width_;
        std::int64_t came = Gather(output, position, run, end);
        position += run;
        const std::int64_t left_out = std::min(std::exchange(skip, 0), came);
        came -= left_out;
        if (left_out > 0) std::memmove(end, end + left_out * width_, static_cast<std::size_t>(came * width_));
        has += came;
      }
      // A mask that has changed since its ranks were counted may leave less.
      if (has < wanted) std::memset(buffer.get() + has * width_, 0, static_cast<std::size_t>((wanted - has) * width_));
      fold(buffer.get(), first + done, wanted);
      done += wanted;
      has = std::max<std::int64_t>(0, has - wanted);
      std::memmove(buffer.get(), buffer.get() + wanted * width_, static_cast<std::size_t>(has * width_));
    }
  }

  // What answers call the index of the element of that rank.
  std::int64_t IndexOf(const Output& output, std::int64_t rank) const {
    std::int64_t position = rank;
    if (mask_) {
      const auto after = std::upper_bound(output.ranks.begin(), output.ranks.end(), rank);
      const std::int64_t run = output.ranks.empty() ? 0 : after - output.ranks.begin() - 1;
      std::int64_t before = output.ranks.empty() ? 0 : output.ranks[run];
      position = run * kRun;
      std::int64_t indices[kRun];
      const std::int64_t positions = std::min(kRun, output.positions - position);
      Indices(output, position, positions, indices);
      std::int64_t i = 0;
      for (; i + 1 < positions; ++i) {
        if (mask_.Keeps(indices[i]) && before++ == rank) break;
      }
      position += i;
    }
    return keyed_ ? grouping_.rows[output.start + position] : position;
  }

  void FoldBlocks(const Output& output, const tbb::blocked_range<std::int64_t>& blocks, Folded* into) {
    const std::int64_t block = kBlockBytes / width_;
    for (std::int64_t b = blocks.begin(); b != blocks.end(); ++b) {
      if (Stopped()) return;
      ForTiles(output, b * block, std::min(block, output.count - b * block),
               [&](const std::byte* elements, std::int64_t first, std::int64_t count) {
                 FoldElements(plan_, elements, first, count, into);
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
    ExtremaState& extrema = state.partial.extrema;
    for (std::int64_t* const index : {&extrema.min_index, &extrema.max_index, &extrema.nan_index}) {
      if (*index != kNoIndex) *index = IndexOf(output, *index);
    }
    return state;
  }

  // Writes the answers of an output.
  void Answer(const Output& output) {
    if (output.count == 0 && states_ == nullptr) return errors_.Store(of_nothing_, answers_, output.number);
    ReduceSpec one = spec_;
    one.count = output.count;
    const State state = StateOf(output, one);
    if (stop_.load(std::memory_order_relaxed)) return;
    if (states_ != nullptr) (*states_)[static_cast<std::size_t>(output.number)] = state;
    errors_.Store(one, state, answers_, output.number);
  }

  // Gathers short outputs, which follow each other, and answers them.
  void AnswerTogether(const std::vector<Output>& outputs) {
    std::int64_t bounds[kQuickOutputs + 1] = {};
    thread_local std::unique_ptr<std::byte[]> buffer;
    if (buffer == nullptr) buffer = std::make_unique<std::byte[]>(kShortBytes);
    const auto size = static_cast<std::int64_t>(outputs.size());
    for (std::int64_t i = 0; i < size; ++i) {
      bounds[i + 1] = bounds[i] + outputs[i].count;
      ForTiles(outputs[i], 0, outputs[i].count, [&](const std::byte* elements, std::int64_t first, std::int64_t count) {
        std::memcpy(buffer.get() + (bounds[i] + first) * width_, elements, static_cast<std::size_t>(count * width_));
      });
    }
    AnswerTogether(buffer.get(), bounds, outputs.front().number, size, outputs.data());
  }

  // Answers short outputs from number `first` on, side by side, and those that can't be answered so from their states.
  // `outputs`: null: positions are ranks.
  void AnswerTogether(const std::byte* start, const std::int64_t* bounds, std::int64_t first, std::int64_t size,
                      const Output* outputs) {
    QuickFound found;
    std::int64_t counts[kQuickOutputs];
    for (std::int64_t i = 0; i < size; ++i) counts[i] = bounds[i + 1] - bounds[i];
    quick_->FindSegments(start, bounds, size, &found);
    for (std::int64_t i = 0; outputs != nullptr && quick_->takes_extrema() && i < size; ++i) {
      QuickExtrema& extrema = found.extrema;
      if (extrema.has_nan[i]) continue;
      if (quick_->positions().lowest) extrema.lowest_at[i] = IndexOf(outputs[i], extrema.lowest_at[i]);
      if (quick_->positions().highest) extrema.highest_at[i] = IndexOf(outputs[i], extrema.highest_at[i]);
    }
    Store(found, counts, first, size, [&](std::int64_t i, std::int64_t number) {
      if (counts[i] == 0) return Answer({.number = number});
      Specials specials;
      if (quick_->MayBeSpecial(found, i)) quick_->Look(start + bounds[i] * width_, counts[i], width_, 0, &specials);
      if (outputs != nullptr && specials.first_nan.has_value()) {
        specials.first_nan = IndexOf(outputs[i], *specials.first_nan);
      }
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

  const Job& job_;
  const ReduceSpec spec_;  // the question about the whole array
  const Layout& layout_;
  const std::byte* const data_;
  const Grouping& grouping_;
  const bool keyed_;
  const bool grouped_;  // by segments or keys
  const MaskView mask_;
  const std::vector<std::byte*> answers_;  // of each op
  const Plan plan_;
  const std::int64_t width_;  // bytes of an element
  const Moves moves_;
  const bool adjacent_;                      // an output's positions are neighbours in the array
  const std::optional<QuickAnswers> quick_;  // of all ops
  std::vector<State>* const states_;         // null: they are not wanted
  Layout names_;                             // of the outputs, for messages
  // Of an output without elements.
  std::vector<absl::StatusOr<Value>> of_nothing_;

  std::atomic<bool> stop_ = false;
  OutputErrors errors_;
  absl::Mutex mutex_;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);  // to stop
};

// Calls `run` with ranges of [0, count), of at least `grain`, on the threads of the arena, until one of them returns
// false: of millions of ranges, the others do not even begin.
template <class Run>
void ForRanges(std::int64_t count, std::int64_t grain, tbb::task_arena& arena, const Run& run) {
  const tbb::blocked_range<std::int64_t> all(0, count, static_cast<std::size_t>(std::max<std::int64_t>(1, grain)));
  tbb::task_group_context tasks;
  const auto each = [&](const tbb::blocked_range<std::int64_t>& some) {
    if (!run(some.begin(), some.end())) tasks.cancel_group_execution();
  };
  arena.execute([&] { tbb::parallel_for(all, each, tbb::simple_partitioner(), tasks); });
}

}  // namespace

absl::Status ReduceGroups(const Job& job, const std::byte* data, ArrayBudget& scratch, tbb::task_arena& arena) {
  const Partition& partition = *job.partition;
  std::vector<std::unique_ptr<ArrayMemory>> memory;
  MaskView mask;
  if (partition.mask.has_value() && job.spec.count > 0) {
    const absl::StatusOr<const std::byte*> bytes = SideInMemory(partition.mask->array, job, scratch, &memory);
    if (!bytes.ok()) return bytes.status();
    mask = MaskView(*partition.mask, *bytes);
  }
  const auto why_stop = [&job] { return WhyStop(job); };
  const GroupingContext context{scratch, arena, why_stop};
  Grouping grouping{.groups = 1};
  if (partition.grouped()) {
    const absl::StatusOr<const std::byte*> side = SideInMemory(GroupingSide(partition), job, scratch, &memory);
    if (!side.ok()) return side.status();
    absl::StatusOr<Grouping> found = GroupingOf(partition, *side, mask, context);
    if (!found.ok()) return found.status();
    grouping = *std::move(found);
  }
  std::int64_t outputs = 0;
  if (__builtin_mul_overflow(grouping.groups, partition.layout.outputs, &outputs)) {
    outputs = std::numeric_limits<std::int64_t>::max();  // more than there is memory for
  }
  absl::StatusOr<std::vector<std::byte*>> answers = job.place(outputs, grouping.groups, grouping.keys);
  if (!answers.ok()) return answers.status();
  if (job.states != nullptr) job.states->resize(static_cast<std::size_t>(outputs));

  GroupReduction reduction(job, data, grouping, mask, *std::move(answers));
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
