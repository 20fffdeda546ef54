#include "kernels/cpu/output_elements.h"

#include <limits>

#include "kernels/engine/why_stop.h"
#include "oneapi/tbb/blocked_range.h"
#include "oneapi/tbb/parallel_for.h"
#include "oneapi/tbb/task_arena.h"

namespace reduced {
namespace {

// What GatherBeside appends: rows of neighbouring elements at `indices` of the array, an element of each output.
struct RowsBeside {
  const std::byte* data;
  const std::int64_t* indices;
  std::int64_t rows, outputs;
  const MaskView& mask;
  std::byte* out;
  std::int64_t room;
  std::int64_t* has;
};

// Moves elements of a size.
struct Moves {
  void (*append)(const RowsBeside& what);
  // Copies elements at `indices` of the array.
  void (*pick)(const std::byte* data, const std::int64_t* indices, std::int64_t count, std::byte* out);
  // Copies the elements whose byte of `kept` is not 0 to `out`, which has room for `count`; returns how many those are.
  std::int64_t (*keep)(const std::byte* data, const std::uint8_t* kept, std::int64_t count, std::byte* out);
  void (*fill)(const std::byte* element, std::int64_t count, std::byte* out);
};

template <class Word>
void AppendBeside(const RowsBeside& what) {
  constexpr auto kWidth = static_cast<std::int64_t>(sizeof(Word));
  constexpr std::int64_t kAhead = 8;  // rows, which may be far from each other
  std::int64_t* const has = what.has;
  for (std::int64_t row = 0; row < what.rows; ++row) {
    const std::int64_t index = what.indices[row];
    const std::byte* const from = what.data + index * kWidth;
    if (row + kAhead < what.rows) __builtin_prefetch(what.data + what.indices[row + kAhead] * kWidth);
    if (!what.mask) {
      std::byte* to = what.out + (has[0] + row) * kWidth;
      for (std::int64_t i = 0; i < what.outputs; ++i, to += what.room) std::memcpy(to, from + i * kWidth, kWidth);
      continue;
    }
    std::uint8_t bytes[OutputElements::kMostBeside];
    const std::uint8_t* const kept = what.mask.Bytes(index, what.outputs, bytes);
    std::byte* to = what.out;
    for (std::int64_t i = 0; i < what.outputs; ++i, to += what.room) {
      std::memcpy(to + has[i] * kWidth, from + i * kWidth, kWidth);
      has[i] += kept[i] != 0;
    }
  }
  for (std::int64_t i = 0; !what.mask && i < what.outputs; ++i) has[i] += what.rows;  // all have as many
}

template <class Word>
constexpr Moves kMovesOf = {&AppendBeside<Word>,
                            [](const std::byte* data, const std::int64_t* indices, std::int64_t count, std::byte* out) {
                              for (std::int64_t i = 0; i < count; ++i) {
                                std::memcpy(out + i * sizeof(Word),
                                            data + indices[i] * static_cast<std::int64_t>(sizeof(Word)), sizeof(Word));
                              }
                            },
                            [](const std::byte* data, const std::uint8_t* kept, std::int64_t count, std::byte* out) {
                              std::int64_t n = 0;
                              for (std::int64_t i = 0; i < count; ++i) {
                                std::memcpy(out + n * sizeof(Word), data + i * sizeof(Word), sizeof(Word));
                                n += kept[i] != 0;
                              }
                              return n;
                            },
                            [](const std::byte* element, std::int64_t count, std::byte* out) {
                              Word word;
                              std::memcpy(&word, element, sizeof(Word));
                              for (std::int64_t i = 0; i < count; ++i)
                                std::memcpy(out + i * sizeof(Word), &word, sizeof(Word));
                            }};

const Moves& MovesOf(std::int64_t width) {
  return width == 1   ? kMovesOf<std::uint8_t>
         : width == 2 ? kMovesOf<std::uint16_t>
         : width == 4 ? kMovesOf<std::uint32_t>
                      : kMovesOf<std::uint64_t>;
}

// Copies what goes with elements [index, index + count) of the array.
void CopyOthers(const ElementSource& source, std::int64_t index, std::int64_t count, std::byte* out) {
  const Dimension inner = source.broadcast.empty() ? Dimension{index + count, 1} : source.broadcast.back();
  while (count > 0) {
    const std::int64_t run = std::min(count, inner.size - index % inner.size);
    const std::int64_t other = source.broadcast.empty() ? index : BroadcastIndex(source.broadcast, index);
    const std::byte* const from = source.data + other * source.width;
    if (inner.stride == 0) {
      MovesOf(source.width).fill(from, run, out);
    } else {
      std::memcpy(out, from, static_cast<std::size_t>(run * source.width));
    }
    index += run;
    count -= run;
    out += run * source.width;
  }
}

bool AllInOrder(std::span<const ElementSource> sources) {
  return std::all_of(sources.begin(), sources.end(), [](const ElementSource& each) { return each.broadcast.empty(); });
}

}  // namespace

absl::StatusOr<LoadedPartition> LoadPartition(const Job& job, const std::byte* data, const GroupingContext& context) {
  const Partition& partition = *job.partition;
  LoadedPartition loaded;
  loaded.sources.push_back({data, RowOf(job.spec.dtype).bytes});
  for (const std::optional<OtherArray>* const other : {&job.y, &job.weights}) {
    if (!other->has_value()) continue;
    const SideArray& array = (*other)->array;
    const absl::StatusOr<const std::byte*> bytes = SideInMemory(array, job, context.budget, &loaded.memory);
    if (!bytes.ok()) return bytes.status();
    loaded.sources.push_back({*bytes, RowOf(array.dtype).bytes, (*other)->broadcast});
  }
  if (partition.mask.has_value() && job.spec.count > 0) {
    const absl::StatusOr<const std::byte*> bytes =
        SideInMemory(partition.mask->array, job, context.budget, &loaded.memory);
    if (!bytes.ok()) return bytes.status();
    loaded.mask = MaskView(*partition.mask, *bytes);
  }
  if (partition.grouped()) {
    const absl::StatusOr<const std::byte*> side =
        SideInMemory(GroupingSide(partition), job, context.budget, &loaded.memory);
    if (!side.ok()) return side.status();
    absl::StatusOr<Grouping> found = GroupingOf(partition, *side, loaded.mask, context);
    if (!found.ok()) return found.status();
    loaded.grouping = *std::move(found);
  }
  if (__builtin_mul_overflow(loaded.grouping.groups, partition.layout.outputs, &loaded.outputs)) {
    loaded.outputs = std::numeric_limits<std::int64_t>::max();  // more than there is memory for
  }
  return loaded;
}

OutputElements::OutputElements(const Partition& partition, const LoadedPartition& loaded, std::size_t sources,
                               bool positions)
    : layout_(partition.layout),
      sources_(std::span(loaded.sources).first(sources)),
      grouping_(loaded.grouping),
      keyed_(partition.keys.has_value() && !loaded.grouping.in_order),
      grouped_(partition.grouped()),
      mask_(keyed_ && layout_.outputs == 1 ? MaskView() : loaded.mask),  // else it made the groups
      adjacent_(!keyed_ && (grouped_ ? layout_.outputs == 1 : layout_.run() >= layout_.elements)),
      in_place_(adjacent_ && !mask_ && AllInOrder(sources_)) {
  for (std::size_t i = 0; i < sources; ++i) widths_[i] = sources_[i].width;
  if (positions && (mask_ || keyed_)) widths_[kPositions] = sizeof(std::int64_t);
}

Layout OutputElements::Names() const {
  Layout names;
  names.shape = layout_.shape;
  if (grouped_) names.shape.insert(names.shape.begin(), grouping_.groups);
  return names;
}

Output OutputElements::At(std::int64_t number) const {
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
  return output;
}

Output OutputElements::Find(std::int64_t number, absl::FunctionRef<bool()> stopped) const {
  Output output = At(number);
  if (mask_) CountRanks(stopped, &output);
  return output;
}

void OutputElements::GatherBeside(const Output& output, std::int64_t outputs, std::int64_t first,
                                  std::int64_t positions, std::byte* out, std::int64_t room, std::int64_t* has) const {
  std::int64_t indices[kRun];
  Indices(output, first, positions, indices);
  const ElementSource& array = sources_.front();
  MovesOf(array.width).append({array.data, indices, positions, outputs, mask_, out, room, has});
}

void OutputElements::Indices(const Output& output, std::int64_t first, std::int64_t count,
                             std::int64_t* indices) const {
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

void OutputElements::Positions(const Output& output, std::int64_t first, std::int64_t count,
                               std::int64_t* positions) const {
  for (std::int64_t i = 0; i < count; ++i) {
    positions[i] = keyed_ ? std::int64_t{grouping_.rows[output.start + first + i]} : first + i;
  }
}

std::int64_t OutputElements::CountKept(const Output& output, std::int64_t first, std::int64_t positions) const {
  if (adjacent_) return mask_.Count(output.start + first, positions);
  std::int64_t indices[kRun];
  Indices(output, first, positions, indices);
  std::int64_t kept = 0;
  for (std::int64_t i = 0; i < positions; ++i) kept += mask_.Keeps(indices[i]);
  return kept;
}

void OutputElements::CountRanks(absl::FunctionRef<bool()> stopped, Output* output) const {
  if (output->positions <= kRun) {
    output->count = CountKept(*output, 0, output->positions);
    return;
  }
  const std::int64_t runs = (output->positions + kRun - 1) / kRun;
  output->ranks.resize(static_cast<std::size_t>(runs));
  const auto count = [&](const tbb::blocked_range<std::int64_t>& range) {
    if (stopped()) return;
    for (std::int64_t run = range.begin(); run < range.end(); ++run) {
      output->ranks[run] = CountKept(*output, run * kRun, std::min(kRun, output->positions - run * kRun));
    }
  };
  // A thread that waits for the others must not begin another output, which would take memory of its own.
  tbb::this_task_arena::isolate([&] {
    tbb::parallel_for(tbb::blocked_range<std::int64_t>(0, runs, kRunsBetweenLooks), count, tbb::simple_partitioner());
  });
  std::int64_t rank = 0;
  for (std::int64_t& run : output->ranks) rank += std::exchange(run, rank);
  output->count = rank;
}

std::int64_t OutputElements::Gather(const Output& output, std::int64_t first, std::int64_t positions, std::int64_t has,
                                    Buffers& buffers) const {
  std::int64_t positions_of_run[kRun];
  std::byte* const positions_out =
      widths_[kPositions] == 0 ? nullptr : buffers[kPositions].get() + has * widths_[kPositions];
  if (positions_out != nullptr) Positions(output, first, positions, positions_of_run);
  if (adjacent_) {
    const std::int64_t index = output.start + first;
    std::uint8_t room[kRun];
    const std::uint8_t* const kept_bytes = mask_ ? mask_.Bytes(index, positions, room) : nullptr;
    std::int64_t kept = positions;
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      const ElementSource& source = sources_[i];
      std::byte* const out = buffers[i].get() + has * source.width;
      if (kept_bytes == nullptr) {
        CopyOthers(source, index, positions, out);
      } else if (source.broadcast.empty()) {
        kept = MovesOf(source.width).keep(source.data + index * source.width, kept_bytes, positions, out);
      } else {
        CopyOthers(source, index, positions, out);
        kept = MovesOf(source.width).keep(out, kept_bytes, positions, out);
      }
    }
    if (positions_out != nullptr) {  // there is a mask, since outputs by keys are not adjacent
      MovesOf(sizeof(std::int64_t))
          .keep(reinterpret_cast<const std::byte*>(positions_of_run), kept_bytes, positions, positions_out);
    }
    return kept;
  }
  std::int64_t indices[kRun];
  Indices(output, first, positions, indices);
  std::int64_t kept = positions;
  if (mask_) {
    kept = 0;
    for (std::int64_t i = 0; i < positions; ++i) {
      const std::int64_t index = indices[i];
      indices[kept] = index;
      if (positions_out != nullptr) positions_of_run[kept] = positions_of_run[i];
      kept += mask_.Keeps(index);
    }
  }
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    const ElementSource& source = sources_[i];
    std::int64_t others[kRun];
    if (!source.broadcast.empty()) {
      for (std::int64_t j = 0; j < kept; ++j) others[j] = BroadcastIndex(source.broadcast, indices[j]);
    }
    MovesOf(source.width)
        .pick(source.data, source.broadcast.empty() ? indices : others, kept, buffers[i].get() + has * source.width);
  }
  if (positions_out != nullptr) {
    std::memcpy(positions_out, positions_of_run, static_cast<std::size_t>(kept) * sizeof(std::int64_t));
  }
  return kept;
}

void OutputElements::Move(Buffers& buffers, std::int64_t from, std::int64_t to, std::int64_t count) const {
  if (count == 0) return;
  for (std::size_t i = 0; i < kMostSources; ++i) {
    const std::int64_t width = widths_[i];
    if (width == 0) continue;
    std::memmove(buffers[i].get() + to * width, buffers[i].get() + from * width,
                 static_cast<std::size_t>(count * width));
  }
}

void OutputElements::Clear(Buffers& buffers, std::int64_t from, std::int64_t count) const {
  for (std::size_t i = 0; i < kMostSources; ++i) {
    const std::int64_t width = widths_[i];
    if (width != 0) std::memset(buffers[i].get() + from * width, 0, static_cast<std::size_t>(count * width));
  }
}

std::int64_t OutputElements::IndexOf(const Output& output, std::int64_t rank) const {
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
  if (keyed_) return grouping_.rows[output.start + position];
  return counts_rows() ? output.start / layout_.outputs + position : position;
}

}  // namespace reduced
