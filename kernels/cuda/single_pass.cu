// single_pass: the default CUDA pipeline. Everything in one launch, one read of the array.
//
// Why it is fast: a reduction is bound by memory, so each thread keeps several independent 16-byte loads in flight and
// folds them in registers; warps merge by shuffles, blocks through shared memory. Instead of a second launch over the
// blocks' results, the last block to finish (it draws the last ticket) merges them, in index order: the same bits run
// after run. It resets the ticket, so nothing has to be done between launches, and the result goes straight to `out`,
// which the engine maps from pinned host memory: no copy back. What small arrays cost is the latency of these steps in
// a row, hence a ticket that is one acquire-release operation, without fences, and one warp that takes it and, where
// the states are small, merges them too: no barrier after the block's own. Events around a small kernel would take
// longer than it does: it writes down itself when it began and ended.
//
// Sources: M. Harris, "Optimizing Parallel Reduction in CUDA"; CUDA C++ Programming Guide, "Memory Fence Functions"
// (the last-block technique); PTX ISA, "Memory Consistency Model".
//
// Kernels are instantiated for each accumulator alone, for several together as statistics of an array take them, and
// once for all accumulators, which serves every other set; that one tests at run time which are wanted.
#include <algorithm>
#include <bit>
#include <type_traits>

#include "kernels/cuda/block_states.cuh"
#include "kernels/cuda/launch_end.cuh"
#include "kernels/cuda/pipeline.h"
#include "kernels/cuda/single_pass.cuh"

namespace reduced {
namespace {

constexpr int kMaxBlocks = 2112;
constexpr std::size_t kTicketBytes = 256;  // before the states, in the scratch memory

struct Arguments {
  EdgedArray array;
  AccumulatorSet set;
  bool omit_nan;
  unsigned* ticket;
  unsigned char* states;  // of each accumulator in turn, one for each block
  Partial* out;
  KernelTimes* times;  // null: not wanted
};

// Measured on an H200: tests/bench/bench_cuda.
using TinySums = PassShape<256, 1, 2>;  // one block
using SmallSums = PassShape<512, 3, 4>;
using LargeSums = PassShape<1024, 1, 8>;
using MomentsAlone = PassShape<512, 2, 4>;
using Everything = PassShape<256, 2, 4>;

// By the thread that wrote the result, after that.
__device__ inline void SayDone(const Arguments& args) {
  args.out->count = args.array.count;
  SayEnded(args.times);
}

// NaNs of floats, but where they are counted.
enum class Nans { kKept, kOmitted, kAsAsked };

template <class T, bool kAll, Nans kNans, class S, class... As>
__global__ void __launch_bounds__(S::kThreads, std::min(S::kMinBlocks, kThreadsPerMultiprocessor / S::kThreads))
    SinglePassKernel(Arguments args) {
  constexpr int kBlockThreads = S::kThreads;
  SayBegun(args.times);
  const Walk<T> walk = WalkOf<T, kBlockThreads>(args.array, blockIdx.x, gridDim.x,
                                                kNans == Nans::kAsAsked ? args.omit_nan : kNans == Nans::kOmitted);
  Folds<T, As...> folds;
  FoldVectors<T, kAll, S>(walk, args.set, folds);

  // The state of the whole block, in thread 0.
  constexpr std::size_t kStateBytes = std::max({sizeof(typename As::State)...});
  __shared__ alignas(16) unsigned char shared[kBlockThreads / kWarpSize * kStateBytes];
  const auto state_of_block = [&]<class A>(std::type_identity<A>, auto& fold) {
    const typename A::State state = StateOf<A, T>(fold, walk, args.array);
    if (sizeof...(As) > 1) __syncthreads();  // `shared` may be in use
    return BlockReduce<A, kBlockThreads>(state, shared);
  };

  unsigned char* states = args.states;
  ForEach<kAll>(args.set, folds, [&]<class A>(std::type_identity<A> which, auto& fold) {
    using State = typename A::State;
    const State state = state_of_block(which, fold);
    if (threadIdx.x == 0) {
      if (gridDim.x == 1) {
        A::Store(state, args.out);
      } else {
        reinterpret_cast<State*>(states)[blockIdx.x] = state;
      }
    }
    states += StatesBytes<State>(gridDim.x);
  });
  if (gridDim.x == 1) {
    if (threadIdx.x == 0) SayDone(args);
    return;
  }

  // Those who merge the blocks' states: the first warp, or the whole block.
  constexpr int kMergers = sizeof...(As) == 1 && kStateBytes <= 16 ? kWarpSize : kBlockThreads;
  constexpr int kAtOnce = kMergers == kWarpSize ? 8 : 1;  // loads in flight
  if (threadIdx.x >= kMergers) return;
  bool is_last = threadIdx.x == 0 && DrawsLastTicket(args.ticket);
  if constexpr (kMergers == kWarpSize) {
    is_last = __shfl_sync(kFullWarp, is_last, 0);
    __syncwarp();  // what the first lane may read now, all may
  } else {
    is_last = __syncthreads_or(is_last);
  }
  if (!is_last) return;

  states = args.states;
  ForEach<kAll>(args.set, folds, [&]<class A>(std::type_identity<A>, auto&) {
    using State = typename A::State;
    State state = MergedStates<A, kMergers, kAtOnce>(states);
    if constexpr (kMergers == kWarpSize) {
      state = WarpReduce<A>(state);
    } else {
      if (sizeof...(As) > 1) __syncthreads();  // `shared` may be in use
      state = BlockReduce<A, kBlockThreads>(state, shared);
    }
    if (threadIdx.x == 0) A::Store(state, args.out);
    states += StatesBytes<State>(gridDim.x);
  });
  if (threadIdx.x == 0) SayDone(args);
}

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// Blocks for that many bytes, such that all make the same number of passes, as far as can be: few for small arrays,
// where merging the blocks' states costs more than it saves. Measured on an H200: tests/bench/bench_cuda --sweep.
template <class S>
int GridBlocks(std::int64_t bytes, const Launch& launch) {
  const std::int64_t bytes_per_pass = std::int64_t{16} * S::kThreads;  // of a block, a vector a thread
  const std::int64_t vectors = std::max<std::int64_t>(1, (bytes + bytes_per_pass - 1) / bytes_per_pass);
  const int by_multiprocessor =
      std::max(1, bytes <= 4 * kMiB ? 512 / S::kThreads : std::min(1024 / S::kThreads, S::kMinBlocks));
  const std::int64_t most = std::min(launch.multiprocessors * by_multiprocessor, kMaxBlocks);
  std::int64_t passes = (vectors + most - 1) / most;
  // What is left over from whole tiles is loaded one vector at a time.
  if (passes > S::kVectors) passes = (passes + S::kVectors - 1) / S::kVectors * S::kVectors;
  return static_cast<int>((vectors + passes - 1) / passes);
}

template <class T>
std::int64_t BytesOf(const Launch& launch) {
  return launch.count * static_cast<std::int64_t>(sizeof(T));
}

template <class T, bool kAll, Nans kNans, class S, class... As>
cudaError_t LaunchKernel(const Launch& launch) {
  static_assert((StatesBytes<typename As::State>(kMaxBlocks) + ...) + kTicketBytes <= kScratchBytes);
  const std::int64_t bytes = BytesOf<T>(launch);
  const int blocks = launch.grid_blocks > 0 ? std::min(launch.grid_blocks, kMaxBlocks) : GridBlocks<S>(bytes, launch);
  auto* const scratch = static_cast<unsigned char*>(launch.scratch);
  const Arguments args{.array = EdgedArrayOf<T>(launch.data, launch.count, launch.base_index),
                       .set = launch.accumulators,
                       .omit_nan = launch.omit_nan,
                       .ticket = reinterpret_cast<unsigned*>(scratch),
                       .states = scratch + kTicketBytes,
                       .out = launch.out,
                       .times = launch.times};
  SinglePassKernel<T, kAll, kNans, S, As...><<<blocks, S::kThreads, 0, launch.stream>>>(args);
  return cudaGetLastError();
}

// A kernel of sums alone.
template <class T, class A>
cudaError_t LaunchSums(const Launch& launch) {
  const std::int64_t bytes = BytesOf<T>(launch);
  if (bytes <= 8 << 10) return LaunchKernel<T, true, Nans::kKept, TinySums, A>(launch);
  if (bytes <= 256 * kMiB) return LaunchKernel<T, true, Nans::kKept, SmallSums, A>(launch);
  return LaunchKernel<T, true, Nans::kKept, LargeSums, A>(launch);
}

// The accumulators of PowerSumsOf<T>: a variance is answered from all of them.
template <class T>
constexpr AccumulatorSet kPowerSums = SetOf(Accumulator::kSum) | SetOf(Accumulator::kSumSquares) |
                                      (kIsFloat<T> ? SetOf(Accumulator::kMoments) : 0);

// Whether it is short enough to keep its time.
bool KeepsTime(const Launch& launch) { return launch.count * RowOf(launch.dtype).bytes <= kMaxTimedBytes; }

// The kernel of one accumulator.
template <class T, class A>
cudaError_t LaunchAlone(const Launch& launch) {
  if constexpr (A::kAccumulator == Accumulator::kSum || A::kAccumulator == Accumulator::kSumSquares) {
    return LaunchSums<T, A>(launch);
  } else if constexpr (A::kAccumulator == Accumulator::kMoments || A::kAccumulator == Accumulator::kProduct) {
    return LaunchKernel<T, true, Nans::kKept, MomentsAlone, A>(launch);
  } else {
    return LaunchKernel<T, true, Nans::kKept, ExtremaAlone, A>(launch);
  }
}

// The kernels of one element type.
template <class T>
cudaError_t LaunchFor(const Launch& launch) {
  const AccumulatorSet set = launch.accumulators;
  constexpr AccumulatorSet kCounts = SetOf(Accumulator::kCounts);
  constexpr AccumulatorSet kSum = SetOf(Accumulator::kSum);
  constexpr AccumulatorSet kOrder = SetOf(Accumulator::kExtrema) | kCounts;
  const bool omits = launch.omit_nan && set != kCounts;
  if (std::has_single_bit(set) && !omits) {
    cudaError_t error = cudaErrorInvalidValue;
    AllAccumulators<T>::ForEach([&]<class A>(std::type_identity<A>) {
      if (set == SetOf(A::kAccumulator)) error = LaunchAlone<T, A>(launch);
    });
    return error;
  }
  if constexpr (kIsFloat<T>) {
    if (omits && (set & ~(SetOf(Accumulator::kProduct) | kCounts)) == 0) {
      return LaunchKernel<T, true, Nans::kOmitted, MomentsAlone, ProductOf<T>, CountsOf<T>>(launch);
    }
    if (omits && (set & ~(kPowerSums<T> | kOrder)) == 0) {
      if ((set & ~kOrder) == 0)
        return LaunchKernel<T, true, Nans::kOmitted, ExtremaAlone, ExtremaOf<T>, CountsOf<T>>(launch);
      if constexpr (sizeof(T) > 2) {  // halves as doubles, and counts: too many registers
        if ((set & ~(kSum | kCounts)) == 0)
          return LaunchKernel<T, true, Nans::kOmitted, MomentsAlone, SumOf<T>, CountsOf<T>>(launch);
      }
      if ((set & ~(kPowerSums<T> | kCounts)) == 0)
        return LaunchKernel<T, true, Nans::kOmitted, Statistics<T>, PowerSumsOf<T>, CountsOf<T>>(launch);
      return LaunchKernel<T, true, Nans::kOmitted, Statistics<T>, PowerSumsOf<T>, ExtremaOf<T>, CountsOf<T>>(launch);
    }
  } else {
    if (set == kPowerSums<T>) return LaunchKernel<T, true, Nans::kKept, MomentsAlone, PowerSumsOf<T>>(launch);
  }
  if (set == kOrder) return LaunchKernel<T, true, Nans::kKept, ExtremaAlone, ExtremaOf<T>, CountsOf<T>>(launch);
  if ((set & ~(kSum | kOrder)) == 0) {
    return LaunchKernel<T, true, Nans::kKept, Statistics<T>, SumOf<T>, ExtremaOf<T>, CountsOf<T>>(launch);
  }
  if ((set & ~(kPowerSums<T> | kOrder)) == 0) {
    return LaunchKernel<T, true, Nans::kKept, Statistics<T>, PowerSumsOf<T>, ExtremaOf<T>, CountsOf<T>>(launch);
  }
  return [&]<class... As>(AccumulatorList<As...>) {
    return LaunchKernel<T, false, Nans::kAsAsked, Everything, As...>(launch);
  }(AllAccumulators<T>());
}

}  // namespace

const CudaPipeline kSinglePass = {
    .scratch_bytes = nullptr,
    .prepare = nullptr,
    .launch =
        [](const Launch& launch) {
          return VisitDType(launch.dtype, [&]<class T>(std::type_identity<T>) { return LaunchFor<T>(launch); });
        },
    .occupancy = nullptr,
    .keeps_time = &KeepsTime};

}  // namespace reduced
