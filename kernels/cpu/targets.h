// The functions that are built for each vector target.
#ifndef REDUCED_KERNELS_CPU_TARGETS_H_
#define REDUCED_KERNELS_CPU_TARGETS_H_

#include "kernels/algebra/vector_targets.h"
#include "kernels/cpu/tiles.h"

namespace reduced {

// Of the float dtypes, of the others: the two halves of TileFoldsOf(), apart because they take long to compile.
const TileFolds& FloatTileFolds(DType dtype);
const TileFolds& IntegerTileFolds(DType dtype);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_TARGETS_H_
