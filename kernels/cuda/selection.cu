#include <algorithm>
#include <type_traits>

#include "kernels/cuda/selection.h"
#include "kernels/cuda/visit_elements.cuh"

namespace reduced {
namespace {

constexpr int kThreads = 512;
constexpr int kBlocks = 2;  // of a multiprocessor
constexpr unsigned kAll = ~0U;

// `counters`: of each block, which adds them to those in device memory.
int BlocksFor(std::int64_t count, int bytes, std::int64_t counters, int multiprocessors) {
  const std::int64_t wanted =
      std::min((count * bytes + 16 * kThreads - 1) / (16 * kThreads), count / (2 * counters + 1));
  return static_cast<int>(std::clamp<std::int64_t>(wanted, 1, std::int64_t{kBlocks} * multiprocessors));
}

// Where the threads of a warp put the keys that they gather: in shared memory, from which they go to device memory many
// at a time.
template <class Word>
class Gatherer {
 public:
  static constexpr int kRound = kVisitedElements<Word>;
  static constexpr int kCapacity = 2 * kRound;
  static_assert(kThreads / 32 * kCapacity * sizeof(Word) <= kGatherBytes);

  // By a whole block. `memory`: of the block, aligned to a key.
  __device__ Gatherer(void* memory, unsigned* has, void* gather, std::int64_t room, unsigned long long* cursor)
      : keys_(static_cast<Word*>(memory) + threadIdx.x / 32 * kCapacity),
        has_(has + threadIdx.x / 32),
        gather_(static_cast<Word*>(gather)),
        room_(room),
        cursor_(cursor) {
    if (threadIdx.x % 32 == 0) *has_ = 0;
  }
  // At most kRound times by each warp before a Flush().
  __device__ void Add(Word key) { keys_[atomicAdd(has_, 1U)] = key; }
  // By a whole warp: writes the keys, if there are at least so many.
  __device__ void Flush(unsigned least) {
    __syncwarp();
    const unsigned has = *has_;
    if (has < least) return;
    const int lane = threadIdx.x % 32;
    unsigned long long base = 0;
    if (lane == 0) base = atomicAdd(cursor_, static_cast<unsigned long long>(has));
    base = __shfl_sync(kAll, base, 0);
    for (unsigned i = lane; i < has; i += 32) {
      const auto at = static_cast<std::int64_t>(base + i);
      if (at < room_) gather_[at] = keys_[i];
    }
    __syncwarp();
    if (lane == 0) *has_ = 0;
    __syncwarp();
  }

 private:
  Word* const keys_;
  unsigned* const has_;
  Word* const gather_;
  const std::int64_t room_;
  unsigned long long* const cursor_;
};

// Adds `counts` of a block to those in device memory.
__device__ void AddCounts(const unsigned* counts, int size, unsigned long long* total) {
  __syncthreads();
  for (int i = threadIdx.x; i < size; i += kThreads) {
    if (counts[i] > 0) atomicAdd(&total[i], static_cast<unsigned long long>(counts[i]));
  }
}

// What is subtracted from plain keys, so that only those of numbers are at most greatest - least.
template <class Word>
__device__ Word PlainKey(Word raw, const KeyFormat& format) {
  bool counts;
  return static_cast<Word>(KeyOf(raw, Plain(format), &counts) - static_cast<Word>(format.least));
}

// The key less `lo`, of which `inverse` is the inverse. Adds one to *at_least if the key is not less; of 0 never.
template <class Word>
__device__ __forceinline__ Word Beyond(Word key, Word inverse, unsigned* at_least) {
  Word beyond;
  if constexpr (sizeof(Word) == 8) {
    asm("add.cc.u64 %0, %2, %3; addc.u32 %1, %1, 0;" : "=l"(beyond), "+r"(*at_least) : "l"(key), "l"(inverse));
  } else if constexpr (sizeof(Word) == 4) {
    asm("add.cc.u32 %0, %2, %3; addc.u32 %1, %1, 0;" : "=r"(beyond), "+r"(*at_least) : "r"(key), "r"(inverse));
  } else {
    beyond = static_cast<Word>(key + inverse);
    *at_least += static_cast<unsigned>(key + inverse) >> 8 * sizeof(Word);
  }
  return beyond;
}

// kRanges: at least as many as the launch has; the others have no key. kPlain: IsPlain(launch.format); then keys, those
// of the launch too, are counted from launch.format.least on.
template <class Word, int kRanges, bool kPlain>
__global__ void __launch_bounds__(kThreads, kBlocks) CountKeys(const __grid_constant__ CountKeysLaunch launch) {
  extern __shared__ unsigned counts[];
  using Bound = std::conditional_t<sizeof(Word) == 8, unsigned long long, unsigned>;
  __shared__ unsigned gathered[kThreads / 32];
  __shared__ unsigned long long sums[kRanges + 1];
  __shared__ Bound inverse_least[kRanges], largest[kRanges];
  const int all = launch.count_of_ranges << launch.digit;
  for (int i = threadIdx.x; i < all; i += kThreads) counts[i] = 0;
  if (threadIdx.x <= kRanges) sums[threadIdx.x] = 0;
  if (threadIdx.x < kRanges) inverse_least[threadIdx.x] = largest[threadIdx.x] = 0;
  Gatherer<Word> gatherer(counts + (all + 1) / 2 * 2, gathered, launch.gather, launch.room, &launch.counted->gathered);
  __syncthreads();
  unsigned at_least[kRanges] = {}, others = 0;
  unsigned several = 0;  // bits of ranges with several keys
  for (int r = 0; r < kRanges; ++r) several |= launch.ranges[r].span != 0 ? 1U << r : 0;
  const bool gathers = launch.gather != nullptr;
  const Word base = kPlain ? static_cast<Word>(launch.format.least) : Word{0};
  const auto numbers = static_cast<Word>(kPlain ? launch.format.greatest - launch.format.least : ~std::uint64_t{0});
  VisitElements(
      static_cast<const Word*>(launch.data), launch.count, launch.stretch,
      [&](Word raw, bool is_there, std::int64_t) {
        const Word key = kPlain ? PlainKey(raw, launch.format) : KeyOf(raw, launch.format, &is_there);
        if (!is_there) return;
        Beyond(key, static_cast<Word>(~numbers), &others);
        bool wanted = false;
        Word beyond[kRanges];
#pragma unroll
        for (int r = 0; r < kRanges; ++r) {
          beyond[r] = Beyond(key, static_cast<Word>(0 - launch.ranges[r].lo), &at_least[r]);
          wanted = wanted || beyond[r] <= static_cast<Word>(launch.ranges[r].span);
        }
        if (!wanted) return;
        int range = 0;
#pragma unroll
        for (int r = kRanges - 1; r > 0; --r) {
          if (beyond[r] <= static_cast<Word>(launch.ranges[r].span)) range = r;
        }
        if (beyond[0] <= static_cast<Word>(launch.ranges[0].span)) range = 0;
        if (range >= launch.count_of_ranges) return;
        if (gathers && (several >> range & 1) != 0) gatherer.Add(static_cast<Word>(key + base));
        if (launch.digit == 0) {
          atomicAdd(&counts[range], 1U);
          return;
        }
        const auto place = static_cast<Word>(key - static_cast<Word>(launch.ranges[range].lo));
        const auto digit = static_cast<unsigned>(place >> launch.ranges[range].shift);
        atomicAdd(&counts[(range << launch.digit) + digit], 1U);
        // Seldom, after the first elements.
        const Word inverse = static_cast<Word>(~key);
        if (inverse > inverse_least[range]) atomicMax(&inverse_least[range], Bound{inverse});
        if (key > largest[range]) atomicMax(&largest[range], Bound{key});
      },
      [&] {
        if (gathers) gatherer.Flush(Gatherer<Word>::kRound);
      });
  if (gathers) gatherer.Flush(1);
  const bool is_first = threadIdx.x % 32 == 0;
  others = __reduce_add_sync(kAll, others);
  if (is_first && others > 0) atomicAdd(&sums[kRanges], static_cast<unsigned long long>(others));
#pragma unroll
  for (int r = 0; r < kRanges; ++r) {
    const unsigned sum = __reduce_add_sync(kAll, at_least[r]);
    if (is_first && sum > 0) atomicAdd(&sums[r], static_cast<unsigned long long>(sum));
  }
  AddCounts(counts, all, reinterpret_cast<unsigned long long*>(launch.counted + 1));
  if (threadIdx.x == 0) atomicAdd(&launch.counted->others, sums[kRanges]);
  if (threadIdx.x >= launch.count_of_ranges) return;
  const Word least = static_cast<Word>(~inverse_least[threadIdx.x]), greatest = static_cast<Word>(largest[threadIdx.x]);
  atomicAdd(&launch.counted->at_least[threadIdx.x], sums[threadIdx.x]);
  if (least > greatest) return;  // it has no key
  atomicMax(&launch.counted->inverse_least[threadIdx.x],
            static_cast<unsigned long long>(static_cast<Word>(~static_cast<Word>(least + base))));
  atomicMax(&launch.counted->largest[threadIdx.x], static_cast<unsigned long long>(static_cast<Word>(greatest + base)));
}

template <class Word, bool kGathers>
__global__ void __launch_bounds__(kThreads, kBlocks) CountCells(const __grid_constant__ CountCellsLaunch launch) {
  extern __shared__ unsigned shared[];
  constexpr int kCells = CountCellsLaunch::kCells, kEntries = kCells + 3;
  __shared__ unsigned gathered[kThreads / 32];
  unsigned* const counts = shared + kEntries + 1;
  const int all = launch.bins + 2;
  for (int i = threadIdx.x; i < kEntries; i += kThreads) {
    // What is no number has a bin behind all others, which nobody asks for.
    shared[i] = i < kCells + 2 ? launch.cells[i] : static_cast<unsigned>(all) * 64 + 8 * sizeof(Word) - 1;
  }
  for (int i = threadIdx.x; i < all; i += kThreads) {
    if (!kGathers) counts[i] = counts[all] = 0;
    if (kGathers && i <= all / 32) counts[i] = launch.wanted[i];
  }
  // Behind the bits of bins.
  constexpr int kBits = (CountCellsLaunch::kMostBins + 64) / 32;
  Gatherer<Word> gatherer(counts + kBits, gathered, launch.gather, launch.room, launch.gathered);
  __syncthreads();
  const auto base = static_cast<Word>(launch.format.least);
  const auto numbers = static_cast<Word>(launch.format.greatest - launch.format.least);
  const auto lo = static_cast<Word>(launch.lo - launch.format.least), span = static_cast<Word>(launch.span);
  const auto in_cell = static_cast<Word>((Word{1} << launch.shift) - 1);
  VisitElements(
      static_cast<const Word*>(launch.data), launch.count, 1,
      [&](Word raw, bool is_there, std::int64_t) {
        if (!is_there) return;
        const Word key = PlainKey(raw, launch.format);
        const auto beyond = static_cast<Word>(key - lo);
        const unsigned outside = kCells + (key < lo ? 0 : key <= numbers ? 1 : 2);
        const unsigned entry = shared[beyond > span ? outside : static_cast<unsigned>(beyond >> launch.shift)];
        if (kGathers && (entry & CountCellsLaunch::kHasWanted) == 0) return;
        const unsigned bin =
            (entry & ~CountCellsLaunch::kHasWanted) / 64 + static_cast<unsigned>((beyond & in_cell) >> (entry % 64));
        if (!kGathers) {
          atomicAdd(&counts[bin], 1U);
        } else if ((counts[bin / 32] >> bin % 32 & 1) != 0) {
          gatherer.Add(static_cast<Word>(key + base));
        }
      },
      [&] {
        if (kGathers) gatherer.Flush(Gatherer<Word>::kRound);
      });
  if (kGathers) {
    gatherer.Flush(1);
  } else {
    AddCounts(counts, all, launch.counts);
  }
}

template <class Word>
__global__ void __launch_bounds__(kThreads, kBlocks) GatherKeys(const __grid_constant__ GatherKeysLaunch launch) {
  const KeyFormat plain = Plain(launch.format);
  const auto unwanted = static_cast<Word>(launch.first_unwanted);
  const auto unwanted_span = static_cast<Word>(launch.last_unwanted - launch.first_unwanted);
  const auto least = static_cast<Word>(launch.least);
  const auto span = static_cast<Word>(launch.most - launch.least);
  bool full = false;  // as this warp knows; then it counts no more
  VisitElements(static_cast<const Word*>(launch.data) + launch.first, launch.count, 1,
                [&](Word raw, bool is_there, std::int64_t index) {
                  if (launch.has_unwanted) {
                    const auto beyond = static_cast<Word>(KeyOf(raw, plain, &is_there) - unwanted);
                    if (!__any_sync(kAll, is_there && beyond > unwanted_span)) return;
                  }
                  const Word key = KeyOf(raw, launch.format, &is_there);
                  const bool wanted = is_there && static_cast<Word>(key - least) <= span;
                  const unsigned lanes = __ballot_sync(kAll, wanted);
                  if (lanes == 0 || full) return;
                  const int lane = threadIdx.x % 32;
                  unsigned long long base = 0;
                  if (lane == 0) base = atomicAdd(launch.found, static_cast<unsigned long long>(__popc(lanes)));
                  base = __shfl_sync(kAll, base, 0);
                  const auto at = static_cast<std::int64_t>(base) + __popc(lanes & ((1U << lane) - 1));
                  full = static_cast<std::int64_t>(base) > launch.room;
                  if (wanted && at < launch.room) launch.keys[at] = {key, launch.first + index};
                });
}

// Launches a kernel whose blocks have shared memory of a size that differs.
template <class Word, class Launch>
cudaError_t LaunchWith(void (*kernel)(Launch), const Launch& launch, std::int64_t shared, std::int64_t counters) {
  // All that a block can have: other threads launch it with more or less.
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                 static_cast<int>(launch.most_shared_bytes - kOwnSharedBytes));
  if (error != cudaSuccess) return error;
  kernel<<<BlocksFor(launch.count, sizeof(Word), counters, launch.multiprocessors), kThreads,
           static_cast<std::size_t>(shared), launch.stream>>>(launch);
  return cudaGetLastError();
}

template <class Word>
cudaError_t CountOf(CountKeysLaunch launch) {
  constexpr int kFew = 3, kMost = CountedKeys::kMostRanges;
  const std::int64_t counters = launch.counts() * launch.stretch;
  const std::int64_t shared = 4 * (launch.counts() + 1) + (launch.gather == nullptr ? 0 : kGatherBytes);
  if (!IsPlain(launch.format)) return LaunchWith<Word>(CountKeys<Word, 1, false>, launch, shared, counters);
  for (int r = 0; r < launch.count_of_ranges; ++r) launch.ranges[r].lo -= launch.format.least;
  for (int r = launch.count_of_ranges; r < kMost; ++r) launch.ranges[r] = {~std::uint64_t{0}, 0, 0};
  if (launch.count_of_ranges > kFew) return LaunchWith<Word>(CountKeys<Word, kMost, true>, launch, shared, counters);
  if (launch.count_of_ranges > 1) return LaunchWith<Word>(CountKeys<Word, kFew, true>, launch, shared, counters);
  return LaunchWith<Word>(CountKeys<Word, 1, true>, launch, shared, counters);
}

template <class Word>
cudaError_t Gather(const GatherKeysLaunch& launch) {
  GatherKeys<Word>
      <<<BlocksFor(launch.count, sizeof(Word), 0, launch.multiprocessors), kThreads, 0, launch.stream>>>(launch);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchCountKeys(const CountKeysLaunch& launch) {
  switch (launch.format.bytes) {
    case 2:
      return CountOf<std::uint16_t>(launch);
    case 4:
      return CountOf<std::uint32_t>(launch);
    default:
      return CountOf<std::uint64_t>(launch);
  }
}

cudaError_t LaunchCountCells(const CountCellsLaunch& launch) {
  const std::int64_t shared = launch.wanted == nullptr ? CountCellsLaunch::shared_bytes()
                                                       : 4 * (CountCellsLaunch::kCells + 4) +
                                                             CountCellsLaunch::kMostBins / 8 + 8 + kGatherBytes;
  const std::int64_t counters = launch.wanted == nullptr ? launch.bins : 0;
  if (launch.format.bytes == 4) {
    return LaunchWith<std::uint32_t>(
        launch.wanted == nullptr ? CountCells<std::uint32_t, false> : CountCells<std::uint32_t, true>, launch, shared,
        counters);
  }
  return LaunchWith<std::uint64_t>(
      launch.wanted == nullptr ? CountCells<std::uint64_t, false> : CountCells<std::uint64_t, true>, launch, shared,
      counters);
}

cudaError_t LaunchGatherKeys(const GatherKeysLaunch& launch) {
  switch (launch.format.bytes) {
    case 1:
      return Gather<std::uint8_t>(launch);
    case 2:
      return Gather<std::uint16_t>(launch);
    case 4:
      return Gather<std::uint32_t>(launch);
    default:
      return Gather<std::uint64_t>(launch);
  }
}

}  // namespace reduced
