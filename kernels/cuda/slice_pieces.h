// Cuts an array that the device has no room for into pieces, which are reduced one after the other. Each piece consists
// of whole outputs: it is a range of indexes of the outermost dimension that is not reduced. If that dimension is the
// first one, such as the rows of a matrix whose rows are summed, a piece is contiguous. Else the dimensions before it
// are reduced, and a piece has a stretch of memory for each index of those, such as some columns of each row.
#ifndef REDUCED_KERNELS_CUDA_SLICE_PIECES_H_
#define REDUCED_KERNELS_CUDA_SLICE_PIECES_H_

#include <cstdint>

#include "kernels/algebra/layout.h"

namespace reduced {

// Of an array that is too large: as many chunks as make little of what a piece costs besides its bytes.
inline constexpr std::int64_t kPieceChunks = 8;

// Of a layout with elements, that keeps a dimension: its outermost one.
struct SliceCut {
  std::int64_t items = 0;     // its size
  std::int64_t outputs = 0;   // of each item
  std::int64_t elements = 0;  // of each item, in each stretch
  std::int64_t stretches = 1;
  std::int64_t stride = 0;  // between stretches, in elements
};
SliceCut CutOf(const Layout& layout);

// The layout of `count` items, dense; without the shape that it is named by.
Layout PieceOf(const Layout& layout, std::int64_t count);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_SLICE_PIECES_H_
