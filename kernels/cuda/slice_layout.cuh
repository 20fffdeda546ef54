// Where the elements of an output lie, on the device: Layout::Start and Layout::At.
#ifndef REDUCED_KERNELS_CUDA_SLICE_LAYOUT_CUH_
#define REDUCED_KERNELS_CUDA_SLICE_LAYOUT_CUH_

#include <cstdint>

#include "kernels/cuda/slices.h"

namespace reduced {

// The offset of item `index` of a row-major walk through the first `count` dimensions.
__device__ inline std::int64_t OffsetOf(const SliceDimensions& dimensions, std::int64_t index, int count) {
  std::int64_t offset = 0;
  for (int i = count - 1; i > 0; --i) {
    std::int64_t whole;
    if ((index | dimensions.size[i]) >> 32 == 0) {  // dividing 32 bits takes a quarter of the time
      whole = static_cast<unsigned>(index) / static_cast<unsigned>(dimensions.size[i]);
    } else {
      whole = index / dimensions.size[i];
    }
    offset += (index - whole * dimensions.size[i]) * dimensions.stride[i];
    index = whole;
  }
  return count > 0 ? offset + index * dimensions.stride[0] : offset;
}
__device__ inline std::int64_t OffsetOf(const SliceDimensions& dimensions, std::int64_t index) {
  return OffsetOf(dimensions, index, dimensions.count);
}

// The positions of one part of an output.
struct PartOfSlice {
  std::int64_t begin;
  std::int64_t end;

  __device__ PartOfSlice(std::int64_t elements, int part, int parts) {
    const std::int64_t size = (elements + parts - 1) / parts;
    begin = min(elements, part * size);
    end = min(elements, begin + size);
  }
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_SLICE_LAYOUT_CUH_
