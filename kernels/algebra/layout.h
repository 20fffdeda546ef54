// How an array falls apart into outputs: which of its dimensions are reduced, and where the elements of an output lie.
//
//   const Layout layout = LayoutOf({2, 3, 4}, {false, true, false});  // sum(axis=1)
//   layout.outputs;                  // 2 x 4, in the row-major order of the dimensions that are kept
//   layout.elements;                 // 3, of each output
//   layout.Start(5) + layout.At(2);  // the index in the array of element 2 of output 5
//
// The elements of an output are in row-major order of the reduced dimensions. Neighbouring dimensions that are both
// kept or both reduced are joined, so that an array of 64 dimensions has as few as its axes make it have.
#ifndef REDUCED_KERNELS_ALGEBRA_LAYOUT_H_
#define REDUCED_KERNELS_ALGEBRA_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace reduced {

// A joined dimension of a row-major array.
struct Dimension {
  std::int64_t size = 1;    // at least 2, except in an array without elements
  std::int64_t stride = 1;  // between neighbours along it, in elements of the array

  friend bool operator==(const Dimension&, const Dimension&) = default;
};

struct Layout {
  std::int64_t outputs = 1;           // the product of the kept dimensions
  std::int64_t elements = 1;          // of each output: the product of the reduced dimensions
  std::vector<Dimension> kept{};      // from the outermost; none: one output
  std::vector<Dimension> reduced{};   // from the outermost; none: outputs of one element
  std::vector<std::int64_t> shape{};  // of the kept dimensions as they were before they were joined

  // The index in the array of the first element of an output, which has elements.
  std::int64_t Start(std::int64_t output) const;
  // How far element `position` of any output lies behind the first one.
  std::int64_t At(std::int64_t position) const;

  // Neighbouring outputs have neighbouring elements: as many outputs as that holds for. 1: they have not.
  std::int64_t adjacent() const { return !kept.empty() && kept.back().stride == 1 ? kept.back().size : 1; }
  // Elements of an output that are neighbours: as many as that holds for.
  std::int64_t run() const { return !reduced.empty() && reduced.back().stride == 1 ? reduced.back().size : 1; }
};

// Which of so many dimensions are reduced. `axes`: from 0, or negative from the last one. INVALID_ARGUMENT: one of them
// is no dimension, or named twice.
absl::StatusOr<std::vector<bool>> ReducedDimensions(std::span<const std::int32_t> axes, std::size_t dimensions);

// `shape`: dimensions of at least 0, whose product fits in 64 bits unless one of them is 0. `axes`: whether each of
// them is reduced.
Layout LayoutOf(std::span<const std::int64_t> shape, const std::vector<bool>& axes);

// The dimensions of the results: those that are kept, and with `keepdims` 1 in place of those that are reduced.
std::vector<std::int64_t> ResultShape(std::span<const std::int64_t> shape, const std::vector<bool>& axes,
                                      bool keepdims);

// "[2, 3]": the shape, or its first dimensions and how many there are, if they are many.
std::string ShapeText(std::span<const std::int64_t> shape);

// "[1, 0, 7]": the position of an output among the kept dimensions; "[]" if there is one output.
std::string OutputName(const Layout& layout, std::int64_t output);
// The error of an output, which it names unless there is one output.
absl::Status OutputError(const Layout& layout, std::int64_t output, const absl::Status& error);

}  // namespace reduced

#endif  // REDUCED_KERNELS_ALGEBRA_LAYOUT_H_
