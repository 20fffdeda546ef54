// Extrema along axes, where they are, and counts of elements.
#include "kernels/cuda/quick_extrema.h"
#include "kernels/cuda/quick_slices.cuh"

namespace reduced {

cudaError_t LaunchQuickExtrema(const QuickLaunch& launch) {
  return VisitDType(launch.elements.dtype,
                    [&]<class T>(std::type_identity<T>) { return LaunchFold<QuickExtremum<sizeof(T)>>(launch); });
}

cudaError_t LaunchQuickCounts(const QuickLaunch& launch) {
  return VisitDType(launch.elements.dtype,
                    [&]<class T>(std::type_identity<T>) { return LaunchFold<QuickCount<sizeof(T)>>(launch); });
}

}  // namespace reduced
