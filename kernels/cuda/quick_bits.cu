// Bits along axes, joined by and, or, xor.
#include "kernels/cuda/quick_slices.cuh"

namespace reduced {

cudaError_t LaunchQuickBits(const QuickLaunch& launch) {
  return VisitQuickFold<QuickKind::kBits>(
      launch.elements.dtype, cudaErrorNotSupported,
      [&]<class Fold>(std::type_identity<Fold>) { return LaunchFold<Fold>(launch); });
}

}  // namespace reduced
