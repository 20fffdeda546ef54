#include "kernels/algebra/partial.h"

#include "kernels/algebra/accumulator.h"

namespace reduced {

void Combine(const Partial& later, Partial* into) {
  into->count += later.count;
  into->float_sum += later.float_sum;
  into->float_abs_sum += later.float_abs_sum;
  into->float_sum_squares += later.float_sum_squares;
  into->int_sum += later.int_sum;
  into->int_abs_sum += later.int_abs_sum;
  Increase(into->int_sum_squares, later.int_sum_squares);
  MergeMoments(into->moments, later.moments);
  Multiply(into->float_product, later.float_product);
  Multiply(into->int_product, later.int_product);
  MergeExtrema(into->extrema, later.extrema);
  into->bits_and &= later.bits_and;
  into->bits_or |= later.bits_or;
  into->bits_xor ^= later.bits_xor;
  into->nonzero += later.nonzero;
  into->nan += later.nan;
}

}  // namespace reduced
