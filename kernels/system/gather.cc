#include "kernels/system/gather.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <thread>

#include "kernels/system/read_file.h"

namespace reduced {
namespace {

constexpr std::int64_t kThreadBytes = 1 << 20;  // are worth a thread
constexpr int kMostThreads = 16;                // saturate the memory of any machine
constexpr std::int64_t kRun = 1 << 14;          // elements of a task
// Of a transposed array so many rows are copied together: each cache line that is read is used as a whole.
constexpr std::int64_t kTileRows = 32;
constexpr std::int64_t kTileColumns = 8;  // whose cache lines fit in a set, if they are a power of two apart
// Of a file: what is read at once, and how far apart elements are of which each is read alone.
constexpr std::int64_t kWindowBytes = 1 << 14;
constexpr std::int64_t kFarBytes = 512;

struct CopiedDimension {
  std::int64_t size, from, to;  // elements, and the bytes between two of them
};

// The dimensions of more than one element, the last of which is that of neighbours in C order. Those that are one in
// memory are one here.
std::vector<CopiedDimension> CopiedDimensions(const StridedArray& array) {
  std::vector<CopiedDimension> dimensions;  // from the last one on
  std::int64_t bytes = array.width;
  for (std::size_t i = array.shape.size(); i-- > 0;) {
    const CopiedDimension next{array.shape[i], array.strides[i], bytes};
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

std::optional<ByteSpan> SpanOf(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides,
                               std::int64_t width) {
  ByteSpan span{.begin = 0, .end = width};
  for (const std::int64_t size : shape) {
    if (size == 0) return ByteSpan{};
  }
  for (std::size_t i = 0; i < shape.size(); ++i) {
    std::int64_t reach = 0;
    std::int64_t& side = strides[i] < 0 ? span.begin : span.end;
    if (__builtin_mul_overflow(shape[i] - 1, strides[i], &reach) || __builtin_add_overflow(side, reach, &side)) {
      return std::nullopt;
    }
  }
  return span;
}

StridedReader::StridedReader(const StridedArray& array)
    : data_(array.data), width_(array.width), swaps_(array.swaps && array.width > 1) {
  for (const auto& dimension : CopiedDimensions(array)) dimensions_.push_back({dimension.size, dimension.from});
}

template <class Run>
absl::Status StridedReader::ForRuns(std::int64_t first, std::int64_t count, const Run& run) const {
  const std::size_t inner = dimensions_.size() - 1;
  std::int64_t at[kMostStrides];  // the indexes of the next element
  std::int64_t offset = 0;
  for (std::size_t i = dimensions_.size(); i-- > 0; first /= dimensions_[i].size) {
    at[i] = first % dimensions_[i].size;
    offset += at[i] * dimensions_[i].stride;
  }
  while (count > 0) {
    const std::int64_t some = std::min(count, dimensions_[inner].size - at[inner]);
    if (absl::Status status = run(offset, some); !status.ok()) return status;
    count -= some;
    offset -= at[inner] * dimensions_[inner].stride;
    at[inner] = 0;
    for (std::size_t i = inner; i-- > 0;) {
      offset += dimensions_[i].stride;
      if (++at[i] < dimensions_[i].size) break;
      offset -= at[i] * dimensions_[i].stride;
      at[i] = 0;
    }
  }
  return absl::OkStatus();
}

void StridedReader::Read(std::int64_t first, std::int64_t count, std::byte* to) const {
  const std::int64_t stride = dimensions_.back().stride;
  const CopyFunction copy = CopyFor(width_, swaps_, stride);
  ForRuns(first, count, [&](std::int64_t offset, std::int64_t some) {
    copy(data_ + offset, stride, some, to);
    to += some * width_;
    return absl::OkStatus();
  }).IgnoreError();
}

absl::Status StridedReader::ReadFrom(int file, std::int64_t offset, std::int64_t first, std::int64_t count,
                                     std::byte* to) const {
  const std::int64_t stride = dimensions_.back().stride, apart = std::abs(stride);
  const CopyFunction copy = CopyFor(width_, swaps_, stride);
  std::byte window[kWindowBytes];
  const std::int64_t most = apart > kFarBytes ? 1
                            : apart == 0      ? kWindowBytes
                                              : (kWindowBytes - width_) / apart + 1;  // of a window
  return ForRuns(first, count, [&](std::int64_t begin, std::int64_t some) {
    for (std::int64_t left = some; left > 0;) {
      const std::int64_t now = std::min(left, most), reach = (now - 1) * stride,
                         lowest = std::min<std::int64_t>(reach, 0);
      const std::int64_t bytes = std::abs(reach) + width_;
      if (absl::Status status = ReadFile(file, offset + begin + lowest, bytes, window); !status.ok()) return status;
      copy(window - lowest, stride, now, to);
      to += now * width_;
      begin += now * stride;
      left -= now;
    }
    return absl::OkStatus();
  });
}

void Gather(const StridedArray& from, std::byte* to) {
  const std::vector<CopiedDimension> dimensions = CopiedDimensions(from);
  std::int64_t count = 1;
  for (const CopiedDimension& each : dimensions) count *= each.size;
  if (count == 0) return;
  const int threads = ThreadsFor(count * from.width);
  // A row of a tile lies along the last dimension; the rows follow each other along that whose elements are closest.
  const CopiedDimension& last = dimensions.back();
  const auto across = std::min_element(
      dimensions.begin(), dimensions.end(),
      [](const CopiedDimension& a, const CopiedDimension& b) { return std::abs(a.from) < std::abs(b.from); });
  if (std::abs(across->from) == std::abs(last.from)) {
    const StridedReader reader(from);
    return ForTasks((count + kRun - 1) / kRun, threads, [&](std::int64_t task) {
      reader.Read(task * kRun, std::min(kRun, count - task * kRun), to + task * kRun * from.width);
    });
  }
  // Tasks are numbered along the dimensions: tiles of these two, and elements of the others.
  const std::int64_t rows = std::min(kTileRows, across->size), run = std::min(kRun / kTileRows, last.size);
  const auto step = [&](const CopiedDimension& each) { return &each == &last ? run : &each == &*across ? rows : 1; };
  std::int64_t tasks = 1;
  for (const CopiedDimension& each : dimensions) tasks *= (each.size + step(each) - 1) / step(each);
  const CopyFunction copy = CopyFor(from.width, from.swaps && from.width > 1, last.from);
  ForTasks(tasks, threads, [&](std::int64_t task) {
    const std::byte* source = from.data;
    std::byte* target = to;
    std::int64_t height = 0, length = 0;
    for (auto each = dimensions.rbegin(); each != dimensions.rend(); ++each) {
      const std::int64_t steps = (each->size + step(*each) - 1) / step(*each), at = task % steps * step(*each);
      task /= steps;
      source += at * each->from;
      target += at * each->to;
      if (&*each == &last) length = std::min(run, each->size - at);
      if (&*each == &*across) height = std::min(rows, each->size - at);
    }
    for (std::int64_t done = 0; done < length; done += kTileColumns) {
      const std::int64_t some = std::min(kTileColumns, length - done);
      for (std::int64_t i = 0; i < height; ++i) {
        copy(source + done * last.from + i * across->from, last.from, some, target + done * last.to + i * across->to);
      }
    }
  });
}

}  // namespace reduced
