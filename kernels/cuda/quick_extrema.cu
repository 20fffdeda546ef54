// Extrema along axes, where they are, and counts of elements.
#include "kernels/cuda/quick_slices.cuh"

namespace reduced {

cudaError_t LaunchQuickExtrema(const QuickLaunch& launch) {
  return VisitQuickFold<QuickKind::kExtrema>(
      launch.elements.dtype, cudaErrorNotSupported,
      [&]<class Fold>(std::type_identity<Fold>) { return LaunchFold<Fold>(launch); });
}

cudaError_t LaunchQuickCounts(const QuickLaunch& launch) {
  return VisitQuickFold<QuickKind::kCounts>(
      launch.elements.dtype, cudaErrorNotSupported,
      [&]<class Fold>(std::type_identity<Fold>) { return LaunchFold<Fold>(launch); });
}

}  // namespace reduced
