// Variances and norms along axes. Compiled without contraction of operations, as two_doubles.h wants it.
#include "kernels/cuda/quick_moments.h"
#include "kernels/cuda/quick_slices.cuh"

namespace reduced {

cudaError_t LaunchQuickMoments(const QuickLaunch& launch) {
  return VisitDType(launch.elements.dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (kIsFloat<T>) {
      return LaunchFold<QuickFloatMoments<T>>(launch);
    } else if constexpr (sizeof(T) <= 4) {
      return LaunchFold<QuickIntegerMoments<sizeof(T)>>(launch);
    } else {
      return cudaErrorNotSupported;  // QuickKindOf gives these no kind
    }
  });
}

}  // namespace reduced
