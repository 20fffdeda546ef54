// Reductions of groups on a CUDA device, of any accumulators: a block folds one part of one output, element by element,
// to a state that the host finalizes.
#include <type_traits>

#include "kernels/algebra/accumulator.h"
#include "kernels/cuda/fold_states.cuh"
#include "kernels/cuda/group_elements.cuh"
#include "kernels/cuda/groups.h"

namespace reduced {
namespace {

template <class T>
__global__ void __launch_bounds__(kStateThreads) GroupStatesKernel(GroupStatesLaunch launch) {
  const GroupPart part = launch.parts[blockIdx.x];
  const GroupWalk<T> walk(launch.array, part.start, part.column);
  const auto element = [&](std::int64_t i, T* x, std::int64_t* index) { return walk.Load(i, x, index); };
  FoldStates<T>({launch.accumulators, launch.exact_accumulators, launch.omit_nan}, part.begin, part.end, element,
                launch.partials + blockIdx.x, launch.digits == nullptr ? nullptr : launch.digits + blockIdx.x,
                AllAccumulators<T>());
}

template <class T>
cudaError_t Launch(const GroupStatesLaunch& launch) {
  GroupStatesKernel<T><<<static_cast<unsigned>(launch.count), kStateThreads, 0, launch.stream>>>(launch);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchGroupStates(const GroupStatesLaunch& launch) {
  return VisitDType(launch.dtype, [&]<class T>(std::type_identity<T>) { return Launch<T>(launch); });
}

}  // namespace reduced
