#include "kernels/cpu/slices.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "kernels/cpu/columns.h"
#include "kernels/cpu/folding.h"
#include "kernels/cpu/quick_answers.h"
#include "kernels/cpu/task_stop.h"
#include "kernels/engine/output_errors.h"
#include "oneapi/tbb/blocked_range.h"
#include "oneapi/tbb/parallel_for.h"
#include "oneapi/tbb/parallel_reduce.h"

namespace reduced {
namespace {

// Neighbouring outputs that are gathered together: a cache line or more of each row of the array.
constexpr std::int64_t kGroup = 32;

// Between the gathered tiles of two outputs: not a power of two, so that they don't compete for the same cache lines.
constexpr std::int64_t kTileStride = kTileBytes + 64;

// Rows that are answered quickly in one go, between two looks at the deadline, however long they are, unless they may
// have to be copied.
constexpr std::int64_t kFewRows = 16;

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

// Finds what columns are answered from, as in columns.h.
struct FindQuickly {
  using Found = QuickFound;
  static constexpr std::int64_t kMost = kQuickOutputs;
  const QuickAnswers& quick;

  void Find(const Layout& layout, const std::byte* start, std::int64_t count, QuickFound* found) const {
    quick.FindColumns(layout, start, count, found);
  }
  void Clear(std::int64_t count, QuickFound* found) const { quick.Clear(count, found); }
  void Merge(const QuickFound& from, std::int64_t at, std::int64_t count, std::int64_t offset, std::int64_t step,
             QuickFound* found) const {
    quick.Merge(from, at, count, offset, step, found);
  }
};

class SliceReduction {
 public:
  SliceReduction(const Job& job, std::vector<std::byte*> answers, const std::byte* data, bool alone)
      : job_(job),
        layout_(job.partition->layout),
        answers_(std::move(answers)),
        data_(data),
        alone_(alone),
        one_(SpecOfOne(job)),
        plan_(one_),
        width_(RowOf(one_.dtype).bytes),
        gather_(GatherOf(static_cast<int>(width_))),
        short_(layout_.elements * width_ <= kBlockBytes),
        order_(job.states == nullptr ? OrderOf(one_, layout_) : Order::kAny),
        quick_(order_ == Order::kAny ? std::nullopt : QuickAnswers::For(one_)),
        // Rows of the array are neighbours, too, where they are answered quickly.
        row_(quick_.has_value() && order_ == Order::kRows ? layout_.outputs
             : layout_.outputs > 0                        ? layout_.adjacent()
                                                          : 1),
        group_(!quick_.has_value() ? kGroup
               : order_ == Order::kColumns
                   ? kQuickOutputs
                   : std::clamp<std::int64_t>(kQuickBytes / (layout_.elements * width_),
                                              quick_->may_copy() ? 1 : kFewRows, kQuickOutputs)),
        groups_((row_ + group_ - 1) / group_) {}

  // Groups of outputs, in their order; and how many make a task.
  std::int64_t units() const { return layout_.outputs / row_ * groups_; }
  std::int64_t task_units() const {
    const std::int64_t outputs = std::min(row_, group_);
    const std::int64_t bytes = outputs * (layout_.elements * width_ + AnswerBytes(quick_.has_value()));
    return std::max<std::int64_t>(1, kBlockBytes / bytes);
  }

  // Answers the outputs of units [begin, end), unless the reduction has stopped.
  void Run(std::int64_t begin, std::int64_t end) {
    if (stop_.requested()) return;
    const auto scratch = quick_.has_value() ? std::make_unique_for_overwrite<Scratch>() : nullptr;
    if (scratch != nullptr) std::fill_n(scratch->elements, std::min(row_, group_), layout_.elements);
    for (std::int64_t unit = begin; unit < end && !stop_.requested(); ++unit) {
      const std::int64_t in_row = unit % groups_ * group_;
      const std::int64_t output = unit / groups_ * row_ + in_row;
      if (errors_.Ended(output)) return;
      const std::int64_t count = std::min(group_, row_ - in_row);
      if (quick_.has_value()) {
        AnswerQuickly(output, count, scratch.get());
      } else {
        Answer(output, count);
      }
    }
  }

  absl::Status status() {
    const absl::Status why = stop_.why();
    return why.ok() ? errors_.Finish(layout_) : why;
  }

 private:
  static constexpr std::int64_t kLong = 4 * kBlockBytes;  // longer outputs have tasks of their own

  // What a task finds of some outputs at a time: too much for the stack.
  struct Scratch {
    QuickFound found;
    std::unique_ptr<QuickFound> piece;     // of a piece of each, if they have several
    std::int64_t elements[kQuickOutputs];  // of each
  };

  static ReduceSpec SpecOfOne(const Job& job) {
    const Layout& layout = job.partition->layout;
    ReduceSpec one = job.spec;
    one.count = layout.elements;
    // What is answered side by side is exact, and so are those of its outputs that are folded after all, so that no
    // output's bits depend on others.
    const bool is_short = one.count * RowOf(one.dtype).bytes <= kLong;
    const bool side_by_side = is_short || OrderOf(one, layout) != Order::kAny;
    if (job.states == nullptr && side_by_side) one.precision = Precision::kExact;
    return one;
  }

  // How outputs may be answered without a state for each: as neighbouring columns or as rows. kAny: they are neither,
  // or long enough for tasks of their own.
  enum class Order { kAny, kColumns, kRows };
  static Order OrderOf(const ReduceSpec& one, const Layout& layout) {
    constexpr std::int64_t kFewColumns = 8;
    constexpr std::int64_t kShortestPiece = 8;
    static_assert(kLong <= kQuickIntegerBytes && kColumnBytes <= kQuickIntegerBytes);
    const std::int64_t bytes = one.count * RowOf(one.dtype).bytes;
    if (bytes == 0 || layout.outputs == 0) return Order::kAny;
    if (layout.adjacent() >= kFewColumns || AreFewAndDense(layout)) {
      // Parts are rows of the outermost dimension, which must not be much.
      const std::int64_t outer = layout.reduced.empty() ? 1 : layout.reduced.front().size;
      const std::int64_t columns = std::min(kQuickOutputs, layout.adjacent());
      return bytes <= kLong || bytes / outer <= kColumnBytes / columns ? Order::kColumns : Order::kAny;
    }
    const std::int64_t run = layout.run();
    const bool whole = run >= layout.elements && layout.kept.size() <= 1;
    const bool in_pieces = run >= kShortestPiece && layout.kept.size() == 1 && layout.kept.back().stride == run;
    return (whole || in_pieces) && bytes <= kLong ? Order::kRows : Order::kAny;
  }

  // Folds the blocks of `group` outputs, the first of which starts at `start`.
  void FoldBlocks(const std::byte* start, std::int64_t group, const tbb::blocked_range<std::int64_t>& blocks,
                  std::vector<Folded>* into) {
    const std::int64_t block = kBlockBytes / width_;
    for (std::int64_t b = blocks.begin(); b != blocks.end(); ++b) {
      if (stop_.Due()) return;
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
    if (stop_.Due()) return;
    const std::vector<State> states = StatesOf(output, group);
    if (stop_.requested()) return;
    for (const State& state : states) Store(output++, state);
  }

  // One output that is one block, without exact sums: of many, each must take little.
  void AnswerShort(std::int64_t output) {
    constexpr std::int64_t kOutputs = 64;  // between two looks at the deadline
    if ((output % kOutputs == 0 || layout_.elements * width_ > kBlockBytes / kOutputs) && stop_.Due()) return;
    State state;
    Folded into(one_, plan_, &state.partial);
    if (layout_.elements > 0) FoldBlock(data_ + layout_.Start(output) * width_, 1, 0, layout_.elements, &into);
    state.partial.count = layout_.elements;
    Store(output, state);
  }

  // Writes the answers of an output, and its state if that is wanted.
  void Store(std::int64_t output, const State& state) {
    if (job_.states != nullptr) (*job_.states)[static_cast<std::size_t>(output)] = state;
    errors_.Store(one_, state, answers_, output);
  }

  // Answers `count` outputs side by side, and those that can't be answered so by themselves.
  void AnswerQuickly(std::int64_t output, std::int64_t count, Scratch* scratch) {
    const std::byte* const start = data_ + layout_.Start(output) * width_;
    QuickFound& found = scratch->found;
    if (order_ == Order::kColumns) {
      const auto stopped = [this] { return stop_.Due(); };
      if (!FindInParts(FindQuickly{*quick_}, {layout_, start, count, width_}, alone_, stopped, &found)) return;
    } else {
      if (stop_.Due()) return;
      FindRows(start, count, scratch);
    }
    bool known[kQuickOutputs];
    std::fill_n(known, count, true);
    quick_->Store(found, scratch->elements, count, answers_, output, known);
    for (std::int64_t g = std::find(known, known + count, false) - known; g < count;) {
      if (known[g] || AnswerSpecial(found, g, output + g)) {
        ++g;
      } else {  // columns together with some of their neighbours
        const std::int64_t some = order_ == Order::kRows ? 1 : std::min(kGroup, count - g);
        Answer(output + g, some);
        g += some;
      }
    }
  }

  void FindRows(const std::byte* start, std::int64_t count, Scratch* scratch) const {
    const std::int64_t piece = std::min(layout_.run(), layout_.elements);
    if (piece == layout_.elements) return quick_->FindRows(start, piece, count, &scratch->found);
    quick_->Clear(count, &scratch->found);
    if (scratch->piece == nullptr) scratch->piece = std::make_unique_for_overwrite<QuickFound>();
    for (std::int64_t first = 0; first < layout_.elements; first += piece) {
      quick_->FindRows(start + layout_.At(first) * width_, piece, count, scratch->piece.get());
      quick_->Merge(*scratch->piece, 0, count, first, /*step=*/1, &scratch->found);
    }
  }

  // Answers an output, of which `found` has what was found at g, if it has NaNs or infinities. False: it is not known
  // so, or the reduction has stopped.
  bool AnswerSpecial(const QuickFound& found, std::int64_t g, std::int64_t output) {
    constexpr std::int64_t kLook = 1 << 16;  // elements, between two looks at the deadline
    if (!quick_->MayBeSpecial(found, g)) return false;
    const std::byte* const start = data_ + layout_.Start(output) * width_;
    const Dimension inner = layout_.reduced.empty() ? Dimension{.size = 1} : layout_.reduced.back();
    Specials specials;
    for (std::int64_t run = 0; run < layout_.elements && !specials.first_nan.has_value(); run += inner.size) {
      const std::byte* const first = start + layout_.At(run) * width_;
      for (std::int64_t i = 0; i < inner.size; i += kLook) {
        if (layout_.elements > kLook && stop_.Due()) return false;
        const std::int64_t step = inner.stride * width_;
        quick_->Look(first + i * step, std::min(kLook, inner.size - i), step, run + i, &specials);
      }
    }
    return quick_->StoreSpecial(found, g, specials, layout_.elements, answers_, output);
  }

  const Job& job_;
  const Layout& layout_;
  const std::vector<std::byte*> answers_;  // of each op; empty: none are wanted
  const std::byte* const data_;
  const bool alone_;
  const ReduceSpec one_;  // the question about one output
  const Plan plan_;
  const std::int64_t width_;  // bytes of an element
  const GatherTile gather_;
  const bool short_;  // an output is one block
  const Order order_;
  const std::optional<QuickAnswers> quick_;  // of all ops
  const std::int64_t row_;                   // outputs whose elements are neighbours
  const std::int64_t group_;                 // outputs that are reduced together
  const std::int64_t groups_;                // of a row

  TaskStop stop_{job_};
  OutputErrors errors_{answers_.size(), job_.errors};
};

}  // namespace

absl::Status ReduceSlices(const Job& job, const std::byte* data, tbb::task_arena* arena) {
  const std::int64_t outputs = job.partition->layout.outputs;
  absl::StatusOr<std::vector<std::byte*>> answers = job.place(outputs, /*groups=*/1, /*keys=*/nullptr);
  if (!answers.ok()) return answers.status();
  if (job.states != nullptr) job.states->resize(static_cast<std::size_t>(outputs));
  SliceReduction reduction(job, *std::move(answers), data, arena == nullptr);
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
