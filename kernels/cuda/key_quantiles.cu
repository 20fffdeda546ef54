// The kernels of quantiles by key: see key_quantiles.h.
//
// What is to be expected of the median of 1 GiB of f32 by 1,000 keys of 32 bits: elements and keys are read once, which
// is two plain reads of the elements, and takes about three, since a row takes some 50 instructions and conflicting
// accesses of shared memory; the sample is read, sorted by group and selected from (0.7); 7% of the elements are
// collected, brought into the order of the groups, and selected from (1). An H200 takes 6.2, and 3.5 where all elements
// are equal, of which none is collected.
//
// Compiled without contraction of operations: which ranks are wanted is rounded operation by operation.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device_reduce.cuh"
#include "kernels/cuda/each_item.cuh"
#include "kernels/cuda/find_groups.h"
#include "kernels/cuda/key_planes.cuh"
#include "kernels/cuda/key_quantiles.h"
#include "kernels/cuda/keyed_rows.cuh"
#include "kernels/cuda/quantile_answer.cuh"
#include "kernels/cuda/selection.h"

namespace reduced {
namespace {

constexpr int kCountThreads = 1024;             // one block of each multiprocessor
constexpr std::int64_t kCopiedWords = 1 << 13;  // counts times copies in shared memory
constexpr int kMostCopies = 32;
constexpr int kSelectThreads = 256;  // as many as bins
// How far from the expected rank of a sample a bracket ends, in standard deviations: of 1,000 groups one in some 150
// launches misses a rank.
constexpr double kDeviations = 4.5;

template <class Word>
constexpr Word kMostKey = static_cast<Word>(~Word{0});

template <class Word>
__global__ void __launch_bounds__(kItemThreads)
    SampleKeysKernel(const __grid_constant__ KeyBracketsLaunch launch, const __grid_constant__ KeyFormat format,
                     int key_bytes, bool signed_keys) {
  const KeyTablesLaunch& rows = launch.rows;
  ForEachItem(launch.samples(), [&](std::int64_t i) {
    const std::int64_t row = KeyBracketsLaunch::RowOf(i);
    const auto* const at = static_cast<const unsigned char*>(rows.keys) + row * key_bytes;
    std::uint64_t group = signed_keys && at[key_bytes - 1] >= 128 ? ~std::uint64_t{0} : 0;
    if (group == 0) {
      for (int b = 0; b < key_bytes; ++b) group |= std::uint64_t{at[b]} << (8 * b);
    }
    const Word key = PlainKeyOf(static_cast<const Word*>(rows.array.data)[row], format);
    const bool is_nan = format.is_float && key == kMostKey<Word>;
    const bool counts = group < static_cast<std::uint64_t>(rows.table.groups) && !is_nan && Keeps(rows.array, row);
    launch.sample_ids[i] = counts ? static_cast<std::uint32_t>(group) : kNoKey;
    static_cast<Word*>(launch.sample_keys)[i] = key;
  });
}

// Of a block that selects.
struct SelectMemory {
  unsigned bins[kSelectThreads];
  unsigned of_warp[kSelectThreads / kWarpSize];
  unsigned bin;
  unsigned below;
  unsigned size;
  unsigned long long next;
};

// Calls f with all keys, of which each thread loads a few before the first is taken.
template <class Word, class Function>
__device__ __forceinline__ void ForEachKey(const Word* keys, unsigned count, Function f) {
  constexpr unsigned kInFlight = 4;
  for (unsigned begin = threadIdx.x; begin < count; begin += kInFlight * kSelectThreads) {
    Word some[kInFlight];
#pragma unroll
    for (unsigned i = 0; i < kInFlight; ++i) {
      if (begin + i * kSelectThreads < count) some[i] = keys[begin + i * kSelectThreads];
    }
#pragma unroll
    for (unsigned i = 0; i < kInFlight; ++i) {
      if (begin + i * kSelectThreads < count) f(some[i]);
    }
  }
}

// The key of a rank, and how many equal ones have greater ranks.
template <class Word>
struct Selected {
  Word key = 0;
  unsigned after = 0;
};
// Of a rank below `count`, among keys from `least` to `most`: radix selection by a block.
template <class Word>
__device__ Selected<Word> SelectKey(const Word* keys, unsigned count, unsigned rank, Word least, Word most,
                                    SelectMemory& memory) {
  const auto thread = static_cast<unsigned>(threadIdx.x);
  Word prefix = 0, known = 0;
  unsigned size = count;
  for (int shift = 8 * static_cast<int>(sizeof(Word)) - 8; shift >= 0; shift -= 8) {
    const Word higher = known;
    known = static_cast<Word>(known | static_cast<Word>(Word{255} << shift));
    if (static_cast<Word>((least ^ most) & known) == 0) {  // all keys have this digit
      prefix = static_cast<Word>(least & known);
      continue;
    }
    memory.bins[thread] = 0;
    __syncthreads();
    ForEachKey(keys, count, [&](Word key) {
      if (static_cast<Word>(key & higher) == prefix) atomicAdd(&memory.bins[(key >> shift) & 255], 1U);
    });
    __syncthreads();
    const unsigned mine = memory.bins[thread];
    unsigned upto = mine;
#pragma unroll
    for (int lanes = 1; lanes < kWarpSize; lanes *= 2) {
      const unsigned other = __shfl_up_sync(kFullWarp, upto, lanes);
      if (thread % kWarpSize >= static_cast<unsigned>(lanes)) upto += other;
    }
    if (thread % kWarpSize == kWarpSize - 1) memory.of_warp[thread / kWarpSize] = upto;
    __syncthreads();
    for (unsigned warp = 0; warp < thread / kWarpSize; ++warp) upto += memory.of_warp[warp];
    if (rank < upto && rank >= upto - mine) {
      memory.bin = thread;
      memory.below = upto - mine;
      memory.size = mine;
    }
    __syncthreads();
    prefix = static_cast<Word>(prefix | static_cast<Word>(Word(memory.bin) << shift));
    rank -= memory.below;
    size = memory.size;
  }
  return {prefix, size - rank - 1};
}

// The least key that is greater than `key`. By a block.
template <class Word>
__device__ Word NextKey(const Word* keys, unsigned count, Word key, SelectMemory& memory) {
  if (threadIdx.x == 0) memory.next = kMostKey<Word>;
  __syncthreads();
  Word next = kMostKey<Word>;
  ForEachKey(keys, count, [&](Word each) {
    if (each > key && each < next) next = each;
  });
  next = WarpExtremum<false>(next);
  if (threadIdx.x % kWarpSize == 0) atomicMin(&memory.next, static_cast<unsigned long long>(next));
  __syncthreads();
  return static_cast<Word>(memory.next);
}

// Sets the ends of a group's brackets: a block for each group.
template <class Word>
__global__ void __launch_bounds__(kSelectThreads)
    SetEndsKernel(const __grid_constant__ KeyBracketsLaunch launch, bool is_float) {
  __shared__ SelectMemory memory;
  __shared__ Word lowest[KeyBrackets::kMostQuantiles], highest[KeyBrackets::kMostQuantiles];
  const KeyBrackets& brackets = launch.brackets;
  const std::int64_t group = blockIdx.x, begin = launch.sample_bounds[group];
  const auto count = static_cast<unsigned>(launch.sample_bounds[group + 1] - begin);
  const Word* const keys = static_cast<const Word*>(launch.sorted_sample) + begin;
  // Of floats the largest key is that of NaNs.
  const auto most = static_cast<Word>(kMostKey<Word> - (is_float ? 1 : 0));
  const auto key_at = [&](double rank) {
    if (rank < 0) return Word{0};
    if (rank >= static_cast<double>(count)) return most;
    return SelectKey(keys, count, static_cast<unsigned>(rank), Word{0}, kMostKey<Word>, memory).key;
  };
  for (int i = 0; i < brackets.quantiles; ++i) {
    const double q = launch.quantiles[i];
    const double rank = q * (static_cast<double>(count) - 1);
    const double reach = 2 + kDeviations * sqrt(static_cast<double>(count) * q * (1 - q));
    const Word low = key_at(floor(rank - reach)), high = key_at(ceil(rank + reach));
    if (threadIdx.x == 0) {
      lowest[i] = low;
      highest[i] = high;
    }
  }
  if (threadIdx.x != 0) return;
  // Both ascend: they are merged.
  Word* const ends = static_cast<Word*>(brackets.ends) + group * brackets.ends_of_each();
  unsigned collected = 0;
  for (int i = 0, low = 0, high = 0; i < brackets.ends_of_each(); ++i) {
    const bool takes_low = low < brackets.quantiles && lowest[low] <= highest[high];
    ends[i] = takes_low ? lowest[low++] : highest[high++];
    for (int b = 0; i > 0 && b < brackets.quantiles; ++b) {
      if (lowest[b] <= ends[i - 1] && ends[i] <= highest[b]) collected |= 1U << i;
    }
  }
  brackets.collected[group] = static_cast<std::uint8_t>(collected);
}

// Where the lanes of a warp put what they collect.
template <class Word>
class Collector {
 public:
  __device__ explicit Collector(const KeyBracketsLaunch& launch) : launch_(launch) {}

  // By all lanes, each with keys and their intervals, of which those that are not kNoKey are collected.
  template <int kMost>
  __device__ __forceinline__ void Collect(const std::uint32_t (&intervals)[kMost], const Word (&keys)[kMost]) {
    unsigned count = 0;
#pragma unroll
    for (const std::uint32_t interval : intervals) count += interval != kNoKey ? 1 : 0;
    unsigned upto = count;
#pragma unroll
    for (int lanes = 1; lanes < kWarpSize; lanes *= 2) {
      const unsigned other = __shfl_up_sync(kFullWarp, upto, lanes);
      if (Lane() >= static_cast<unsigned>(lanes)) upto += other;
    }
    const unsigned all = __shfl_sync(kFullWarp, upto, kWarpSize - 1);
    if (all > end_ - at_) TakeStretch();
    if (is_full_) return;
    unsigned at = at_ + upto - count;
    at_ += all;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      if (intervals[i] == kNoKey) continue;
      launch_.intervals[at] = intervals[i];
      static_cast<Word*>(launch_.keys)[at++] = keys[i];
    }
  }
  __device__ bool is_full() const { return is_full_; }
  // The rest of the stretch is of no group. By all lanes.
  __device__ void End() {
    for (unsigned at = at_ + Lane(); at < end_; at += kWarpSize) launch_.intervals[at] = kNoKey;
    at_ = end_;
  }

 private:
  static __device__ unsigned Lane() { return threadIdx.x % kWarpSize; }

  __device__ __noinline__ void TakeStretch() {
    End();
    unsigned begin = 0;
    if (Lane() == 0) begin = atomicAdd(&launch_.rows.header->listed, KeyBracketsLaunch::kStretch);
    begin = __shfl_sync(kFullWarp, begin, 0);
    is_full_ = begin + KeyBracketsLaunch::kStretch > launch_.room;
    if (is_full_) return;
    at_ = begin;
    end_ = begin + KeyBracketsLaunch::kStretch;
  }

  const KeyBracketsLaunch& launch_;
  unsigned at_ = 0, end_ = 0;
  bool is_full_ = false;
};

// The ends of a group's brackets. kEnds: of each group; 0: any number.
template <class Word, int kEnds>
struct EndsOf {
  const Word* ends;
  int count;

  __device__ EndsOf(const Word* of_all, unsigned group, int of_each) : ends(of_all + group * of_each), count(of_each) {}
  // How many of them are below a key, and whether it is one.
  __device__ void Compare(Word key, unsigned* below, bool* is_end) const {
    *below = 0;
    *is_end = false;
    for (int i = 0; i < count; ++i) {
      *below += ends[i] < key ? 1 : 0;
      *is_end = *is_end || ends[i] == key;
    }
  }
};
template <class Word>
struct EndsOf<Word, 2> {
  struct alignas(2 * sizeof(Word)) Pair {
    Word low, high;
  } pair;

  __device__ EndsOf(const Word* of_all, unsigned group, int) : pair(reinterpret_cast<const Pair*>(of_all)[group]) {}
  __device__ void Compare(Word key, unsigned* below, bool* is_end) const {
    *below = (pair.low < key ? 1U : 0U) + (pair.high < key ? 1U : 0U);
    *is_end = pair.low == key || pair.high == key;
  }
};

template <class Word, int kEnds>
__global__ void __launch_bounds__(kCountThreads)
    CountKernel(const __grid_constant__ KeyBracketsLaunch launch, const __grid_constant__ KeyFormat format,
                const QuadPlan plan, int copies) {
  extern __shared__ uint4 shared_memory[];
  constexpr int kWidth = sizeof(Word), kQuads = kWidth == 8 ? 1 : 2;
  const KeyBrackets& brackets = launch.brackets;
  const auto groups = static_cast<unsigned>(brackets.groups);
  const unsigned of_each = kEnds > 0 ? kEnds : static_cast<unsigned>(brackets.ends_of_each());
  // Rows without a group have one behind the others. An odd number of words lets lanes of different groups read
  // different banks.
  const unsigned slots = 2 * of_each + 2, pitch = slots | 1;
  const unsigned words = (groups + 1) * pitch * static_cast<unsigned>(copies);
  auto* const ends = reinterpret_cast<Word*>(shared_memory);
  auto* const counts = reinterpret_cast<unsigned*>(reinterpret_cast<std::byte*>(shared_memory) +
                                                   (std::size_t{groups + 1} * of_each * kWidth + 15) / 16 * 16);
  auto* const collected = reinterpret_cast<std::uint8_t*>(counts + words);
  for (unsigned i = threadIdx.x; i < (groups + 1) * of_each; i += kCountThreads) {
    ends[i] = i < groups * of_each ? static_cast<const Word*>(brackets.ends)[i] : Word{0};
  }
  for (unsigned i = threadIdx.x; i < words; i += kCountThreads) counts[i] = 0;
  for (unsigned i = threadIdx.x; i <= groups; i += kCountThreads) collected[i] = i < groups ? brackets.collected[i] : 0;
  __syncthreads();
  const unsigned copy = threadIdx.x % static_cast<unsigned>(copies);
  Collector<Word> collector(launch);
  // All lanes of a warp go on as long as one of them does.
  const int step = static_cast<int>(gridDim.x) * kCountThreads, lane = static_cast<int>(threadIdx.x % kWarpSize);
  for (int at = static_cast<int>(blockIdx.x * kCountThreads + threadIdx.x);
       at - lane < plan.quads && !collector.is_full(); at += kQuads * step) {
    Quad<kWidth> quad[kQuads];
#pragma unroll
    for (int i = 0; i < kQuads; ++i) quad[i].Load(launch.rows, plan, at + i * step);
    std::uint32_t intervals[kQuads * kQuadRows];
    Word keys[kQuads * kQuadRows];
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const FourKeys of = quad[i].Groups(launch.rows, plan);
#pragma unroll
      for (int k = 0; k < kQuadRows; ++k) {
        const unsigned group = min(of.key[k], groups);
        const Word key = PlainKeyOf(static_cast<Word>(quad[i].elements.At(k)), format);
        unsigned below;
        bool is_end;
        EndsOf<Word, kEnds>(ends, group, static_cast<int>(of_each)).Compare(key, &below, &is_end);
        const bool is_nan = format.is_float && key == kMostKey<Word>;
        const unsigned slot = 2 * below + (is_end || is_nan ? 1 : 0);
        atomicAdd(counts + (group * pitch + slot) * static_cast<unsigned>(copies) + copy, 1U);
        const bool collects = !is_end && (kEnds == 2 ? below == 1 : (collected[group] >> below & 1) != 0);
        intervals[i * kQuadRows + k] = collects ? group * (of_each - 1) + below - 1 : kNoKey;
        keys[i * kQuadRows + k] = key;
      }
    }
    collector.Collect(intervals, keys);
  }
  collector.End();
  __syncthreads();
  for (unsigned i = threadIdx.x; i < groups * slots; i += kCountThreads) {
    const unsigned* const mine = counts + (i / slots * pitch + i % slots) * static_cast<unsigned>(copies);
    unsigned sum = 0;
    for (int c = 0; c < copies; ++c) sum += mine[c];
    if (sum != 0) atomicAdd(brackets.counts + i, sum);
  }
}

// Where the keys of each interval are to be: by one block.
__global__ void __launch_bounds__(kCountThreads) PlaceKernel(const __grid_constant__ KeyBracketsLaunch launch) {
  __shared__ unsigned of_warp[kCountThreads / kWarpSize];
  const KeyBrackets& brackets = launch.brackets;
  const auto of_each = static_cast<unsigned>(brackets.intervals());
  const unsigned all = static_cast<unsigned>(brackets.groups) * of_each;
  const unsigned lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  unsigned before = 0;
  for (unsigned begin = 0; begin < all; begin += kCountThreads) {
    const unsigned i = begin + threadIdx.x, group = i / of_each, slot = 2 * (i % of_each + 1);
    const bool is_there = i < all && (brackets.collected[group] >> (slot / 2) & 1) != 0;
    const unsigned mine = is_there ? brackets.counts[group * static_cast<unsigned>(brackets.slots()) + slot] : 0;
    unsigned upto = mine;
#pragma unroll
    for (int lanes = 1; lanes < kWarpSize; lanes *= 2) {
      const unsigned other = __shfl_up_sync(kFullWarp, upto, lanes);
      if (lane >= static_cast<unsigned>(lanes)) upto += other;
    }
    if (lane == kWarpSize - 1) of_warp[warp] = upto;
    __syncthreads();
    upto += before;
    for (unsigned w = 0; w < kCountThreads / kWarpSize; ++w) {
      upto += w < warp ? of_warp[w] : 0;
      before += of_warp[w];
    }
    __syncthreads();  // they have been read
    if (i < all) brackets.first[i] = upto - mine;
  }
}

// Brings what was collected into the order of the intervals: blocks take tiles, in each of which they count the keys of
// each interval and then take room for all of them at once.
template <class Word>
__global__ void __launch_bounds__(kCountThreads) ScatterKernel(const __grid_constant__ KeyBracketsLaunch launch) {
  extern __shared__ uint4 shared_memory[];
  constexpr unsigned kEach = 16, kTile = kEach * kCountThreads;
  auto* const counts = reinterpret_cast<unsigned*>(shared_memory);
  const KeyBrackets& brackets = launch.brackets;
  const auto all = static_cast<unsigned>(brackets.groups) * static_cast<unsigned>(brackets.intervals());
  const unsigned collected = launch.rows.header->listed;
  if (collected > launch.room) return;
  for (unsigned begin = blockIdx.x * kTile; begin < collected; begin += gridDim.x * kTile) {
    for (unsigned i = threadIdx.x; i < all; i += kCountThreads) counts[i] = 0;
    __syncthreads();
    std::uint32_t interval[kEach];
    unsigned place[kEach];
#pragma unroll
    for (unsigned k = 0; k < kEach; ++k) {
      const unsigned at = begin + k * kCountThreads + threadIdx.x;
      interval[k] = at < collected ? launch.intervals[at] : kNoKey;
    }
#pragma unroll
    for (unsigned k = 0; k < kEach; ++k) place[k] = interval[k] == kNoKey ? 0 : atomicAdd(counts + interval[k], 1U);
    __syncthreads();
    for (unsigned i = threadIdx.x; i < all; i += kCountThreads) {
      if (counts[i] != 0) counts[i] = brackets.first[i] + atomicAdd(launch.placed + i, counts[i]);
    }
    __syncthreads();
#pragma unroll
    for (unsigned k = 0; k < kEach; ++k) {
      if (interval[k] == kNoKey) continue;
      static_cast<Word*>(brackets.keys)[counts[interval[k]] + place[k]] =
          static_cast<const Word*>(launch.keys)[begin + k * kCountThreads + threadIdx.x];
    }
    __syncthreads();  // the counts have been read
  }
}

// Where a rank is among what was counted.
struct RankPlace {
  int slot = 0;
  unsigned before = 0;  // elements in lesser slots
};
__device__ RankPlace PlaceOf(const std::uint32_t* counts, int ends, std::int64_t rank) {
  RankPlace place;
  for (; place.slot < 2 * ends; ++place.slot) {
    const std::uint32_t upto = place.before + counts[place.slot];
    if (rank < upto) break;
    place.before = upto;
  }
  return place;
}
// Whether its key is an end or collected.
__device__ bool IsThere(const KeyBrackets& brackets, std::int64_t group, int slot) {
  return slot % 2 != 0 || (brackets.collected[group] >> (slot / 2) & 1) != 0;
}

// Elements of a group that have a rank, and NaNs.
struct GroupCounts {
  std::int64_t ranked = 0;
  unsigned nans = 0;
};
__device__ GroupCounts CountsOf(const std::uint32_t* counts, int slots) {
  GroupCounts sum{.nans = counts[slots - 1]};
  for (int slot = 0; slot < slots - 1; ++slot) sum.ranked += counts[slot];
  return sum;
}

__global__ void __launch_bounds__(kItemThreads) CheckRanksKernel(const __grid_constant__ KeyBracketsLaunch launch) {
  const KeyBrackets& brackets = launch.brackets;
  ForEachItem(brackets.groups, [&](std::int64_t group) {
    const std::uint32_t* const counts = brackets.counts + group * brackets.slots();
    const auto [ranked, nans] = CountsOf(counts, brackets.slots());
    if (ranked == 0 || (nans > 0 && !launch.omit_nan)) return;
    for (int i = 0; i < brackets.quantiles; ++i) {
      // Those of the other methods are one of both.
      const QuantilePoint point = PointOf(launch.quantiles[i], ranked, QuantileMethod::kLinear);
      for (const std::int64_t rank : {point.lower, point.higher}) {
        const int slot = PlaceOf(counts, brackets.ends_of_each(), rank).slot;
        if (!IsThere(brackets, group, slot)) atomicAdd(&launch.rows.header->unsure, 1U);
      }
    }
  });
}

// A block for each group and quantile.
template <class Word>
__global__ void __launch_bounds__(kSelectThreads)
    BracketAnswersKernel(const __grid_constant__ QuantilesLaunch launch, const __grid_constant__ KeyBrackets brackets) {
  __shared__ SelectMemory memory;
  const std::int64_t item = blockIdx.x / launch.of_each, group = launch.first + item;
  const int q = static_cast<int>(blockIdx.x % launch.of_each);
  const std::uint32_t* const counts = brackets.counts + group * brackets.slots();
  const auto [ranked, nans] = CountsOf(counts, brackets.slots());
  const bool is_known = ranked > 0 && (nans == 0 || launch.omit_nan);
  if (threadIdx.x == 0 && q == 0) launch.left[item] = LeftOf(launch, static_cast<unsigned>(ranked), nans);
  Word key[2] = {};
  QuantilePoint point;
  if (is_known) {
    point = PointOf(launch.quantiles[q], ranked, launch.method);
    // Of the lower rank's slot.
    const Word* keys = nullptr;
    unsigned count = 0;
    int slot = 0;
    Selected<Word> found;
    for (int i = 0; i < 2; ++i) {
      const std::int64_t rank = i == 0 ? point.lower : point.higher;
      const RankPlace place = PlaceOf(counts, brackets.ends_of_each(), rank);
      const Word* const ends = static_cast<const Word*>(brackets.ends) + group * brackets.ends_of_each();
      if (i == 1 && (rank == point.lower || (place.slot == slot && found.after > 0))) {
        key[1] = key[0];
      } else if (place.slot % 2 != 0) {
        key[i] = ends[place.slot / 2];
      } else if (i == 1 && place.slot == slot) {
        key[1] = NextKey(keys, count, key[0], memory);
      } else {
        const std::int64_t interval = group * brackets.intervals() + place.slot / 2 - 1;
        keys = static_cast<const Word*>(brackets.keys) + brackets.first[interval];
        count = counts[place.slot];
        found = SelectKey(keys, count, static_cast<unsigned>(rank - place.before), ends[place.slot / 2 - 1],
                          ends[place.slot / 2], memory);
        key[i] = found.key;
      }
      slot = place.slot;
    }
  }
  if (threadIdx.x == 0) Answer(launch, item * launch.of_each + q, is_known, key[0], key[1], point.weight);
}

// Counts and collects, and brings what was collected into order.
template <class Word, int kEnds>
cudaError_t Count(const KeyBracketsLaunch& launch, const KeyFormat& format) {
  constexpr auto kKernel = CountKernel<Word, kEnds>;
  const KeyTablesLaunch& rows = launch.rows;
  const KeyBrackets& brackets = launch.brackets;
  const std::int64_t words = (brackets.groups + 1) * (brackets.slots() | 1);
  const std::int64_t least = SharedBytesOf(brackets, sizeof(Word));
  int copies = static_cast<int>(
      std::bit_floor(static_cast<std::uint64_t>(std::clamp<std::int64_t>(kCopiedWords / words, 1, kMostCopies))));
  while (copies > 1 && least + 4 * words * (copies - 1) > rows.most_shared_bytes) copies /= 2;
  if (const cudaError_t error = AllowShared(rows, kKernel); error != cudaSuccess) return error;
  const QuadPlan plan = QuadsOf(rows);
  const auto blocks = static_cast<unsigned>(
      std::clamp<std::int64_t>(plan.quads / kCountThreads, 1, std::int64_t{rows.multiprocessors}));
  kKernel<<<blocks, kCountThreads, static_cast<std::size_t>(least + 4 * words * (copies - 1)), rows.stream>>>(
      launch, format, plan, copies);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  PlaceKernel<<<1, kCountThreads, 0, rows.stream>>>(launch);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  constexpr auto kScatter = ScatterKernel<Word>;
  if (const cudaError_t error = AllowShared(rows, kScatter); error != cudaSuccess) return error;
  const auto counts = static_cast<std::size_t>(4 * brackets.groups * brackets.intervals());
  kScatter<<<static_cast<unsigned>(rows.multiprocessors), kCountThreads, counts, rows.stream>>>(launch);
  return cudaGetLastError();
}

template <class Function>
cudaError_t VisitWord(DType dtype, Function f) {
  return VisitDType(dtype, [&]<class T>(std::type_identity<T>) {
    return f(std::type_identity<WordOfBytes<sizeof(T)>>(), KeyFormatOf<T>());
  });
}

}  // namespace

cudaError_t LaunchSampleKeys(const KeyBracketsLaunch& launch) {
  const KeyTablesLaunch& rows = launch.rows;
  const DTypeRow& key = RowOf(rows.key_dtype);
  return VisitWord(rows.elements.dtype, [&]<class Word>(std::type_identity<Word>, const KeyFormat& format) {
    SampleKeysKernel<Word>
        <<<BlocksForItems(launch.samples()), kItemThreads, 0, rows.stream>>>(launch, format, key.bytes, key.is_signed);
    return cudaGetLastError();
  });
}

cudaError_t LaunchKeyBrackets(const KeyBracketsLaunch& launch) {
  const KeyTablesLaunch& rows = launch.rows;
  const auto groups = static_cast<unsigned>(launch.brackets.groups);
  cudaError_t error =
      VisitWord(rows.elements.dtype, [&]<class Word>(std::type_identity<Word>, const KeyFormat& format) {
        SetEndsKernel<Word><<<groups, kSelectThreads, 0, rows.stream>>>(launch, format.is_float);
        if (const cudaError_t ended = cudaGetLastError(); ended != cudaSuccess) return ended;
        return launch.brackets.quantiles == 1 ? Count<Word, 2>(launch, format) : Count<Word, 0>(launch, format);
      });
  if (error != cudaSuccess) return error;
  CheckRanksKernel<<<BlocksForItems(groups), kItemThreads, 0, rows.stream>>>(launch);
  return cudaGetLastError();
}

cudaError_t LaunchBracketAnswers(const QuantilesLaunch& launch, const KeyBrackets& brackets) {
  return VisitWord(launch.dtype, [&]<class Word>(std::type_identity<Word>, const KeyFormat&) {
    BracketAnswersKernel<Word>
        <<<static_cast<unsigned>(launch.count * launch.of_each), kSelectThreads, 0, launch.stream>>>(launch, brackets);
    return cudaGetLastError();
  });
}

}  // namespace reduced
