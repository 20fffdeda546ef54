// Exact sums of floats on a CUDA device: one launch and one read of the array for sums and sums of squares, with
// extrema and counts beside them, another for sums of magnitudes; the same integers as the CPU's (exact_sums.cuh).
//
// Blocks add their digits to digits in global memory, where the last block to finish finds them, hands them out and
// leaves zeros for the next launch; a block that is the only one hands out its own.
//
// Sources: those of cuda/exact_sums.cuh and cuda/single_pass.cu.
#include <algorithm>

#include "kernels/cuda/exact_sums.cuh"
#include "kernels/cuda/exact_sums.h"
#include "kernels/cuda/launch_end.cuh"

namespace reduced {
namespace {

// In the scratch memory: the ticket, the digits, then the states of each accumulator beside the sums, one for each
// block.
constexpr std::size_t kTicketBytes = 256;
constexpr std::size_t kDigitsBytes = (sizeof(ExactDigits) + 15) / 16 * 16;
constexpr int kMaxBlocks = 1024;

// As in single_pass.cu.
struct Arguments {
  EdgedArray array;
  AccumulatorSet sums;
  AccumulatorSet others;
  bool omit_nan;
  unsigned* ticket;
  ExactDigits* digits;
  unsigned char* states;
  ExactDigits* out;
  Partial* partial;
  KernelTimes* times;  // null: not wanted
};

template <class T, class S, bool kCounts, class List, Accumulator... kSums>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks) ExactSumsKernel(Arguments args) {
  SayBegun(args.times);
  AddArray<T, S, kCounts, List, kSums...>(
      args.array, args.others, args.omit_nan, blockIdx.x, gridDim.x,
      [&](const unsigned long long* words, auto& folds, auto state_of, unsigned char* shared_states) {
        unsigned char* states = args.states;
        ForEach<false>(args.others, folds, [&]<class A>(std::type_identity<A>, auto& fold) {
          using State = typename A::State;
          __syncthreads();  // `shared_states` may be in use
          const State state = state_of(std::type_identity<A>(), fold);
          if (threadIdx.x == 0) {
            if (gridDim.x == 1) {
              A::Store(state, args.partial);
            } else {
              reinterpret_cast<State*>(states)[blockIdx.x] = state;
            }
          }
          states += StatesBytes<State>(gridDim.x);
        });
        __syncthreads();

        // Hands out the digits of all blocks. Zeros are left, as several launches have words of their own.
        auto* const out = reinterpret_cast<unsigned long long*>(args.out);
        const auto hand_out = [&](auto word_at) {
          for (int i = static_cast<int>(threadIdx.x); i < kExactDigitWords; i += S::kThreads) {
            if (const unsigned long long word = word_at(i); word != 0 && IsOf(args.sums, i)) out[i] = word;
          }
          if (args.times == nullptr) return;
          __syncthreads();
          if (threadIdx.x == 0) SayEnded(args.times);
        };
        if (gridDim.x == 1) return hand_out([&](int i) { return words[i]; });

        auto* const global = reinterpret_cast<unsigned long long*>(args.digits);
        for (int i = static_cast<int>(threadIdx.x); i < kExactDigitWords; i += S::kThreads) {
          if (words[i] != 0) atomicAdd(global + i, words[i]);
        }
        __syncthreads();
        if (!__syncthreads_or(threadIdx.x == 0 && DrawsLastTicket(args.ticket))) return;
        states = args.states;
        ForEach<false>(args.others, folds, [&]<class A>(std::type_identity<A>, auto&) {
          __syncthreads();
          const typename A::State state =
              BlockReduce<A, S::kThreads>(MergedStates<A, S::kThreads, 1>(states), shared_states);
          if (threadIdx.x == 0) A::Store(state, args.partial);
          states += StatesBytes<typename A::State>(gridDim.x);
        });
        hand_out([&](int i) { return atomicExch(global + i, 0ull); });
      });
}

template <class T, class S, bool kCounts, class List, Accumulator... kSums>
cudaError_t LaunchKernel(const ExactLaunch& launch) {
  static_assert(kTicketBytes + kDigitsBytes + Others<T, List>::template kStatesBytes<kMaxBlocks> <= kExactScratchBytes);
  auto* const scratch = static_cast<unsigned char*>(launch.scratch);
  const Arguments args{.array = EdgedArrayOf<T>(launch.data, launch.count, launch.base_index),
                       .sums = launch.accumulators,
                       .others = launch.others,
                       .omit_nan = launch.omit_nan,
                       .ticket = reinterpret_cast<unsigned*>(scratch),
                       .digits = reinterpret_cast<ExactDigits*>(scratch + kTicketBytes),
                       .states = scratch + kTicketBytes + kDigitsBytes,
                       .out = launch.out,
                       .partial = launch.partial,
                       .times = launch.times};
  // As few as have a tile for each thread, no more than run at once, and all with as many tiles as far as can be.
  constexpr std::int64_t kTileVectors = std::int64_t{S::kThreads} * S::kVectors;
  const std::int64_t wanted = std::max<std::int64_t>(1, (args.array.vectors + kTileVectors - 1) / kTileVectors);
  const std::int64_t most = std::min(launch.multiprocessors * S::kBlocks, kMaxBlocks);
  const std::int64_t passes = (wanted + most - 1) / most;
  const auto blocks = static_cast<unsigned>((wanted + passes - 1) / passes);
  constexpr auto kKernel = ExactSumsKernel<T, S, kCounts, List, kSums...>;
  constexpr int kSharedBytes = TileLoads<T, S>::kSharedBytes;
  if constexpr (kSharedBytes > 0) {
    if (const cudaError_t error = AllowSharedMemory<kKernel>(kSharedBytes); error != cudaSuccess) return error;
  }
  kKernel<<<blocks, S::kThreads, kSharedBytes, launch.stream>>>(args);
  return cudaGetLastError();
}

// Sums and sums of squares, as variances take them, are one read of the array, with extrema and counts beside them;
// magnitudes are another. The first of them counts what isn't finite.
template <class T>
cudaError_t LaunchFor(const ExactLaunch& launch) {
  constexpr Accumulator kSum = Accumulator::kSum, kAbsSum = Accumulator::kAbsSum, kSquares = Accumulator::kSumSquares;
  using Alone = AccumulatorList<>;
  using Order = BesideSums<T>;
  using Shapes = SumShapes<T>;
  using SumShape = typename Shapes::Alone;
  using BesideOrder = typename Shapes::BesideOrder;
  using SquaresBesideOrder = typename Shapes::SquaresBesideOrder;
  const auto has = [&launch](Accumulator a) { return (launch.accumulators & SetOf(a)) != 0; };
  if (launch.accumulators == SetOf(kAbsSum) && launch.others == 0) {
    return LaunchKernel<T, SumShape, true, Alone, kAbsSum>(launch);
  }
  cudaError_t error = cudaSuccess;
  if (launch.others != 0) {
    error = has(kSquares) ? LaunchKernel<T, SquaresBesideOrder, true, Order, kSum, kSquares>(launch)
                          : LaunchKernel<T, BesideOrder, true, Order, kSum>(launch);
  } else if (has(kSum) && has(kSquares)) {
    error = LaunchKernel<T, SumShape, true, Alone, kSum, kSquares>(launch);
  } else if (has(kSum)) {
    error = LaunchKernel<T, SumShape, true, Alone, kSum>(launch);
  } else {
    error = LaunchKernel<T, SumShape, true, Alone, kSquares>(launch);
  }
  if (error != cudaSuccess || !has(kAbsSum)) return error;
  return LaunchKernel<T, SumShape, false, Alone, kAbsSum>(launch);
}

}  // namespace

cudaError_t LaunchExactSums(const ExactLaunch& launch) {
  return VisitDType(launch.dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (kIsFloat<T>) return LaunchFor<T>(launch);
    return cudaErrorInvalidValue;
  });
}

bool ExactSumsKeepTime(const ExactLaunch& launch) {
  const AccumulatorSet abs_sum = SetOf(Accumulator::kAbsSum);
  const bool one_kernel =
      (launch.accumulators & abs_sum) == 0 || (launch.accumulators == abs_sum && launch.others == 0);
  return one_kernel && launch.count * RowOf(launch.dtype).bytes <= kMaxTimedBytes;
}

}  // namespace reduced
