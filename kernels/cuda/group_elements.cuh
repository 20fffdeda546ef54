// Where the elements of a group are, on the device, and which of them a mask leaves.
#ifndef REDUCED_KERNELS_CUDA_GROUP_ELEMENTS_CUH_
#define REDUCED_KERNELS_CUDA_GROUP_ELEMENTS_CUH_

#include <cstdint>

#include "kernels/cuda/groups.h"
#include "kernels/cuda/slice_layout.cuh"

namespace reduced {

__device__ inline bool Keeps(const GroupArray& array, std::int64_t index) {
  if (array.mask == nullptr) return true;
  if (!array.mask_bits) return array.mask[index] != 0;
  const std::int64_t bit = array.first_bit + index;
  return (array.mask[bit >> 3] >> (bit & 7) & 1) != 0;
}

// Whether a row, of an array with keys, is there at all.
__device__ inline bool KeepsAny(const GroupArray& array, std::int64_t row) {
  bool there = array.mask == nullptr;
  const std::int64_t begin = row * array.columns;
  for (std::int64_t i = begin; !there && i < begin + array.columns; ++i) there = Keeps(array, i);
  return there;
}

// An output as one part.
__device__ inline GroupPart WholeOutput(const GroupOutputs& outputs, const GroupArray& array, std::int64_t output) {
  GroupPart part;
  if (outputs.bounds == nullptr) {
    part.start = OffsetOf(outputs.kept, output);
    part.end = outputs.elements;
    return part;
  }
  const std::int64_t group = outputs.columns == 1 ? output : output / outputs.columns;
  const std::int64_t begin = outputs.bounds[group];
  part.column = output - group * outputs.columns;
  part.start = array.rows != nullptr ? begin : begin * outputs.columns + part.column;
  part.end = outputs.bounds[group + 1] - begin;
  return part;
}

// The positions of one output.
template <class T>
class GroupWalk {
 public:
  // `start`, `column`: as those of GroupPart.
  __device__ GroupWalk(const GroupArray& array, std::int64_t start, std::int64_t column)
      : array_(array), start_(start), column_(column) {}

  // Loads the element at a position, and what answers call its index. False if the mask leaves it out.
  __device__ bool Load(std::int64_t position, T* x, std::int64_t* index) const {
    std::int64_t at;
    if (array_.rows != nullptr) {
      const std::int64_t row = array_.rows[start_ + position];
      *index = row;
      at = row * array_.columns + column_;
    } else {
      *index = position;
      at = start_ + OffsetOf(array_.reduced, position);
    }
    if (!Keeps(array_, at)) return false;
    *x = static_cast<const T*>(array_.data)[at];
    return true;
  }

 private:
  const GroupArray& array_;
  const std::int64_t start_;
  const std::int64_t column_;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_GROUP_ELEMENTS_CUH_
