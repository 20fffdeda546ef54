// Quantiles of many outputs: a warp or a block selects those of an output, without a look at any other.
//
// The sort keys of an output are copied to shared memory. They are counted in bins of equal width between the least and
// the largest element, which most distributions fill evenly: atomics on one counter are served one after the other. The
// few keys of the bin that has the wanted rank are gathered in a list, where a warp ranks each by comparing it with
// all. A bin of more keys is counted again, in bins of its sort keys: a radix selection, which ends after a few digits
// whatever the distribution. Of many quantiles the keys are sorted instead. An output of at most 32 positions has a
// lane for each of them, and needs no bins. NaNs and elements that a mask leaves out have no rank; they have the
// largest key, behind all others. A second kernel answers from the two neighbours of each quantile.
//
// What is to be expected of 1 GiB of f32 in rows of 1024: it is read once; 4 MiB of numbers and keys are written and
// read, and 2 MiB of answers written. A lane executes some 40 instructions for each element, the issue of which takes
// an H100 about 1.5 plain reads; each further quantile takes 10 more. Outputs whose keys do not fit in shared memory
// are counted by their highest 11 bits while they are read, and are read once more for each further digit and for the
// list: f32 three times.
//
// Compiled without contraction of operations: what is between two elements is rounded operation by operation.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/algebra/sort_key.h"
#include "kernels/cuda/each_item.cuh"
#include "kernels/cuda/group_elements.cuh"
#include "kernels/cuda/quantile_selector.cuh"
#include "kernels/cuda/quantiles.h"
#include "kernels/cuda/selection.h"
#include "kernels/folds/quantile_points.h"

namespace reduced {
namespace {

constexpr int kWarpsOfBlock = 8;       // if each has an output of its own; of columns they read the same sectors
constexpr int kBytesOfWarp = 4 << 10;  // of the keys of an output that a warp has
constexpr int kBytesOfThread = 128;    // of a block
constexpr int kLeastThreads = 128, kMostThreads = 1024;  // of a block
constexpr int kMostBytesOfBlock = 128 << 10;             // of keys in shared memory

template <class Word, bool kBlock, bool kCached>
__global__ void __launch_bounds__(kBlock ? kMostThreads : kWarpsOfBlock* kLanes, kBlock ? 1 : 4)
    SelectKernel(const __grid_constant__ QuantilesLaunch launch, const __grid_constant__ KeyFormat format,
                 const __grid_constant__ Share share) {
  extern __shared__ uint4 shared_memory[];
  using Output = Selector<Word, kBlock, kCached>;
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const std::int64_t item = kBlock ? std::int64_t{blockIdx.x} : std::int64_t{blockIdx.x} * kWarpsOfBlock + warp;
  if (item >= launch.count) return;
  const GroupPart part = WholeOutput(launch.outputs, launch.array, launch.first + item);
  if (part.end <= share.shortest) return;
  if (part.end > share.longest) {
    if (threadIdx.x % kLanes == 0) launch.numbers[item] = kLeft;
    return;
  }
  if constexpr (!kBlock) {
    if (part.end <= kLanes) return SelectFew<Word>(launch, format, part, item, kLanes);
  }
  auto* const memory = reinterpret_cast<std::byte*>(shared_memory);
  Output(launch, format, share, part, memory + (kBlock ? 0 : warp * Output::SharedBytes(share.room))).Run(item);
}

// Of outputs of at most `width` positions. The lanes behind the last output have it, too.
template <class Word>
__global__ void __launch_bounds__(kItemThreads) SelectFewKernel(const __grid_constant__ QuantilesLaunch launch,
                                                                const __grid_constant__ KeyFormat format, int width) {
  const std::int64_t group = (std::int64_t{blockIdx.x} * kItemThreads + threadIdx.x) / width;
  const std::int64_t item = min(group, launch.count - 1);
  SelectFew<Word>(launch, format, WholeOutput(launch.outputs, launch.array, launch.first + item), item, width);
}

// Answers from the keys: FinishQuantiles of folds/quantile_answers.h.
template <class T>
__global__ void __launch_bounds__(kItemThreads) FinishKernel(const __grid_constant__ QuantilesLaunch launch) {
  using Key = SortKey<T>;
  ForEachItem(launch.count * launch.of_each, [&](std::int64_t i) {
    const std::int64_t item = i / launch.of_each, q = i - item * launch.of_each;
    const std::int64_t numbers = launch.numbers[item];
    if (q == 0) launch.left[item] = numbers == kLeft ? kTooLong : numbers == 0 ? kNotKnown : kAnswered;
    if (numbers == kLeft) return;
    const bool is_known = numbers > 0;
    const auto* const keys = static_cast<const typename Key::Type*>(launch.keys) + 2 * i;
    const T none = kIsFloat<T> ? Key::Element(Key::kNan) : T{};
    const T lower = is_known ? Key::Element(keys[0]) : none;
    if (!AnswersInF64(launch.method)) {
      reinterpret_cast<T*>(launch.answers)[i] = lower;
      return;
    }
    double answer = __longlong_as_double(0x7ff8'0000'0000'0000);
    if (is_known) {
      const QuantilePoint point = PointOf(launch.quantiles[q], numbers, launch.method);
      answer = BetweenElements(lower, Key::Element(keys[1]), point.weight, launch.is_median);
    }
    reinterpret_cast<double*>(launch.answers)[i] = answer;
  });
}

template <class Word, bool kBlock, bool kCached>
cudaError_t LaunchSelect(const QuantilesLaunch& launch, const KeyFormat& format, const Share& share, int threads) {
  using Output = Selector<Word, kBlock, kCached>;
  constexpr int kOutputs = kBlock ? 1 : kWarpsOfBlock;
  const auto kernel = SelectKernel<Word, kBlock, kCached>;
  const std::int64_t shared = kOutputs * Output::SharedBytes(share.room);
  // All that a block can have: other threads launch it with more or less.
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                 static_cast<int>(launch.most_shared_bytes));
  if (error != cudaSuccess) return error;
  const auto blocks = static_cast<unsigned>((launch.count + kOutputs - 1) / kOutputs);
  kernel<<<blocks, static_cast<unsigned>(threads), static_cast<std::size_t>(shared), launch.stream>>>(launch, format,
                                                                                                      share);
  return cudaGetLastError();
}

// Outputs of a few KiB have a warp each, longer ones a block, whose shared memory has as many keys as an output has, or
// twice as many as it has on average.
template <class Word>
cudaError_t LaunchSelects(const QuantilesLaunch& launch, const KeyFormat& format) {
  constexpr auto kWidth = static_cast<std::int64_t>(sizeof(Word));
  constexpr std::int64_t kOfWarp = kBytesOfWarp / kWidth;
  const bool is_uniform = launch.outputs.bounds == nullptr;
  if (is_uniform && launch.positions <= kLanes) {
    const auto width = static_cast<int>(std::bit_ceil(static_cast<unsigned>(launch.positions)));
    const std::int64_t blocks = (launch.count * width + kItemThreads - 1) / kItemThreads;
    SelectFewKernel<Word><<<static_cast<unsigned>(blocks), kItemThreads, 0, launch.stream>>>(launch, format, width);
    return cudaGetLastError();
  }
  Share share{.neighbours = LieOf(launch.array) == Lie::kNeighbours};
  if (!is_uniform || launch.positions <= kOfWarp) {
    share.room = static_cast<int>(is_uniform ? launch.positions : kOfWarp);
    share.longest = kOfWarp;
    const cudaError_t error = LaunchSelect<Word, false, (kWidth > 1)>(launch, format, share, kWarpsOfBlock * kLanes);
    if (is_uniform || error != cudaSuccess) return error;
    share.shortest = kOfWarp;
  }
  const std::int64_t wanted = is_uniform ? launch.positions : std::max(2 * launch.positions, kOfWarp);
  const std::int64_t most_bytes =
      std::min<std::int64_t>(kMostBytesOfBlock, launch.most_shared_bytes - Selector<Word, true, false>::SharedBytes(0));
  const bool caches = wanted * kWidth <= most_bytes;
  share.room = static_cast<int>(caches ? wanted : 0);
  share.longest = launch.longest;
  const auto threads = static_cast<int>(std::bit_floor(
      static_cast<unsigned>(std::clamp<std::int64_t>(wanted * kWidth / kBytesOfThread, kLeastThreads, kMostThreads))));
  if constexpr (kWidth > 1) {
    if (is_uniform && caches) return LaunchSelect<Word, true, true>(launch, format, share, threads);
  }
  return LaunchSelect<Word, true, false>(launch, format, share, threads);
}

}  // namespace

cudaError_t LaunchQuantiles(const QuantilesLaunch& launch) {
  return VisitDType(launch.dtype, [&]<class T>(std::type_identity<T>) {
    const cudaError_t error = LaunchSelects<typename SortKey<T>::Type>(launch, KeyFormatOf<T>());
    if (error != cudaSuccess) return error;
    FinishKernel<T><<<BlocksForItems(launch.count * launch.of_each), kItemThreads, 0, launch.stream>>>(launch);
    return cudaGetLastError();
  });
}

}  // namespace reduced
