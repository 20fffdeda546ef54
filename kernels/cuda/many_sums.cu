// Exact sums of many arrays, with extrema and counts beside them: of each piece what a launch of one block would leave
// (exact_sums.cuh). The kernel of all four serves every set but sums of squares alone, and sums beside order.
#include <type_traits>

#include "kernels/cuda/exact_sums.cuh"
#include "kernels/cuda/many_arrays.h"

namespace reduced {
namespace {

template <class T, class S, class List, Accumulator... kSums>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks) ManySumsKernel(const __grid_constant__ ManyLaunch launch) {
  for (unsigned at = launch.table.first[blockIdx.x]; at < launch.table.first[blockIdx.x + 1]; ++at) {
    const ManyPiece piece = launch.table.pieces[at];
    AddArray<T, S, /*kCounts=*/true, List, kSums...>(
        EdgedArrayOf<T>(piece.data, piece.count, piece.base_index), launch.others, launch.omit_nan, /*block=*/0,
        /*blocks=*/1, [&](const unsigned long long* words, auto& folds, auto state_of, unsigned char*) {
          Partial* const partial = launch.partials + at;
          if (threadIdx.x == 0) {
            *partial = Partial{};
            partial->count = piece.count;
          }
          ForEach<false>(launch.others, folds, [&]<class A>(std::type_identity<A> which, auto& fold) {
            __syncthreads();  // the memory of the states may be in use
            const typename A::State state = state_of(which, fold);
            if (threadIdx.x == 0) A::Store(state, partial);
          });
          __syncthreads();
          auto* const out = reinterpret_cast<unsigned long long*>(launch.digits + at);
          for (int i = static_cast<int>(threadIdx.x); i < kExactDigitWords; i += S::kThreads) {
            out[i] = IsOf(launch.exact_accumulators, i) ? words[i] : 0;
          }
          __syncthreads();  // the words have been read
        });
  }
}

template <class T, class S, class List, Accumulator... kSums>
cudaError_t LaunchKernel(const ManyLaunch& launch) {
  constexpr auto kKernel = ManySumsKernel<T, S, List, kSums...>;
  constexpr int kSharedBytes = TileLoads<T, S>::kSharedBytes;
  if constexpr (kSharedBytes > 0) {
    if (const cudaError_t error = AllowSharedMemory<kKernel>(kSharedBytes); error != cudaSuccess) return error;
  }
  kKernel<<<static_cast<unsigned>(launch.table.blocks), S::kThreads, kSharedBytes, launch.stream>>>(launch);
  return cudaGetLastError();
}

template <class T>
cudaError_t LaunchFor(const ManyLaunch& launch) {
  constexpr Accumulator kSum = Accumulator::kSum, kSquares = Accumulator::kSumSquares;
  using Order = BesideSums<T>;
  using Shapes = SumShapes<T>;
  if (launch.others == 0 && launch.exact_accumulators == SetOf(kSquares)) {
    return LaunchKernel<T, typename Shapes::Alone, AccumulatorList<>, kSquares>(launch);
  }
  if (launch.exact_accumulators == SetOf(kSum)) {
    return LaunchKernel<T, typename Shapes::BesideOrder, Order, kSum>(launch);
  }
  return LaunchKernel<T, typename Shapes::SquaresBesideOrder, Order, kSum, kSquares>(launch);
}

}  // namespace

cudaError_t LaunchManySums(const ManyLaunch& launch) {
  return VisitDType(launch.dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (kIsFloat<T>) return LaunchFor<T>(launch);
    return cudaErrorInvalidValue;
  });
}

}  // namespace reduced
