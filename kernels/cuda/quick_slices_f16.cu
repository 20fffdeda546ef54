// Reductions along axes that are answered on the device, of f16 and bf16: quick_slices.cuh.
#include "kernels/cuda/quick_slices.cuh"

namespace reduced {

const QuickSlicesOf kQuickF16 = MakeQuickSlices<Half>();
const QuickSlicesOf kQuickBF16 = MakeQuickSlices<BFloat16>();

}  // namespace reduced
