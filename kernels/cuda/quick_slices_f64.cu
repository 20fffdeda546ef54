// Reductions along axes that are answered on the device, of f64: quick_slices.cuh.
#include "kernels/cuda/quick_slices.cuh"

namespace reduced {

const QuickSlicesOf kQuickF64 = MakeQuickSlices<double>();

}  // namespace reduced
