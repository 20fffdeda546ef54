#include "kernels/cpu/slices.h"

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
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "kernels/algebra/finalize.h"
#include "kernels/cpu/columns.h"
#include "kernels/cpu/folding.h"
#include "kernels/cpu/quick_extrema.h"
#include "kernels/cpu/quick_sums.h"
#include "oneapi/tbb/blocked_range.h"
#include "oneapi/tbb/parallel_for.h"
#include "oneapi/tbb/parallel_reduce.h"

namespace reduced {
namespace {

// Neighbouring outputs that are gathered together: a cache line or more of each row of the array.
constexpr std::int64_t kGroup = 32;

// Between the gathered tiles of two outputs: not a power of two, so that they don't compete for the same cache lines.
constexpr std::int64_t kTileStride = kTileBytes + 64;

// Of rows whose extrema are found in one go, between two looks at the deadline.
constexpr std::int64_t kQuickBytes = std::int64_t{4} << 20;

// Copies elements [first, first + count) of `group` neighbouring outputs, the first of which starts at `start`; those
// of output g to `out` + g x kTileStride. Word: of an element's size.
template <class Word>
void Gather(const Layout& layout, const std::byte* start, std::int64_t first, std::int64_t count, std::int64_t group,
            std::byte* out) {
  const std::int64_t size = layout.reduced.empty() ? 1 : layout.reduced.back().size;
  const std::int64_t step = (layout.reduced.empty() ? 1 : layout.reduced.back().stride) * sizeof(Word);
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t position = first + done;
    const std::int64_t run = std::min(count - done, size - position % size);
    const std::byte* from = start + layout.At(position) * static_cast<std::int64_t>(sizeof(Word));
    if (group == 1 && step == sizeof(Word)) {
      std::memcpy(out + done * sizeof(Word), from, run * sizeof(Word));
    } else {
      for (std::int64_t i = 0; i < run; ++i, from += step) {
        std::byte* to = out + (done + i) * sizeof(Word);
        for (std::int64_t g = 0; g < group; ++g, to += kTileStride) {
          std::memcpy(to, from + g * sizeof(Word), sizeof(Word));
        }
      }
    }
    done += run;
  }
}

using GatherTile = void (*)(const Layout&, const std::byte*, std::int64_t, std::int64_t, std::int64_t, std::byte*);
GatherTile GatherOf(int element_bytes) {
  switch (element_bytes) {
    case 1:
      return &Gather<std::uint8_t>;
    case 2:
      return &Gather<std::uint16_t>;
    case 4:
      return &Gather<std::uint32_t>;
    default:
      return &Gather<std::uint64_t>;
  }
}

// Ways of finding what columns are answered from, as in columns.h.
struct FindSums {
  using Found = QuickSums;
  static constexpr std::int64_t kMost = kQuickOutputs;
  SumColumns sums;

  void Find(const Layout& layout, const std::byte* start, std::int64_t count, QuickSums* found) const {
    sums(layout, start, count, found);
  }
  void Clear(std::int64_t count, QuickSums* found) const { ClearSums(count, found); }
  void Merge(const QuickSums& from, std::int64_t at, std::int64_t count, std::int64_t /*offset*/, std::int64_t /*step*/,
             QuickSums* found) const {
    MergeSums(from, at, count, found);
  }
};
struct FindExtrema {
  using Found = QuickExtrema;
  static constexpr std::int64_t kMost = QuickExtrema::kMost;
  const QuickExtremaOf& extrema;
  Positions positions;

  void Find(const Layout& layout, const std::byte* start, std::int64_t count, QuickExtrema* found) const {
    extrema.columns(layout, start, count, positions, found);
  }
  void Clear(std::int64_t count, QuickExtrema* found) const { extrema.clear(count, found); }
  void Merge(const QuickExtrema& from, std::int64_t at, std::int64_t count, std::int64_t offset, std::int64_t step,
             QuickExtrema* found) const {
    extrema.merge(from, at, count, offset, step, positions, found);
  }
};

class SliceReduction {
 public:
  SliceReduction(const SlicesJob& job, const std::byte* data, bool alone)
      : job_(job),
        layout_(job.layout),
        data_(data),
        alone_(alone),
        one_(SpecOfOne(job)),
        plan_(one_),
        width_(RowOf(one_.dtype).bytes),
        gather_(GatherOf(static_cast<int>(width_))),
        short_(layout_.elements * width_ <= kBlockBytes),
        quick_(job.states == nullptr ? QuickOf(one_, layout_) : Quick{}),
        // Rows of the array are neighbours, too, where they are answered quickly.
        row_(quick_.order == Order::kRows ? layout_.outputs
             : layout_.outputs > 0        ? layout_.adjacent()
                                          : 1),
        group_(quick_.group),
        groups_((row_ + group_ - 1) / group_) {}

  // Groups of outputs, in their order; and how many make a task.
  std::int64_t units() const { return layout_.outputs / row_ * groups_; }
  std::int64_t task_units() const {
    const std::int64_t outputs = std::min(row_, group_);
    const std::int64_t bytes = outputs * (layout_.elements * width_ + kAnswerBytes);
    return std::max<std::int64_t>(1, kBlockBytes / bytes);
  }

  // Answers the outputs of units [begin, end), unless the reduction has stopped.
  void Run(std::int64_t begin, std::int64_t end) {
    for (std::int64_t unit = begin; unit < end && !stop_.load(std::memory_order_relaxed); ++unit) {
      const std::int64_t in_row = unit % groups_ * group_;
      const std::int64_t output = unit / groups_ * row_ + in_row;
      if (output > failed_.load(std::memory_order_relaxed)) return;
      const std::int64_t count = std::min(group_, row_ - in_row);
      if (quick_.order == Order::kAny) {
        Answer(output, count);
      } else {
        AnswerQuickly(output, count);
      }
    }
  }

  absl::Status status() {
    const absl::MutexLock lock(&mutex_);
    return why_.ok() ? error_ : why_;
  }

 private:
  static ReduceSpec SpecOfOne(const SlicesJob& job) {
    ReduceSpec one = job.job.spec;
    one.count = job.layout.elements;
    return one;
  }

  // How all ops are answered without a state for each output: from sums or from extrema. kAny: they are not, because of
  // the ops, or because outputs are neither columns nor rows, or long enough for tasks of their own.
  enum class Order { kAny, kColumns, kRows };
  struct Quick {
    Order order = Order::kAny;
    QuickSumsOf sums{};        // of sums and means
    QuickExtremaOf extrema{};  // of extrema, and their positions
    Positions positions{};
    std::int64_t group = kGroup;  // outputs in one go
  };
  static Quick QuickOf(const ReduceSpec& one, const Layout& layout) {
    constexpr std::int64_t kFewColumns = 8;
    constexpr std::int64_t kLong = 4 * kBlockBytes;
    const std::int64_t width = RowOf(one.dtype).bytes;
    const std::int64_t bytes = one.count * width;
    if (bytes == 0 || layout.outputs == 0) return {};
    Quick quick;
    if (layout.adjacent() >= kFewColumns || AreFewAndDense(layout)) {
      quick.order = Order::kColumns;
    } else if (layout.run() >= layout.elements && layout.kept.size() <= 1 && bytes <= kLong) {
      quick.order = Order::kRows;
    } else {
      return {};
    }
    const auto is_sum = [](Op op) { return op == Op::kSum || op == Op::kMean; };
    if (std::all_of(one.ops.begin(), one.ops.end(), IsQuickExtremum)) {
      quick.extrema = QuickExtremaFor(one.dtype);
      if (quick.extrema.store == nullptr) return {};
      for (const Op op : one.ops) quick.positions = With(op, quick.positions);
      // Many columns are cut into parts.
      const std::int64_t most = QuickExtrema::kMost;
      quick.group = quick.order == Order::kColumns ? most : std::clamp<std::int64_t>(kQuickBytes / bytes, 1, most);
    } else if ((!RowOf(one.dtype).is_float || one.precision == Precision::kExact) &&
               std::all_of(one.ops.begin(), one.ops.end(), is_sum)) {
      static_assert(kLong <= kQuickIntegerBytes && kColumnBytes <= kQuickIntegerBytes);
      constexpr std::int64_t kMostIntegers = std::int64_t{1} << 31;  // whose sums fit in 64 bits
      quick.sums = QuickSumsFor(one.dtype);
      if (quick.sums.rows == nullptr || (!RowOf(one.dtype).is_float && one.count > kMostIntegers)) return {};
      quick.group = kQuickOutputs;
    } else {
      return {};
    }
    // Parts are rows of the outermost dimension, which must not be much.
    const std::int64_t outer = layout.reduced.empty() ? 1 : layout.reduced.front().size;
    const bool fits = bytes <= kLong || bytes / outer <= kColumnBytes / std::min(quick.group, layout.adjacent());
    return fits ? quick : Quick{};
  }

  bool Stopped() {
    if (stop_.load(std::memory_order_relaxed)) return true;
    absl::Status why = WhyStop(job_.job);
    if (why.ok()) return false;
    stop_.store(true, std::memory_order_relaxed);
    const absl::MutexLock lock(&mutex_);
    why_.Update(why);
    return true;
  }

  // Folds the blocks of `group` outputs, the first of which starts at `start`.
  void FoldBlocks(const std::byte* start, std::int64_t group, const tbb::blocked_range<std::int64_t>& blocks,
                  std::vector<Folded>* into) {
    const std::int64_t block = kBlockBytes / width_;
    for (std::int64_t b = blocks.begin(); b != blocks.end(); ++b) {
      if (Stopped()) return;
      FoldBlock(start, group, b * block, std::min(block, layout_.elements - b * block), into->data());
    }
  }

  void FoldBlock(const std::byte* start, std::int64_t group, std::int64_t first, std::int64_t count, Folded* into) {
    if (group == 1 && layout_.run() >= layout_.elements) {
      return FoldElements(plan_, start + first * width_, first, count, into);
    }
    thread_local std::unique_ptr<std::byte[]> tiles;
    if (tiles == nullptr) tiles = std::make_unique<std::byte[]>(kGroup * kTileStride);
    const std::int64_t tile = kTileBytes / width_;
    for (std::int64_t done = 0; done < count; done += tile) {
      const std::int64_t n = std::min(tile, count - done);
      gather_(layout_, start, first + done, n, group, tiles.get());
      for (std::int64_t g = 0; g < group; ++g) {
        FoldElements(plan_, tiles.get() + g * kTileStride, first + done, n, into + g);
      }
    }
  }

  // The states of `group` neighbouring outputs.
  std::vector<State> StatesOf(std::int64_t output, std::int64_t group) {
    const auto size = static_cast<std::size_t>(group);
    const std::byte* const start = data_ + (layout_.elements == 0 ? 0 : layout_.Start(output)) * width_;
    std::vector<State> states(size);
    if (plan_.exact_accumulators != 0) {
      for (State& state : states) state.exact = std::make_unique<ExactSums>();
    }
    absl::Mutex mutex;  // of the exact sums
    const auto fold = [&](const tbb::blocked_range<std::int64_t>& blocks, std::vector<Partial> partials) {
      partials.resize(size);
      std::vector<Folded> into;
      into.reserve(size);
      for (Partial& partial : partials) into.emplace_back(one_, plan_, &partial);
      FoldBlocks(start, group, blocks, &into);
      if (plan_.exact_accumulators != 0) {
        const absl::MutexLock lock(&mutex);
        for (std::size_t g = 0; g < size; ++g) Merge(into[g].exact->sums(), states[g].exact.get());
      }
      return partials;
    };
    const auto combine = [](std::vector<Partial> earlier, const std::vector<Partial>& later) {
      earlier.resize(std::max(earlier.size(), later.size()));
      for (std::size_t g = 0; g < later.size(); ++g) Combine(later[g], &earlier[g]);
      return earlier;
    };
    const tbb::blocked_range<std::int64_t> blocks = BlocksOf(one_);
    // The calling thread may not wait for others: then the array is small, and each output one block.
    std::vector<Partial> partials =
        alone_ || !blocks.is_divisible()
            ? fold(blocks, {})
            : tbb::parallel_deterministic_reduce(blocks, std::vector<Partial>(), fold, combine);
    for (std::size_t g = 0; g < size; ++g) {
      states[g].partial = partials[g];
      states[g].partial.count = layout_.elements;
    }
    return states;
  }

  void Answer(std::int64_t output, std::int64_t group) {
    if (group == 1 && short_ && plan_.exact_accumulators == 0) return AnswerShort(output);
    if (Stopped()) return;
    const std::vector<State> states = StatesOf(output, group);
    if (stop_.load(std::memory_order_relaxed)) return;
    for (const State& state : states) {
      if (!Store(output++, state)) return;
    }
  }

  // One output that is one block, without exact sums: of many, each must take little.
  void AnswerShort(std::int64_t output) {
    constexpr std::int64_t kOutputs = 64;  // between two looks at the deadline
    if ((output % kOutputs == 0 || layout_.elements * width_ > kBlockBytes / kOutputs) && Stopped()) return;
    State state;
    Folded into(one_, plan_, &state.partial);
    if (layout_.elements > 0) FoldBlock(data_ + layout_.Start(output) * width_, 1, 0, layout_.elements, &into);
    state.partial.count = layout_.elements;
    Store(output, state);
  }

  // Writes the answers of an output, and its state if that is wanted. False if it has an error instead.
  bool Store(std::int64_t output, const State& state) {
    if (job_.states != nullptr) (*job_.states)[static_cast<std::size_t>(output)] = state;
    if (job_.answers.empty()) return true;
    const absl::StatusOr<std::vector<Value>> values = Finalize(one_, state);
    if (!values.ok()) {
      Fail(output, values.status());
      return false;
    }
    for (std::size_t i = 0; i < values->size(); ++i) {
      const Value& value = (*values)[i];
      StoreValue(value, job_.answers[i] + output * RowOf(value.dtype).bytes);
    }
    return true;
  }

  // Answers `count` outputs side by side, and those that can't be answered so from their states.
  void AnswerQuickly(std::int64_t output, std::int64_t count) {
    if (quick_.order == Order::kRows && Stopped()) return;
    const std::byte* const start = data_ + layout_.Start(output) * width_;
    if (quick_.extrema.store != nullptr) {
      AnswerExtrema(start, output, count);
    } else {
      AnswerSums(start, output, count);
    }
  }

  template <class Way>
  bool FindColumns(const Way& way, const std::byte* start, std::int64_t count, typename Way::Found* found) {
    return FindInParts(
        way, {layout_, start, count, width_}, alone_, [this] { return Stopped(); }, found);
  }

  void AnswerSums(const std::byte* start, std::int64_t output, std::int64_t count) {
    QuickSums sums;
    if (quick_.order == Order::kRows) {
      quick_.sums.rows(start, layout_.elements, count, &sums);
    } else if (!FindColumns(FindSums{quick_.sums.columns}, start, count, &sums)) {
      return;
    }
    if (StoreSums(sums, output, count)) return;
    for (std::int64_t g = 0; g < count;) {
      g += AnswerFrom(sums, g, output + g) ? 1 : AnswerSome(output + g, count - g);
    }
  }

  void AnswerExtrema(const std::byte* start, std::int64_t output, std::int64_t count) {
    QuickExtrema extrema;
    if (quick_.order == Order::kRows) {
      quick_.extrema.rows(start, layout_.elements, count, quick_.positions, &extrema);
    } else if (!FindColumns(FindExtrema{quick_.extrema, quick_.positions}, start, count, &extrema)) {
      return;
    }
    const auto store = [&](std::int64_t g, std::int64_t outputs) {
      for (std::size_t i = 0; i < one_.ops.size(); ++i) {
        const Op op = one_.ops[i];
        const std::int64_t bytes = HasPosition(op) ? sizeof(std::int64_t) : width_;
        quick_.extrema.store(extrema, op, g, outputs, job_.answers[i] + (output + g) * bytes);
      }
      return outputs;
    };
    if (!extrema.any_nan) {
      store(0, count);
      return;
    }
    for (std::int64_t g = 0; g < count;) g += extrema.has_nan[g] ? AnswerSome(output + g, count - g) : store(g, 1);
  }

  // Answers an output from its state, columns together with up to `most` - 1 of their neighbours; returns how many.
  std::int64_t AnswerSome(std::int64_t output, std::int64_t most) {
    const std::int64_t group = quick_.order == Order::kRows ? 1 : std::min(kGroup, most);
    Answer(output, group);
    return group;
  }

  // All of them at once, if they are known.
  bool StoreSums(const QuickSums& sums, std::int64_t output, std::int64_t count) {
    for (std::size_t i = 0; i < one_.ops.size(); ++i) {
      std::byte* const answers = job_.answers[i] + output * static_cast<std::int64_t>(sizeof(double));
      const bool stored = one_.ops[i] == Op::kSum ? quick_.sums.store(sums, count, answers)
                                                  : quick_.sums.store_means(sums, count, layout_.elements, answers);
      if (!stored) return false;
    }
    return true;
  }

  // False if a sum or mean of the output is not known.
  bool AnswerFrom(const QuickSums& sums, std::int64_t i, std::int64_t output) {
    for (std::size_t op = 0; op < one_.ops.size(); ++op) {
      const std::optional<double> value =
          one_.ops[op] == Op::kSum ? QuickSum(sums, i) : QuickMean(sums, i, layout_.elements);
      if (!value.has_value()) return false;
      std::byte* const answer = job_.answers[op] + output * static_cast<std::int64_t>(sizeof(double));
      if (one_.ops[op] == Op::kSum && !RowOf(one_.dtype).is_float) {
        const std::int64_t sum = static_cast<std::int64_t>(sums.sum[i]) + static_cast<std::int64_t>(sums.rest[i]);
        std::memcpy(answer, &sum, sizeof(sum));
      } else {
        std::memcpy(answer, &*value, sizeof(*value));
      }
    }
    return true;
  }

  // Keeps the error of the first output that has one.
  void Fail(std::int64_t output, const absl::Status& status) {
    const absl::MutexLock lock(&mutex_);
    if (output >= failed_.load(std::memory_order_relaxed)) return;
    failed_.store(output, std::memory_order_relaxed);
    error_ = absl::Status(status.code(),
                          absl::StrCat("output ", OutputName(layout_, output), ": ", std::string(status.message())));
  }

  const SlicesJob& job_;
  const Layout& layout_;
  const std::byte* const data_;
  const bool alone_;
  const ReduceSpec one_;  // the question about one output
  const Plan plan_;
  const std::int64_t width_;  // bytes of an element
  const GatherTile gather_;
  const bool short_;  // an output is one block
  const Quick quick_;
  const std::int64_t row_;     // outputs whose elements are neighbours
  const std::int64_t group_;   // outputs that are reduced together
  const std::int64_t groups_;  // of a row

  std::atomic<bool> stop_ = false;
  std::atomic<std::int64_t> failed_ = std::numeric_limits<std::int64_t>::max();  // the first output with an error
  absl::Mutex mutex_;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);    // to stop
  absl::Status error_ ABSL_GUARDED_BY(mutex_);  // of output failed_
};

}  // namespace

absl::Status ReduceSlices(const SlicesJob& job, const std::byte* data, tbb::task_arena* arena) {
  if (job.states != nullptr) job.states->resize(static_cast<std::size_t>(job.layout.outputs));
  SliceReduction reduction(job, data, arena == nullptr);
  if (arena == nullptr) {
    reduction.Run(0, reduction.units());
    return reduction.status();
  }
  const tbb::blocked_range<std::int64_t> units(0, reduction.units(), static_cast<std::size_t>(reduction.task_units()));
  const auto run = [&](const tbb::blocked_range<std::int64_t>& range) { reduction.Run(range.begin(), range.end()); };
  arena->execute([&] { tbb::parallel_for(units, run, tbb::simple_partitioner()); });
  return reduction.status();
}

}  // namespace reduced
