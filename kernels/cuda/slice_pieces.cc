#include "kernels/cuda/slice_pieces.h"

#include <algorithm>
#include <vector>

namespace reduced {

SliceCut CutOf(const Layout& layout) {
  const Dimension& kept = layout.kept.front();
  SliceCut cut{.items = kept.size, .outputs = layout.outputs / kept.size, .elements = kept.stride};
  // Joined dimensions take turns, so that at most one lies before it.
  if (!layout.reduced.empty() && layout.reduced.front().stride > kept.stride) {
    cut.stretches = layout.reduced.front().size;
    cut.stride = layout.reduced.front().stride;
  }
  return cut;
}

Layout PieceOf(const Layout& layout, std::int64_t count) {
  struct Part {
    Dimension dimension;
    bool reduced;
  };
  std::vector<Part> parts;
  for (const Dimension& dimension : layout.kept) parts.push_back({dimension, false});
  parts.front().dimension.size = count;
  for (const Dimension& dimension : layout.reduced) parts.push_back({dimension, true});
  std::sort(parts.begin(), parts.end(),
            [](const Part& a, const Part& b) { return a.dimension.stride > b.dimension.stride; });
  std::vector<std::int64_t> shape;
  std::vector<bool> axes;
  for (const Part& part : parts) {
    shape.push_back(part.dimension.size);
    axes.push_back(part.reduced);
  }
  return LayoutOf(shape, axes);
}

}  // namespace reduced
