// Sums and extrema of rows and columns that are answered side by side, of every vector target that this machine can
// run: as the best target answers, which the contract suite compares with reductions of each, and without reading
// beyond the array.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "kernels/algebra/layout.h"
#include "kernels/cpu/slices.h"
#include "kernels/cpu/tiles.h"
#include "tests/support/data.h"
#include "tests/unit/kernels/only_target.h"

namespace reduced {
namespace {

using test::Bytes;
using test::DataKind;
using test::GuardedArray;
using test::OnlyTarget;

struct Shape {
  std::vector<std::int64_t> sizes;
  std::vector<bool> axes;
};

// The answers of each op, one after the other.
Bytes Answer(DType dtype, const Shape& shape, const std::vector<Op>& ops, const void* array) {
  const Layout layout = LayoutOf(shape.sizes, shape.axes);
  Bytes bytes(static_cast<std::size_t>(layout.outputs) * 8 * ops.size(), std::byte{0xa5});
  SlicesJob job{.job = {.spec = {.dtype = dtype, .count = layout.outputs * layout.elements, .ops = ops}},
                .layout = layout};
  job.job.spec.precision = Precision::kExact;
  for (std::size_t i = 0; i < ops.size(); ++i) job.answers.push_back(bytes.data() + i * 8 * layout.outputs);
  EXPECT_TRUE(ReduceSlices(job, static_cast<const std::byte*>(array), nullptr).ok());
  return bytes;
}

void ExpectEveryTargetAnswersAlike(DType dtype) {
  std::vector<Shape> shapes;
  for (const std::int64_t elements : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 257, 300}) {
    shapes.push_back({{37, elements}, {false, true}});  // rows
    shapes.push_back({{elements, 37}, {true, false}});  // columns
    shapes.push_back({{elements, 3}, {true, false}});   // few of them
  }
  shapes.push_back({{700, 2}, {true, false}});
  shapes.push_back({{5, 40, 7}, {false, true, false}});
  for (const Shape& shape : shapes) {
    const std::int64_t count = LayoutOf(shape.sizes, std::vector<bool>(shape.sizes.size(), true)).elements;
    for (const DataKind kind : {DataKind::kUniform, DataKind::kSmall, DataKind::kFactors}) {
      const Bytes array = test::MakeData(kind, dtype, count, static_cast<std::uint64_t>(count));
      const GuardedArray guarded(array, GuardedArray::Against::kPageAfter, 0);
      for (const std::vector<Op>& ops :
           {std::vector<Op>{Op::kSum, Op::kMean}, {Op::kArgmin, Op::kMax, Op::kArgmax, Op::kMin}}) {
        const Bytes expected = Answer(dtype, shape, ops, array.data());
        for (const std::int64_t target : VectorTargets()) {
          const OnlyTarget only(target);
          EXPECT_TRUE(Answer(dtype, shape, ops, guarded.data()) == expected)
              << hwy::TargetName(target) << ": " << ShapeText(shape.sizes) << (shape.axes[0] ? " columns" : " rows");
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(SideBySideTest, EveryTargetAnswersAlike) {
  for (const DTypeRow& row : kDTypes) {
    SCOPED_TRACE(row.name);
    ExpectEveryTargetAnswersAlike(row.dtype);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace reduced
