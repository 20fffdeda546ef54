// Bits of many outputs of integers, joined by and, or, xor: side by side, by loops that the compiler makes vectors of.
#ifndef REDUCED_KERNELS_CPU_QUICK_BITS_H_
#define REDUCED_KERNELS_CPU_QUICK_BITS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/layout.h"
#include "kernels/algebra/op.h"
#include "kernels/cpu/quick_sums.h"

namespace reduced {

// Of some outputs, in the low bits.
struct QuickBits {
  std::uint64_t words[kQuickOutputs];
};

// Columns, rows, segments: as in quick_sums.h. Clear and merge: as in columns.h. Store: writes the first `count`.
struct QuickBitsOf {
  void (*columns)(const Layout& layout, const std::byte* start, std::int64_t count, QuickBits* into) = nullptr;
  void (*rows)(const std::byte* start, std::int64_t elements, std::int64_t count, QuickBits* into) = nullptr;
  void (*segments)(const std::byte* start, const std::int64_t* bounds, std::int64_t count, QuickBits* into) = nullptr;
  void (*clear)(std::int64_t count, QuickBits* into) = nullptr;
  void (*merge)(const QuickBits& from, std::int64_t at, std::int64_t count, QuickBits* into) = nullptr;
  void (*store)(const QuickBits& bits, std::int64_t count, std::byte* out) = nullptr;
};

// Of an op of the accumulator kBits; null: the dtype has none.
QuickBitsOf QuickBitsFor(DType dtype, Op op);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_QUICK_BITS_H_
