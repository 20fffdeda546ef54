// Extrema of many outputs by themselves, and where they are: in the lanes of vectors, without a state for each.
//
// Elements compare by their keys (algebra/order_key.h). Columns: the extrema of a few rows, lane by lane, then of those
// so far. What a few rows improve is noted with the first of them, so that positions cost little; at the end they are
// looked up among the few. Rows: each by itself, its positions by a second look. A NaN's key lies beyond those of the
// infinities: an output that has one is to be reduced in the other way, unless NaNs are omitted.
#ifndef REDUCED_KERNELS_CPU_QUICK_EXTREMA_H_
#define REDUCED_KERNELS_CPU_QUICK_EXTREMA_H_

#include <cstddef>
#include <cstdint>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/layout.h"
#include "kernels/algebra/op.h"
#include "kernels/algebra/spec.h"

namespace reduced {

// Whose first positions are asked for.
struct Positions {
  bool lowest = false;
  bool highest = false;
};

// Of some outputs.
struct QuickExtrema {
  static constexpr std::int64_t kMost = 512;

  // Keys, of an element's size each.
  alignas(64) std::byte lowest[8 * kMost];
  alignas(64) std::byte highest[8 * kMost];
  std::int64_t lowest_at[kMost];  // the first position in the output, if positions were asked for
  std::int64_t highest_at[kMost];
  bool has_nan[kMost];  // where NaNs are omitted: there is nothing else
  bool any_nan = false;
};

// Finds those of `count` outputs, at most kMost, of at least one element. Columns: neighbours, the first of which
// starts at `start`. Rows: of `elements` neighbouring elements each, one row after the other. Segments: output i has
// elements bounds[i] to bounds[i + 1] - 1 from `start` on; one that has none is said to have a NaN. Clear and merge: as
// in columns.h. Store: writes the answers of `count` outputs, from output `first` on, to `op`, one of the accumulator
// kExtrema, as bytes of its result's dtype.
struct QuickExtremaOf {
  void (*columns)(const Layout& layout, const std::byte* start, std::int64_t count, Positions positions,
                  QuickExtrema* into) = nullptr;
  void (*rows)(const std::byte* start, std::int64_t elements, std::int64_t count, Positions positions,
               QuickExtrema* into) = nullptr;
  void (*segments)(const std::byte* start, const std::int64_t* bounds, std::int64_t count, Positions positions,
                   QuickExtrema* into) = nullptr;
  void (*clear)(std::int64_t count, QuickExtrema* into) = nullptr;
  void (*merge)(const QuickExtrema& from, std::int64_t at, std::int64_t count, std::int64_t offset, std::int64_t step,
                Positions positions, QuickExtrema* into) = nullptr;
  void (*store)(const QuickExtrema& extrema, Op op, std::int64_t first, std::int64_t count, std::byte* out) = nullptr;
};

// The best of those that were built and this machine can run; null where there is none.
QuickExtremaOf QuickExtremaFor(DType dtype, NanPolicy nans);

// Those that the op asks for, too.
inline Positions With(Op op, Positions positions) {
  return {positions.lowest || op == Op::kArgmin, positions.highest || op == Op::kArgmax};
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_QUICK_EXTREMA_H_
