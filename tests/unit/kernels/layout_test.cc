// How arrays fall apart into outputs: against walking through all indexes.
#include "kernels/algebra/layout.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace reduced {
namespace {

using Dimensions = std::vector<std::int64_t>;

// The indexes of the elements of each output, in row-major order, by definition.
std::vector<std::vector<std::int64_t>> Walk(const Dimensions& shape, const std::vector<bool>& axes) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  std::map<Dimensions, std::vector<std::int64_t>> outputs;
  for (std::int64_t index = 0; index < count; ++index) {
    Dimensions kept;
    std::int64_t rest = index;
    for (std::size_t i = shape.size(); i-- > 0; rest /= shape[i]) {
      if (!axes[i]) kept.insert(kept.begin(), rest % shape[i]);
    }
    outputs[kept].push_back(index);
  }
  std::vector<std::vector<std::int64_t>> walked;
  for (auto& [position, elements] : outputs) walked.push_back(std::move(elements));
  return walked;
}

TEST(LayoutTest, HasTheElementsOfEachOutputInOrder) {
  for (const Dimensions& shape :
       {Dimensions{}, {1}, {5}, {2, 3}, {1, 4}, {2, 1, 3}, {2, 3, 4}, {3, 2, 1, 2, 3}, {2, 2, 2, 2, 2}}) {
    for (unsigned set = 0; set < 1U << shape.size(); ++set) {
      std::vector<bool> axes;
      for (std::size_t i = 0; i < shape.size(); ++i) axes.push_back((set >> i & 1) != 0);
      const Layout layout = LayoutOf(shape, axes);
      const auto walked = Walk(shape, axes);
      ASSERT_EQ(layout.outputs, static_cast<std::int64_t>(walked.size()));
      for (std::int64_t output = 0; output < layout.outputs; ++output) {
        const auto& elements = walked[static_cast<std::size_t>(output)];
        ASSERT_EQ(layout.elements, static_cast<std::int64_t>(elements.size()));
        for (std::int64_t i = 0; i < layout.elements; ++i) {
          ASSERT_EQ(layout.Start(output) + layout.At(i), elements[static_cast<std::size_t>(i)]) << set;
        }
      }
    }
  }
}

TEST(LayoutTest, JoinsNeighbours) {
  const Layout rows = LayoutOf(Dimensions{2, 3, 4, 5}, {false, false, true, true});
  EXPECT_EQ(rows.kept, (std::vector<Dimension>{{6, 20}}));
  EXPECT_EQ(rows.reduced, (std::vector<Dimension>{{20, 1}}));
  EXPECT_EQ(rows.adjacent(), 1);
  EXPECT_EQ(rows.run(), 20);
  const Layout columns = LayoutOf(Dimensions{2, 3, 1, 5}, {true, true, true, false});
  EXPECT_EQ(columns.kept, (std::vector<Dimension>{{5, 1}}));
  EXPECT_EQ(columns.reduced, (std::vector<Dimension>{{6, 5}}));
  EXPECT_EQ(columns.adjacent(), 5);
  EXPECT_EQ(columns.run(), 1);
  // Ones in 64 dimensions are none.
  Dimensions many(64, 1);
  many[7] = many[40] = 3;
  std::vector<bool> axes(64);
  axes[40] = true;
  const Layout both = LayoutOf(many, axes);
  EXPECT_EQ(both.kept, (std::vector<Dimension>{{3, 3}}));
  EXPECT_EQ(both.reduced, (std::vector<Dimension>{{3, 1}}));
}

TEST(LayoutTest, WithoutElements) {
  const Layout filled = LayoutOf(Dimensions{0, 3}, {true, false});
  EXPECT_EQ(filled.outputs, 3);
  EXPECT_EQ(filled.elements, 0);
  const Layout none = LayoutOf(Dimensions{0, 3}, {false, true});
  EXPECT_EQ(none.outputs, 0);
  // Beyond every limit, where the product is beyond 64 bits.
  const std::int64_t large = std::int64_t{1} << 40;
  EXPECT_EQ(LayoutOf(Dimensions{large, large, 0}, {false, false, true}).outputs, std::int64_t{1} << 62);
  EXPECT_EQ(LayoutOf(Dimensions{large, large, 0}, {false, false, false}).outputs, 0);
}

TEST(LayoutTest, NamesOutputs) {
  const Layout layout = LayoutOf(Dimensions{2, 1, 3, 4}, {false, false, true, false});
  EXPECT_EQ(OutputName(layout, 0), "[0, 0, 0]");
  EXPECT_EQ(OutputName(layout, 6), "[1, 0, 2]");
  EXPECT_EQ(OutputName(LayoutOf(Dimensions{3}, {true}), 0), "[]");
  const absl::Status error = absl::OutOfRangeError("what");
  EXPECT_EQ(OutputError(layout, 6, error), absl::OutOfRangeError("output [1, 0, 2]: what"));
  EXPECT_EQ(OutputError(LayoutOf(Dimensions{3}, {true}), 0, error), error);
}

}  // namespace
}  // namespace reduced
