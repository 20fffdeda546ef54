// The value of every accumulator over a stretch of an array, wide enough for any dtype. A plain struct of fixed layout,
// which kernels write and hosts read; together with exact sums it is a State (state.h).
#ifndef REDUCED_KERNELS_ALGEBRA_PARTIAL_H_
#define REDUCED_KERNELS_ALGEBRA_PARTIAL_H_

#include <cstdint>
#include <limits>

#include "kernels/algebra/portable.h"

namespace reduced {

// No index: the stretch has no such element.
inline constexpr std::int64_t kNoIndex = std::numeric_limits<std::int64_t>::max();

// The product of floats as mantissa x 2^exponent, so that the order of the factors can't overflow or underflow it. The
// mantissa's magnitude is in [1, 2), or it is 0, infinite or NaN.
struct FloatProduct {
  double mantissa = 1;
  std::int64_t exponent = 0;
};

// The product of integers: its low 64 bits, and enough to know its true value if that fits in 64 bits. Zeros are kept
// apart from the magnitude (the product of the |x| that are not 0), which can then only grow, so that whether it
// overflowed does not depend on the order.
struct IntProduct {
  std::uint64_t wrapped = 1;    // the product modulo 2^64
  std::uint64_t magnitude = 1;  // meaningless once `overflowed`
  bool negative = false;        // an odd number of negative factors
  bool zero = false;
  bool overflowed = false;      // the magnitude reached 2^64
  std::uint8_t unused[5] = {};  // no byte of it is ever unset
};

// An unsigned integer of 192 bits, least significant word first.
struct UInt192 {
  std::uint64_t word[3] = {0, 0, 0};
};

// Count, mean and spread of floats. The mean is pivot + offset, the pivot being an element: differences of pivots are
// exact or nearly so, which keeps the spread right when it is tiny beside the mean.
struct MomentsState {
  std::int64_t count = 0;
  double pivot = 0;
  double offset = 0;  // mean - pivot
  double m2 = 0;      // sum of (x - mean)^2
};

// The smallest and largest element as order keys (accumulator.h), and where each stands first.
struct ExtremaState {
  std::int64_t min_key = std::numeric_limits<std::int64_t>::max();
  std::int64_t max_key = std::numeric_limits<std::int64_t>::min();
  std::int64_t min_index = kNoIndex;
  std::int64_t max_index = kNoIndex;
  std::int64_t nan_index = kNoIndex;  // the first NaN; it is in neither key
};

struct Partial {
  std::int64_t count = 0;  // elements in the stretch, NaNs included
  // kSum, kAbsSum, kSumSquares: floats in f64, integers exactly
  double float_sum = 0;
  double float_abs_sum = 0;
  double float_sum_squares = 0;
  Int128 int_sum = 0;
  UInt128 int_abs_sum = 0;
  UInt192 int_sum_squares;
  // kMoments
  MomentsState moments;
  // kProduct
  FloatProduct float_product;
  IntProduct int_product;
  // kExtrema; indexes count from the start of the whole array
  ExtremaState extrema;
  // kBits, in the low bits of each word
  std::uint64_t bits_and = ~std::uint64_t{0};
  std::uint64_t bits_or = 0;
  std::uint64_t bits_xor = 0;
  // kCounts
  std::int64_t nonzero = 0;  // NaN is non-zero
  std::int64_t nan = 0;
};

// Folds `later`, which covers the elements that follow, into `into`. Associative up to rounding; exact for everything
// that is not a float sum, moment or product. Float sums are added plainly in f64.
void Combine(const Partial& later, Partial* into);

}  // namespace reduced

#endif  // REDUCED_KERNELS_ALGEBRA_PARTIAL_H_
