// Reductions along axes on a CUDA device, of any accumulators and any layout: a block folds one part of one output,
// element by element, to a state that the host finalizes.
#include <type_traits>

#include "kernels/algebra/accumulator.h"
#include "kernels/cuda/fold_states.cuh"
#include "kernels/cuda/slice_layout.cuh"
#include "kernels/cuda/slices.h"

namespace reduced {
namespace {

template <class T>
__global__ void __launch_bounds__(kStateThreads) SliceStatesKernel(SliceStatesLaunch launch) {
  const SliceArray& array = launch.array;
  const std::int64_t output = launch.which != nullptr ? launch.which[blockIdx.x] : launch.first + blockIdx.x;
  const auto* const data = static_cast<const T*>(array.data) + OffsetOf(array.kept, output);
  const PartOfSlice part(array.elements, static_cast<int>(blockIdx.y), launch.parts);
  const std::int64_t at = std::int64_t{blockIdx.x} * launch.parts + blockIdx.y;
  const auto element = [&](std::int64_t i, T* x, std::int64_t* index) {
    *x = data[OffsetOf(array.reduced, i)];
    *index = i;
    return true;
  };
  FoldStates<T>({launch.accumulators, launch.exact_accumulators, launch.omit_nan}, part.begin, part.end, element,
                launch.partials + at, launch.digits == nullptr ? nullptr : launch.digits + at, AllAccumulators<T>());
}

template <class T>
cudaError_t Launch(const SliceStatesLaunch& launch) {
  const dim3 grid(static_cast<unsigned>(launch.count), static_cast<unsigned>(launch.parts));
  SliceStatesKernel<T><<<grid, kStateThreads, 0, launch.stream>>>(launch);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchSliceStates(const SliceStatesLaunch& launch) {
  return VisitDType(launch.dtype, [&]<class T>(std::type_identity<T>) { return Launch<T>(launch); });
}

}  // namespace reduced
