#include "kernels/algebra/layout.h"

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace reduced {
namespace {

// The offset of item `index` of a row-major walk through the dimensions.
std::int64_t OffsetOf(const std::vector<Dimension>& dimensions, std::int64_t index) {
  std::int64_t offset = 0;
  for (std::size_t i = dimensions.size(); i-- > 0;) {
    offset += index % dimensions[i].size * dimensions[i].stride;
    index /= dimensions[i].size;
  }
  return offset;
}

}  // namespace

std::int64_t Layout::Start(std::int64_t output) const { return OffsetOf(kept, output); }
std::int64_t Layout::At(std::int64_t position) const { return OffsetOf(reduced, position); }

absl::StatusOr<std::vector<bool>> ReducedDimensions(std::span<const std::int32_t> axes, std::size_t dimensions) {
  std::vector<bool> reduced(dimensions);
  const auto count = static_cast<std::int64_t>(dimensions);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t axis = axes[i];
    if (axis < -count || axis >= count) {
      return absl::InvalidArgumentError(absl::StrCat(
          "axes.axis[", i, "]: got ", axis,
          "; allowed: ", count == 0 ? "none, since the array is a scalar" : absl::StrCat(-count, " to ", count - 1)));
    }
    const auto dimension = static_cast<std::size_t>(axis < 0 ? axis + count : axis);
    if (reduced[dimension]) {
      return absl::InvalidArgumentError(
          absl::StrCat("axes.axis[", i, "]: got ", axis, ", dimension ", dimension, " again; allowed: each once"));
    }
    reduced[dimension] = true;
  }
  return reduced;
}

std::vector<std::int64_t> ResultShape(std::span<const std::int64_t> shape, const std::vector<bool>& axes,
                                      bool keepdims) {
  std::vector<std::int64_t> kept;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (!axes[i]) {
      kept.push_back(shape[i]);
    } else if (keepdims) {
      kept.push_back(1);
    }
  }
  return kept;
}

Layout LayoutOf(std::span<const std::int64_t> shape, const std::vector<bool>& axes) {
  Layout layout;
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  layout.shape = ResultShape(shape, axes, /*keepdims=*/false);
  if (empty) {  // where elements would lie has no meaning, and the product of the other dimensions may have none
    const bool none = std::find(layout.shape.begin(), layout.shape.end(), 0) != layout.shape.end();
    layout.outputs = none ? 0 : 1;
    for (const std::int64_t size : layout.shape) {
      if (!none && __builtin_mul_overflow(layout.outputs, size, &layout.outputs)) {
        layout.outputs = std::int64_t{1} << 62;  // more than any limit
        break;
      }
    }
    layout.elements = 0;
    return layout;
  }
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 1) continue;
    std::vector<Dimension>& into = axes[i] ? layout.reduced : layout.kept;
    (axes[i] ? layout.elements : layout.outputs) *= shape[i];
    // The last one of its kind ends where this one's items begin: they are one dimension.
    if (!into.empty() && into.back().stride * into.back().size == stride) {
      into.back().size *= shape[i];
    } else {
      into.push_back({shape[i], stride});
    }
    stride *= shape[i];
  }
  std::reverse(layout.kept.begin(), layout.kept.end());
  std::reverse(layout.reduced.begin(), layout.reduced.end());
  return layout;
}

std::string ShapeText(std::span<const std::int64_t> shape) {
  constexpr std::size_t kShown = 8;
  return absl::StrCat("[", absl::StrJoin(shape.subspan(0, std::min(shape.size(), kShown)), ", "),
                      shape.size() > kShown ? absl::StrCat(", ... ", shape.size(), " dimensions") : "", "]");
}

std::string OutputName(const Layout& layout, std::int64_t output) {
  std::vector<std::int64_t> position(layout.shape.size());
  for (std::size_t i = layout.shape.size(); i-- > 0;) {
    position[i] = output % layout.shape[i];
    output /= layout.shape[i];
  }
  return absl::StrCat("[", absl::StrJoin(position, ", "), "]");
}

absl::Status OutputError(const Layout& layout, std::int64_t output, const absl::Status& error) {
  if (layout.shape.empty()) return error;
  return absl::Status(error.code(), absl::StrCat("output ", OutputName(layout, output), ": ", error.message()));
}

}  // namespace reduced
