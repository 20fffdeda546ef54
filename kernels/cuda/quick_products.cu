// Products along axes.
#include "kernels/cuda/quick_slices.cuh"

namespace reduced {

cudaError_t LaunchQuickProducts(const QuickLaunch& launch) {
  return VisitQuickFold<QuickKind::kProducts>(
      launch.elements.dtype, cudaErrorNotSupported,
      [&]<class Fold>(std::type_identity<Fold>) { return LaunchFold<Fold>(launch); });
}

}  // namespace reduced
