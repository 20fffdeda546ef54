// In which order columns read the rows of an array. A column alone would read memory in strides; processors fetch ahead
// what is read in order, and best within a page.
#ifndef REDUCED_KERNELS_CPU_ROW_ORDER_H_
#define REDUCED_KERNELS_CPU_ROW_ORDER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/cache_control.h"
#include "kernels/algebra/layout.h"

namespace reduced {

// How many rows some columns side by side have before the next ones have their turn.
struct RowOrder {
  std::int64_t size = 1;     // rows that follow each other,
  std::int64_t stride = 0;   // so many bytes apart
  std::int64_t at_once = 1;  // of which columns read so many,
  bool fetches = false;      // after all of them have been fetched in the order of memory

  // The order along the innermost dimension that is reduced, of `count` columns of elements of `width` bytes. `least`:
  // the fewest rows that are worth being read at once; 1: columns that read one row at a time lose nothing by that.
  static RowOrder Of(const Layout& layout, std::int64_t count, std::int64_t width, std::int64_t least) {
    constexpr std::int64_t kPage = 4096;
    constexpr std::int64_t kMost = 16;
    RowOrder order;
    if (layout.reduced.empty()) return order;
    order.size = layout.reduced.back().size;
    order.stride = layout.reduced.back().stride * width;
    const bool dense = order.stride == count * width;  // there is nothing between the rows
    order.fetches = dense && least > 1 && order.stride * least <= kPage;
    order.at_once = order.fetches ? std::min(kMost, kPage / order.stride) : dense && least == 1 ? 1 : kMost;
    return order;
  }

  // Fetches `count` rows, if that is to be done.
  void Fetch(const std::byte* first, std::int64_t count) const {
    constexpr std::int64_t kCacheLine = 64;
    if (!fetches) return;
    for (std::int64_t at = 0; at < count * stride; at += kCacheLine) hwy::Prefetch(first + at);
  }
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_ROW_ORDER_H_
