// Columns of an array, each answered by itself, in parts: a long column is cut, for several threads; of few columns
// each is split into interleaved parts, with every n-th row, so that together they fill vectors.
#ifndef REDUCED_KERNELS_CPU_COLUMNS_H_
#define REDUCED_KERNELS_CPU_COLUMNS_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/algebra/layout.h"
#include "oneapi/tbb/parallel_for.h"

namespace reduced {

// Neighbouring columns, the first of which starts at `start`: elements of `width` bytes, at least one a column.
struct Columns {
  const Layout& layout;
  const std::byte* start;
  std::int64_t count;
  std::int64_t width;

  std::int64_t bytes() const { return layout.elements * count * width; }
};

// Whether they are whole rows of the array, of so few elements that those of several rows are taken as one.
inline bool AreFewAndDense(const Layout& layout) {
  constexpr std::int64_t kFew = 16;
  return layout.reduced.size() == 1 && layout.adjacent() > 1 && layout.adjacent() < kFew &&
         layout.reduced.back().stride == layout.adjacent();
}

// Of columns, between two looks at the deadline.
inline constexpr std::int64_t kColumnBytes = std::int64_t{1} << 20;

// A Way of finding something has
//   Found, kMost                                   what is found, of at most kMost columns
//   Find(layout, start, count, found)              finds it
//   Clear(count, found)                            that of columns without elements
//   Merge(from, at, count, offset, step, found)    adds what `from` has of the columns from `at` on to what `found` has
//                                                  of `count`: position p of theirs becomes offset + p x step
//
// Adds rows [first, first + size) of the outermost dimension that is reduced to `found`.
template <class Way>
void AddPart(const Way& way, const Columns& columns, std::int64_t first, std::int64_t size,
             typename Way::Found* scratch, typename Way::Found* found) {
  Layout part = columns.layout;
  Dimension& outer = part.reduced.front();
  const std::int64_t row_elements = part.elements / outer.size;  // of a column
  const std::int64_t row_bytes = outer.stride * columns.width;
  const auto find = [&](std::int64_t from, std::int64_t rows, std::int64_t together) {
    part.elements = rows * row_elements;
    outer = {.size = rows, .stride = row_bytes / columns.width * together};
    way.Find(part, columns.start + from * row_bytes, together * columns.count, scratch);
  };
  constexpr std::int64_t kMostTogether = 64;
  std::int64_t together = 1;
  if (AreFewAndDense(part)) {
    const std::int64_t most = std::min(kMostTogether, Way::kMost / columns.count);
    together = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(most)));
  }
  if (const std::int64_t whole = size / together; whole > 0) {
    find(first, whole, together);
    for (std::int64_t i = 0; i < together; ++i) {
      way.Merge(*scratch, i * columns.count, columns.count, (first + i) * row_elements, together, found);
    }
  }
  if (const std::int64_t rest = size % together; rest > 0) {
    find(first + size - rest, rest, 1);
    way.Merge(*scratch, 0, columns.count, (first + size - rest) * row_elements, 1, found);
  }
}

// Finds it of all their elements: on several threads if there are many, unless the calling one is to work `alone`. True
// unless stopped(), which is asked in between, is.
template <class Way, class Stopped>
bool FindInParts(const Way& way, const Columns& columns, bool alone, const Stopped& stopped,
                 typename Way::Found* found) {
  using Found = typename Way::Found;
  constexpr std::int64_t kMostTasks = 32;
  const std::int64_t rows = columns.layout.reduced.empty() ? 1 : columns.layout.reduced.front().size;
  const std::int64_t part = std::clamp<std::int64_t>(kColumnBytes / (columns.bytes() / rows), 1, rows);
  const std::int64_t parts = (rows + part - 1) / part;
  if (parts == 1 && !AreFewAndDense(columns.layout)) {
    way.Find(columns.layout, columns.start, columns.count, found);
    return !stopped();
  }
  const std::int64_t tasks = alone ? 1 : std::min(parts, kMostTasks);
  std::vector<std::unique_ptr<Found>> of_tasks(static_cast<std::size_t>(tasks));
  const auto run = [&](std::int64_t task) {
    const auto scratch = std::make_unique_for_overwrite<Found>();
    auto& own = of_tasks[static_cast<std::size_t>(task)];
    own = std::make_unique_for_overwrite<Found>();
    way.Clear(columns.count, own.get());
    for (std::int64_t i = parts * task / tasks; i < parts * (task + 1) / tasks && !stopped(); ++i) {
      AddPart(way, columns, i * part, std::min(part, rows - i * part), scratch.get(), own.get());
    }
  };
  if (tasks == 1) {
    run(0);
  } else {
    tbb::parallel_for(std::int64_t{0}, tasks, run, tbb::simple_partitioner());
  }
  way.Clear(columns.count, found);
  for (const auto& own : of_tasks) way.Merge(*own, 0, columns.count, 0, 1, found);
  return !stopped();
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_COLUMNS_H_
