#include "client/python/src/gather.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <type_traits>

namespace reduced::python {
namespace {

constexpr std::int64_t kThreadBytes = 1 << 20;  // are worth a thread
constexpr int kMostThreads = 16;                // saturate the memory of any machine
constexpr std::int64_t kRun = 1 << 14;          // elements of a task
// Of a transposed array so many rows are copied together: each cache line that is read is used as a whole.
constexpr std::int64_t kTileRows = 32;

struct Dimension {
  std::int64_t size, from, to;  // elements, and the bytes between two of them
};

// The dimensions of more than one element, the last of which is that of neighbours in C order. Those that are one in
// memory are one here.
std::vector<Dimension> DimensionsOf(const Strided& array) {
  std::vector<Dimension> dimensions;  // from the last one on
  std::int64_t bytes = array.width;
  for (std::size_t i = array.shape.size(); i-- > 0;) {
    const Dimension next{array.shape[i], array.strides[i], bytes};
    bytes *= next.size;
    if (next.size == 1) continue;
    if (!dimensions.empty() && next.from == dimensions.back().from * dimensions.back().size) {
      dimensions.back().size *= next.size;
    } else {
      dimensions.push_back(next);
    }
  }
  if (dimensions.empty()) dimensions.push_back({1, array.width, array.width});
  std::reverse(dimensions.begin(), dimensions.end());
  return dimensions;
}

template <class Word>
Word Swapped(Word word) {
  if constexpr (sizeof(Word) == 2) return __builtin_bswap16(word);
  if constexpr (sizeof(Word) == 4) return __builtin_bswap32(word);
  if constexpr (sizeof(Word) == 8) return __builtin_bswap64(word);
  return word;
}

// `kStride`: the bytes between elements, if they are known when this is compiled.
template <class Word, bool kSwaps, std::int64_t kStride = 0>
void CopyRun(const std::byte* from, std::int64_t stride, std::int64_t count, std::byte* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    Word word;
    std::memcpy(&word, from + i * (kStride == 0 ? stride : kStride), sizeof(Word));
    if constexpr (kSwaps) word = Swapped(word);
    std::memcpy(to + i * static_cast<std::int64_t>(sizeof(Word)), &word, sizeof(Word));
  }
}

using CopyFunction = void (*)(const std::byte* from, std::int64_t stride, std::int64_t count, std::byte* to);

template <class Word, bool kSwaps>
CopyFunction CopyFor(std::int64_t stride) {
  constexpr auto kWidth = static_cast<std::int64_t>(sizeof(Word));
  if (stride == kWidth) return &CopyRun<Word, kSwaps, kWidth>;
  if (stride == 2 * kWidth) return &CopyRun<Word, kSwaps, 2 * kWidth>;
  return &CopyRun<Word, kSwaps>;
}

CopyFunction CopyFor(std::int64_t width, bool swaps, std::int64_t stride) {
  const auto of = [&]<class Word>(Word) { return swaps ? CopyFor<Word, true>(stride) : CopyFor<Word, false>(stride); };
  return width == 1   ? of(std::uint8_t())
         : width == 2 ? of(std::uint16_t())
         : width == 4 ? of(std::uint32_t())
                      : of(std::uint64_t());
}

int ThreadsFor(std::int64_t bytes) {
  cpu_set_t cores;
  const int usable = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
  return static_cast<int>(std::clamp<std::int64_t>(bytes / kThreadBytes, 1, std::min(usable, kMostThreads)));
}

// Calls `run` with 0 to tasks - 1, on so many threads.
template <class Run>
void ForTasks(std::int64_t tasks, int threads, const Run& run) {
  std::atomic<std::int64_t> next = 0;
  const auto work = [&] {
    for (std::int64_t task = next.fetch_add(1); task < tasks; task = next.fetch_add(1)) run(task);
  };
  std::vector<std::thread> others;
  others.reserve(static_cast<std::size_t>(threads));
  try {
    while (static_cast<int>(others.size()) + 1 < threads) others.emplace_back(work);
  } catch (const std::system_error&) {  // the process may have no more: this thread does the rest
  }
  work();
  for (std::thread& other : others) other.join();
}

}  // namespace

StridedReader::StridedReader(const Strided& array, bool swaps) : data_(array.data), width_(array.width), swaps_(swaps) {
  for (const auto& dimension : DimensionsOf(array)) dimensions_.push_back({dimension.size, dimension.from});
}

void StridedReader::Read(std::int64_t first, std::int64_t count, std::byte* to) const {
  const Dimension& last = dimensions_.back();
  const CopyFunction copy = CopyFor(width_, swaps_, last.stride);
  while (count > 0) {
    const std::byte* from = data_;
    std::int64_t rest = first;
    for (auto dimension = dimensions_.rbegin(); dimension != dimensions_.rend(); ++dimension) {
      from += rest % dimension->size * dimension->stride;
      rest /= dimension->size;
    }
    const std::int64_t run = std::min(count, last.size - first % last.size);
    copy(from, last.stride, run, to);
    first += run;
    count -= run;
    to += run * width_;
  }
}

void Gather(const Strided& from, bool swaps, std::byte* to) {
  const std::vector<Dimension> dimensions = DimensionsOf(from);
  std::int64_t count = 1;
  for (const Dimension& each : dimensions) count *= each.size;
  if (count == 0) return;
  const Dimension& last = dimensions.back();
  // A row of a tile lies along the last dimension; the rows follow each other along that whose elements are closest.
  std::size_t across = dimensions.size() - 1;
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    if (std::abs(dimensions[i].from) < std::abs(dimensions[across].from)) across = i;
  }
  const bool is_transposed = across + 1 < dimensions.size();
  const std::int64_t rows = is_transposed ? std::min(kTileRows, dimensions[across].size) : 1;
  const std::int64_t run = std::clamp<std::int64_t>(kRun / rows, 1, last.size);
  // Tasks are numbered along the dimensions: runs of the last one, tiles of `across`, and elements of the others.
  std::vector<std::int64_t> steps(dimensions.size(), 1);
  steps.back() = run;
  if (is_transposed) steps[across] = rows;
  std::int64_t tasks = 1;
  for (std::size_t i = 0; i < dimensions.size(); ++i) tasks *= (dimensions[i].size + steps[i] - 1) / steps[i];
  const CopyFunction copy = CopyFor(from.width, swaps, last.from);
  ForTasks(tasks, ThreadsFor(count * from.width), [&](std::int64_t task) {
    const std::byte* source = from.data;
    std::byte* target = to;
    std::int64_t height = 1, length = 1;
    for (std::size_t i = dimensions.size(); i-- > 0;) {
      const Dimension& each = dimensions[i];
      const std::int64_t of = (each.size + steps[i] - 1) / steps[i], at = task % of * steps[i];
      task /= of;
      source += at * each.from;
      target += at * each.to;
      const std::int64_t here = std::min(steps[i], each.size - at);
      if (i + 1 == dimensions.size()) {
        length = here;
      } else if (i == across) {
        height = here;
      }
    }
    if (!is_transposed) return copy(source, last.from, length, target);
    // Element by element along the last dimension, so that neighbours across are read together.
    const Dimension& row = dimensions[across];
    constexpr std::int64_t kBlock = 16;
    for (std::int64_t done = 0; done < length; done += kBlock) {
      const std::int64_t some = std::min(kBlock, length - done);
      for (std::int64_t i = 0; i < height; ++i) {
        copy(source + done * last.from + i * row.from, last.from, some, target + done * last.to + i * row.to);
      }
    }
  });
}

}  // namespace reduced::python
