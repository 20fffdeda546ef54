// Quantiles of many outputs: a few lanes or a block select those of an output, without a look at any other.
//
// An output of up to 16 positions is sorted by a thread. Up to 16 quantiles of one of up to 32 Ki positions (16 Ki of 8
// bytes) are selected from registers, 32 elements for each thread, bit by bit (key_planes.cuh). Elements that are no
// neighbours, and those of short rows, go through shared memory, so that neighbouring lanes read neighbouring elements.
// All other quantiles are those of keys that a block sorts (long_quantiles.cuh).
//
// What is to be expected of 1 GiB of f32 in rows of 1024: it is read once, and 2 MiB of answers are written. A thread
// takes some 25 instructions for each element, a third of them to transpose it, the issue of which takes an H200 about
// 1.6 plain reads; each further quantile takes 10 more. Outputs that do not fit in registers are read twice or more
// often, partly from the L2 cache.
//
// Compiled without contraction of operations: what is between two elements is rounded operation by operation.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/group_elements.cuh"
#include "kernels/cuda/key_planes.cuh"
#include "kernels/cuda/long_quantiles.cuh"
#include "kernels/cuda/output_elements.cuh"
#include "kernels/cuda/quantile_answer.cuh"
#include "kernels/cuda/quantiles.h"
#include "kernels/cuda/selection.h"
#include "kernels/folds/quantile_points.h"

namespace reduced {
namespace {

constexpr int kMostSelected = 16;                  // quantiles of an output; of more its keys are sorted
constexpr int kElements = 32;                      // of a thread that selects
constexpr int kFewBits = 4, kFew = 1 << kFewBits;  // elements of an output that a thread sorts
constexpr int kFewThreads = 256;                   // of a block
constexpr int kStagedLanes = 8;                    // fewer lanes read less than a sector of an output at a time
constexpr int kBytesAcross = 64;                   // of neighbouring outputs that a block reads at a time
constexpr int kLongThreads = 512;
constexpr std::int64_t kSortedBytes = 32 << 10;  // of the keys that a block sorts
template <class Word>
constexpr int kMostThreads = sizeof(Word) == 8 ? 512 : 1024;  // of a block, whose registers have all planes

template <class Word, TeamKind kKind>
__global__ void __launch_bounds__(kMostThreads<Word>)
    SelectKernel(const __grid_constant__ QuantilesLaunch launch, const __grid_constant__ KeyFormat format,
                 const __grid_constant__ OutputShare share) {
  extern __shared__ uint4 shared_memory[];
  constexpr bool kBlock = kKind == TeamKind::kBlock;
  auto* const of_team = reinterpret_cast<TeamMemory*>(shared_memory);
  Team<kKind> team(share.width, of_team);
  const int outputs = kBlock ? 1 : static_cast<int>(blockDim.x) / share.width;  // of the block
  const int mine = kBlock ? 0 : static_cast<int>(threadIdx.x) / share.width;
  const std::int64_t item = std::int64_t{blockIdx.x} * outputs + mine;
  GroupPart part;
  if (item < launch.count) part = WholeOutput(launch.outputs, launch.array, launch.first + item);
  const bool is_mine = item < launch.count && part.end > share.shortest && part.end <= share.longest;
  if (!is_mine) part.end = 0;
  if (kBlock && !is_mine) return;
  const bool leads = team.Rank() == 0;
  const auto elements =
      ElementsOf<Word>(launch, share, part, mine, outputs, leads, reinterpret_cast<std::byte*>(of_team + 1));
  KeyPlanes<Word> planes;
  if (share.vectors) {
    planes.LoadVectors([&](int i, uint4* raw) { return elements.LoadVector(i * share.width + team.Rank(), raw); });
  } else {
    planes.LoadElements([&](int i, Word* raw) { return elements.Load(i * share.width + team.Rank(), raw); });
  }
  planes.MakeKeys(format);

  const unsigned nans = format.is_float ? team.Sum(static_cast<unsigned>(__popc(static_cast<int>(planes.nan())))) : 0;
  const unsigned ranked = team.Sum(static_cast<unsigned>(__popc(static_cast<int>(planes.there())))) - nans;
  const bool is_known = ranked > 0 && (nans == 0 || launch.omit_nan);
  if (is_mine && leads) launch.left[item] = LeftOf(launch, ranked, nans);
  for (int q = 0; q < launch.of_each; ++q) {
    const QuantilePoint point = is_known ? PointOf(launch.quantiles[q], ranked, launch.method) : QuantilePoint();
    Word lower, higher;
    planes.Select(team, is_known ? ranked : 0, static_cast<unsigned>(point.lower), static_cast<unsigned>(point.higher),
                  &lower, &higher);
    if (is_mine && leads) Answer(launch, item * launch.of_each + q, is_known, lower, higher, point.weight);
  }
}

// Sorts the keys of outputs of up to kFew positions: K. E. Batcher's odd-even merge sort.
template <class Word>
__global__ void __launch_bounds__(kFewThreads)
    SortFewKernel(const __grid_constant__ QuantilesLaunch launch, const __grid_constant__ KeyFormat format,
                  const __grid_constant__ OutputShare share) {
  extern __shared__ uint4 shared_memory[];
  const int mine = static_cast<int>(threadIdx.x), outputs = static_cast<int>(blockDim.x);
  const std::int64_t item = std::int64_t{blockIdx.x} * outputs + mine;
  GroupPart part;
  if (item < launch.count) part = WholeOutput(launch.outputs, launch.array, launch.first + item);
  const auto elements =
      ElementsOf<Word>(launch, share, part, mine, outputs, /*leads=*/true, reinterpret_cast<std::byte*>(shared_memory));
  if (item >= launch.count) return;
  constexpr Word kMost = static_cast<Word>(~Word{0});
  Word key[kFew];
  unsigned ranked = 0, nans = 0;
#pragma unroll
  for (int i = 0; i < kFew; ++i) {
    Word raw;
    const bool is_there = elements.Load(i, &raw);
    key[i] = is_there ? PlainKeyOf(raw, format) : kMost;
    const bool is_nan = format.is_float && is_there && key[i] == kMost;
    nans += is_nan ? 1 : 0;
    ranked += is_there && !is_nan ? 1 : 0;
  }
#pragma unroll
  for (int merge = 0; merge < kFewBits; ++merge) {
#pragma unroll
    for (int level = kFewBits - 1; level >= 0; --level) {
      const int size = 1 << merge, step = 1 << level, begin = level == merge ? 0 : step;
#pragma unroll
      for (int i = 0; i < kFew; ++i) {
        if (level > merge || i < begin || i + step >= kFew || ((i - begin) & step) != 0) continue;
        if (i / (2 * size) != (i + step) / (2 * size)) continue;
        const Word a = key[i], b = key[i + step];
        key[i] = a < b ? a : b;
        key[i + step] = a < b ? b : a;
      }
    }
  }
  auto* const sorted = const_cast<Word*>(elements.data);  // in place of the copy
#pragma unroll
  for (int i = 0; i < kFew; ++i) {
    if (i < elements.end) sorted[i] = key[i];
  }
  const bool is_known = ranked > 0 && (nans == 0 || launch.omit_nan);
  launch.left[item] = LeftOf(launch, ranked, nans);
  for (int q = 0; q < launch.of_each; ++q) {
    const QuantilePoint point = is_known ? PointOf(launch.quantiles[q], ranked, launch.method) : QuantilePoint();
    Answer(launch, item * launch.of_each + q, is_known, is_known ? sorted[point.lower] : Word{0},
           is_known ? sorted[point.higher] : Word{0}, point.weight);
  }
}

template <class Word>
__global__ void __launch_bounds__(kLongThreads, 2)
    LongKernel(const __grid_constant__ QuantilesLaunch launch, const __grid_constant__ KeyFormat format,
               bool neighbours, std::int64_t shortest, int room) {
  extern __shared__ uint4 shared_memory[];
  const std::int64_t item = blockIdx.x;
  const GroupPart part = WholeOutput(launch.outputs, launch.array, launch.first + item);
  if (part.end <= shortest) return;
  if (part.end > launch.longest) {
    if (threadIdx.x == 0) launch.left[item] = kTooLong;
    return;
  }
  auto* const found = static_cast<Word*>(launch.keys) + 2 * item * launch.of_each;
  const std::int64_t numbers =
      LongSelector<Word>(launch, format, neighbours, room, part, reinterpret_cast<std::byte*>(shared_memory))
          .Run(found);
  if (threadIdx.x == 0) launch.left[item] = numbers == 0 ? kNotKnown : kAnswered;
  for (int q = static_cast<int>(threadIdx.x); q < launch.of_each; q += static_cast<int>(blockDim.x)) {
    const bool is_known = numbers > 0;
    const double weight = is_known ? PointOf(launch.quantiles[q], numbers, launch.method).weight : 0;
    Answer(launch, item * launch.of_each + q, is_known, is_known ? found[2 * q] : Word{0},
           is_known ? found[2 * q + 1] : Word{0}, weight);
  }
}

template <class Kernel, class... Arguments>
cudaError_t Launch(const QuantilesLaunch& launch, Kernel* kernel, std::int64_t blocks, int threads, std::int64_t shared,
                   const Arguments&... arguments) {
  // All that a block can have: other threads launch it with more or less.
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                 static_cast<int>(launch.most_shared_bytes));
  if (error != cudaSuccess) return error;
  kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), static_cast<std::size_t>(shared),
           launch.stream>>>(launch, arguments...);
  return cudaGetLastError();
}

int PowerOfTwo(std::int64_t least) { return static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(least))); }

// Selects from registers; `is_few`: sorts there.
template <class Word>
cudaError_t LaunchSelect(const QuantilesLaunch& launch, const KeyFormat& format, OutputShare share, bool is_few) {
  constexpr auto kWidth = static_cast<std::int64_t>(sizeof(Word));
  const bool is_uniform = launch.outputs.bounds == nullptr;
  const bool is_block = share.width > kLanes;
  share.longest = std::min<std::int64_t>(launch.longest, share.width * kElements);
  int threads = is_block ? share.width : kFewThreads;
  if (share.path == ElementPath::kEach && share.across && !is_block && !is_few) {
    threads = std::clamp<int>(share.width * kBytesAcross / kWidth, threads, kMostThreads<Word>);
  }
  const std::int64_t positions = is_uniform ? launch.positions : share.longest;
  // An odd number of words: lanes of different outputs read different banks.
  const std::int64_t words = (positions * kWidth + 3) / 4;
  share.pitch = static_cast<int>(kWidth == 8 ? positions | 1 : (words | 1) * 4 / kWidth);
  const auto shared_of = [&](int all) {
    const std::int64_t outputs = all / share.width;
    std::int64_t bytes = sizeof(TeamMemory);
    if (share.path == ElementPath::kSpan) bytes += outputs * positions * kWidth + 32;
    if (share.path == ElementPath::kEach) {
      bytes +=
          outputs * (static_cast<std::int64_t>(sizeof(GroupPart)) + share.pitch * (kWidth + (share.masked ? 1 : 0)));
    }
    return bytes;
  };
  while (shared_of(threads) > launch.most_shared_bytes && threads > std::max(share.width, kLanes)) threads /= 2;
  const int outputs = threads / share.width;
  share.copiers =
      share.across || is_block ? share.width : std::min(kLanes, PowerOfTwo(std::max<std::int64_t>(1, positions)));
  const std::int64_t blocks = (launch.count + outputs - 1) / outputs, shared = shared_of(threads);
  if (is_few) return Launch(launch, SortFewKernel<Word>, blocks, threads, shared, format, share);
  if (is_block) return Launch(launch, SelectKernel<Word, TeamKind::kBlock>, blocks, threads, shared, format, share);
  return share.width == kLanes
             ? Launch(launch, SelectKernel<Word, TeamKind::kWarp>, blocks, threads, shared, format, share)
             : Launch(launch, SelectKernel<Word, TeamKind::kLanes>, blocks, threads, shared, format, share);
}

template <class Word>
cudaError_t LaunchLong(const QuantilesLaunch& launch, const KeyFormat& format, std::int64_t shortest) {
  using Output = LongSelector<Word>;
  constexpr auto kWidth = static_cast<std::int64_t>(sizeof(Word));
  const bool is_uniform = launch.outputs.bounds == nullptr;
  std::int64_t room = Output::kSorts ? kSortedBytes / kWidth : 16;
  const bool is_sorted = Output::kSorts && is_uniform && launch.positions <= room;
  if (is_sorted) room = launch.positions;
  const std::int64_t least =
      is_sorted ? room / 8 : std::max<std::int64_t>(Output::kSorts ? 256 : 0, launch.positions * kWidth / 64);
  const int threads = PowerOfTwo(std::clamp<std::int64_t>(least, kLanes, kLongThreads));
  return Launch(launch, LongKernel<Word>, launch.count, threads, Output::SharedBytes(room, !is_sorted), format,
                LieOf(launch.array) == Lie::kNeighbours, shortest, static_cast<int>(room));
}

// Outputs that are not of one length take several launches, each of which leaves out what is not its own.
template <class Word>
cudaError_t LaunchAll(const QuantilesLaunch& launch, const KeyFormat& format) {
  constexpr auto kWidth = static_cast<std::int64_t>(sizeof(Word));
  const GroupArray& array = launch.array;
  const GroupOutputs& outputs = launch.outputs;
  const SliceDimensions& kept = outputs.kept;
  const bool is_uniform = outputs.bounds == nullptr, neighbours = LieOf(array) == Lie::kNeighbours;
  const std::int64_t positions = launch.positions;
  // Bytes have so few bits that to select takes less time than to sort.
  const bool selects = launch.of_each <= kMostSelected;
  const bool is_few = is_uniform && positions <= kFew && (kWidth > 1 || !selects);
  if (!selects && !is_few) return LaunchLong<Word>(launch, format, -1);
  OutputShare share{.in_order = array.rows == nullptr && array.mask == nullptr && array.reduced.count <= 1,
                    .masked = array.mask != nullptr,
                    .across = is_uniform && kept.count > 0 && kept.stride[kept.count - 1] == 1};
  share.vectors = is_uniform && !is_few && neighbours && positions * kWidth % 16 == 0 &&
                  reinterpret_cast<std::uintptr_t>(array.data) % 16 == 0;
  bool end_to_end = is_uniform && neighbours;
  std::int64_t stride = positions;
  for (int i = kept.count - 1; i >= 0; --i) {
    share.vectors = share.vectors && kept.stride[i] * kWidth % 16 == 0;
    end_to_end = end_to_end && kept.stride[i] == stride;
    stride *= kept.size[i];
  }
  // Shared memory has fewer elements of an output that need it.
  std::int64_t most = kMostThreads<Word> * kElements;
  while (!neighbours && most * (kWidth + 1) + 1024 > launch.most_shared_bytes) most /= 2;
  if (is_uniform && positions > std::min(most, launch.longest)) return LaunchLong<Word>(launch, format, -1);
  const std::int64_t wanted = is_uniform ? positions : 2 * positions;
  const int width = PowerOfTwo(std::max<std::int64_t>(1, (std::min(wanted, most) + kElements - 1) / kElements));
  for (const int next : {std::min(width, kLanes), kLanes, std::max(width, 2 * kLanes)}) {
    if (is_uniform ? next != width : next == share.width && share.shortest >= 0) continue;
    share.width = next;
    share.path = !neighbours                                        ? ElementPath::kEach
                 : !is_uniform || (next >= kStagedLanes && !is_few) ? ElementPath::kDirect
                 : end_to_end                                       ? ElementPath::kSpan
                                                                    : ElementPath::kEach;
    if (share.path == ElementPath::kEach) share.vectors = false;
    if (const cudaError_t error = LaunchSelect<Word>(launch, format, share, is_few); error != cudaSuccess) return error;
    if (is_uniform) return cudaSuccess;
    share.shortest = std::min<std::int64_t>(launch.longest, next * kElements);
  }
  return LaunchLong<Word>(launch, format, share.shortest);
}

}  // namespace

cudaError_t LaunchQuantiles(const QuantilesLaunch& launch) {
  KeyFormat format;
  VisitDType(launch.dtype, [&]<class T>(std::type_identity<T>) { format = KeyFormatOf<T>(); });
  switch (format.bytes) {
    case 1:
      return LaunchAll<std::uint8_t>(launch, format);
    case 2:
      return LaunchAll<std::uint16_t>(launch, format);
    case 4:
      return LaunchAll<std::uint32_t>(launch, format);
    default:
      return LaunchAll<std::uint64_t>(launch, format);
  }
}

}  // namespace reduced
