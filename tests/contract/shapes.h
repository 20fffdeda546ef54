// Shapes of arrays, and how they fall apart along axes.
#ifndef REDUCED_TESTS_CONTRACT_SHAPES_H_
#define REDUCED_TESTS_CONTRACT_SHAPES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/algebra/layout.h"

namespace reduced::test {

using Shape = std::vector<std::int64_t>;

inline std::int64_t CountOf(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

// `axes`: the dimensions that are reduced.
inline Layout LayoutAlong(const Shape& shape, const std::vector<int>& axes) {
  std::vector<bool> reduced(shape.size());
  for (const int axis : axes) reduced[static_cast<std::size_t>(axis)] = true;
  return LayoutOf(shape, reduced);
}

}  // namespace reduced::test

#endif  // REDUCED_TESTS_CONTRACT_SHAPES_H_
