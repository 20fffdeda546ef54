// Exact sums and means along axes. Compiled without contraction of operations, as two_doubles.h wants it.
#include "kernels/cuda/quick_slices.cuh"
#include "kernels/cuda/quick_sums.h"

namespace reduced {

cudaError_t LaunchQuickSums(const QuickLaunch& launch) {
  return VisitDType(launch.elements.dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (kIsFloat<T>) {
      return LaunchFold<QuickFloatSum<T>>(launch);
    } else {
      return LaunchFold<QuickIntegerSum<sizeof(T)>>(launch);
    }
  });
}

}  // namespace reduced
