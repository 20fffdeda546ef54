// Reductions along axes that are answered on the device, of f32: quick_slices.cuh.
#include "kernels/cuda/quick_slices.cuh"

namespace reduced {

const QuickSlicesOf kQuickF32 = MakeQuickSlices<float>();

}  // namespace reduced
