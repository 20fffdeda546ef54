// Sums and extrema of rows, columns and segments that are answered side by side, of every vector target that this
// machine can run: as the best target answers, which the contract suite compares with reductions of each, and without
// reading beyond the array.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "kernels/algebra/layout.h"
#include "kernels/cpu/quick_answers.h"
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
Bytes AnswersOf(DType dtype, const Shape& shape, const std::vector<OpCall>& ops, const void* array) {
  const Layout layout = LayoutOf(shape.sizes, shape.axes);
  Bytes bytes(static_cast<std::size_t>(layout.outputs) * 8 * ops.size(), std::byte{0xa5});
  Job job{.spec = {.dtype = dtype, .count = layout.outputs * layout.elements, .ops = ops},
          .partition = Partition{.layout = layout}};
  job.spec.precision = Precision::kExact;
  job.place = [&](std::int64_t outputs, std::int64_t, const std::byte*) {
    std::vector<std::byte*> answers;
    for (std::size_t i = 0; i < ops.size(); ++i) answers.push_back(bytes.data() + i * 8 * outputs);
    return answers;
  };
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
      for (const std::vector<OpCall>& ops :
           {std::vector<OpCall>{Op::kSum, Op::kMean}, {Op::kArgmin, Op::kMax, Op::kArgmax, Op::kMin}}) {
        const Bytes expected = AnswersOf(dtype, shape, ops, array.data());
        for (const std::int64_t target : VectorTargets()) {
          const OnlyTarget only(target);
          EXPECT_TRUE(AnswersOf(dtype, shape, ops, guarded.data()) == expected)
              << hwy::TargetName(target) << ": " << ShapeText(shape.sizes) << (shape.axes[0] ? " columns" : " rows");
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

// Of segments that end where the array does.
Bytes AnswerSegments(DType dtype, const std::vector<std::int64_t>& bounds, const std::vector<OpCall>& ops,
                     const std::byte* array) {
  const std::int64_t count = std::ssize(bounds) - 1;
  const ReduceSpec spec{.dtype = dtype, .count = bounds.back(), .ops = ops, .precision = Precision::kExact};
  const std::optional<QuickAnswers> quick = QuickAnswers::For(spec);
  if (!quick.has_value()) return {};
  const auto found = std::make_unique<QuickFound>();
  quick->FindSegments(array, bounds.data(), count, found.get());
  std::vector<std::int64_t> elements;
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) elements.push_back(bounds[i + 1] - bounds[i]);
  Bytes bytes(static_cast<std::size_t>(count) * 8 * ops.size(), std::byte{0xa5});
  std::vector<std::byte*> answers;
  for (std::size_t i = 0; i < ops.size(); ++i) answers.push_back(bytes.data() + i * 8 * elements.size());
  bool known[kQuickOutputs];
  std::fill_n(known, count, true);
  quick->Store(*found, elements.data(), count, answers, 0, known);
  EXPECT_GE(std::count(known, known + count, true), count - 3);
  for (std::size_t i = 0; i < elements.size(); ++i) {
    for (std::byte* const answer : answers) {
      if (!known[i]) std::fill_n(answer + 8 * i, 8, std::byte{0});  // it is undefined
    }
  }
  return bytes;
}

TEST(SideBySideTest, EveryTargetAnswersSegmentsAlike) {
  for (const std::int64_t last : {1, 2, 3, 5, 8, 15, 16, 17, 33, 70}) {
    std::vector<std::int64_t> bounds = {0};
    for (std::int64_t length = 1; length <= 70; ++length) bounds.push_back(bounds.back() + length);
    for (int i = 0; i < 3; ++i) bounds.push_back(bounds.back() + last);
    for (const DTypeRow& row : kDTypes) {
      const Bytes array = test::MakeData(DataKind::kUniform, row.dtype, bounds.back(), 6);
      const GuardedArray guarded(array, GuardedArray::Against::kPageAfter, 0);
      for (const std::vector<OpCall>& ops :
           {std::vector<OpCall>{Op::kMean}, {Op::kArgmin, Op::kMax, Op::kArgmax, Op::kMin}}) {
        const Bytes expected = AnswerSegments(row.dtype, bounds, ops, array.data());
        for (const std::int64_t target : VectorTargets()) {
          const OnlyTarget only(target);
          const Bytes got = AnswerSegments(row.dtype, bounds, ops, static_cast<const std::byte*>(guarded.data()));
          EXPECT_TRUE(got.empty() || got == expected) << row.name << ", " << hwy::TargetName(target) << ", " << last;
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
