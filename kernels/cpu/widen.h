// Floats of 8 bits as floats of 16 bits with the same values (WideOf), which the vectors of the CPU engine take.
#ifndef REDUCED_KERNELS_CPU_WIDEN_H_
#define REDUCED_KERNELS_CPU_WIDEN_H_

#include <cstddef>
#include <cstdint>

#include "kernels/algebra/dtype.h"

namespace reduced {

// Widens `count` elements at any address; NaNs stay NaNs.
using WidenElements = void (*)(const std::byte* elements, std::int64_t count, std::byte* to);

// The best of those that were built and this machine can run; null: elements of the dtype are taken as they are.
WidenElements WidenElementsOf(DType dtype);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_WIDEN_H_
