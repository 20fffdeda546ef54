// Extrema and counts of many arrays, and sums and sums of squares of integers, in one launch: of each piece what a
// launch of one block would leave (single_pass.cuh).
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/many_arrays.h"
#include "kernels/cuda/single_pass.cuh"

namespace reduced {
namespace {

template <class T, class S, class... As>
__global__ void __launch_bounds__(S::kThreads, std::min(S::kMinBlocks, kThreadsPerMultiprocessor / S::kThreads))
    ManyFoldsKernel(const __grid_constant__ ManyLaunch launch) {
  __shared__ alignas(16) unsigned char shared[S::kThreads / kWarpSize * std::max({sizeof(typename As::State)...})];
  for (unsigned at = launch.table.first[blockIdx.x]; at < launch.table.first[blockIdx.x + 1]; ++at) {
    const ManyPiece piece = launch.table.pieces[at];
    const EdgedArray array = EdgedArrayOf<T>(piece.data, piece.count, piece.base_index);
    const Walk<T> walk = WalkOf<T, S::kThreads>(array, /*block=*/0, /*blocks=*/1, launch.omit_nan);
    Folds<T, As...> folds;
    FoldVectors<T, /*kAll=*/false, S>(walk, launch.others, folds);
    Partial* const partial = launch.partials + at;
    if (threadIdx.x == 0) {
      *partial = Partial{};
      partial->count = piece.count;
    }
    ForEach<false>(launch.others, folds, [&]<class A>(std::type_identity<A>, auto& fold) {
      __syncthreads();  // `shared` may be in use
      const typename A::State state = BlockReduce<A, S::kThreads>(StateOf<A, T>(fold, walk, array), shared);
      if (threadIdx.x == 0) A::Store(state, partial);
    });
  }
}

template <class T, class S, class... As>
cudaError_t LaunchKernel(const ManyLaunch& launch) {
  ManyFoldsKernel<T, S, As...><<<static_cast<unsigned>(launch.table.blocks), S::kThreads, 0, launch.stream>>>(launch);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchManyFolds(const ManyLaunch& launch) {
  return VisitDType(launch.dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (kIsFloat<T>) {
      return LaunchKernel<T, ExtremaAlone, ExtremaOf<T>, CountsOf<T>>(launch);
    } else {
      return LaunchKernel<T, Statistics<T>, SumOf<T>, SumSquaresOf<T>, ExtremaOf<T>, CountsOf<T>>(launch);
    }
  });
}

}  // namespace reduced
