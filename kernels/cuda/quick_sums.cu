// Exact sums and means along axes. Compiled without contraction of operations, as two_doubles.h wants it.
#include "kernels/cuda/quick_slices.cuh"

namespace reduced {

cudaError_t LaunchQuickSums(const QuickLaunch& launch) {
  return VisitQuickFold<QuickKind::kSums>(
      launch.elements.dtype, cudaErrorNotSupported,
      [&]<class Fold>(std::type_identity<Fold>) { return LaunchFold<Fold>(launch); });
}

}  // namespace reduced
