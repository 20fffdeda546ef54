// In which order columns read rows: by what lies between the rows, how long they are and what columns gain.
#include "kernels/cpu/row_order.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/algebra/layout.h"

namespace reduced {
namespace {

// Of `count` of the columns of an array of 100 rows.
RowOrder Of(std::int64_t columns, std::int64_t count, std::int64_t width, std::int64_t least) {
  return RowOrder::Of(LayoutOf(std::vector<std::int64_t>{100, columns}, {true, false}), count, width, least);
}

TEST(RowOrderTest, RowsWithoutGapsAreReadAsTheyLie) {
  const RowOrder one_by_one = Of(256, 256, 8, /*least=*/1);
  EXPECT_EQ(one_by_one.size, 100);
  EXPECT_EQ(one_by_one.stride, 2048);
  EXPECT_EQ(one_by_one.at_once, 1);
  EXPECT_FALSE(one_by_one.fetches);
  for (const std::int64_t columns : {1, 16, 64, 100, 250, 256}) {
    const RowOrder pages = Of(columns, columns, 4, /*least=*/4);
    EXPECT_TRUE(pages.fetches) << columns;
    EXPECT_GE(pages.at_once, 4) << columns;
    EXPECT_LE(pages.at_once * pages.stride, 4096) << columns;
  }
}

TEST(RowOrderTest, OthersAreReadManyAtOnce) {
  for (const std::int64_t least : {1, 4}) {
    const RowOrder some_of_a_row = Of(4096, 512, 4, least);
    EXPECT_EQ(some_of_a_row.stride, 16384);
    EXPECT_EQ(some_of_a_row.at_once, 16);
    EXPECT_FALSE(some_of_a_row.fetches);
  }
  const RowOrder long_rows = Of(512, 512, 8, /*least=*/4);
  EXPECT_EQ(long_rows.at_once, 16);
  EXPECT_FALSE(long_rows.fetches);
  const RowOrder short_ones = Of(256, 256, 8, /*least=*/2);
  EXPECT_EQ(short_ones.at_once, 2);
  EXPECT_TRUE(short_ones.fetches);
}

TEST(RowOrderTest, OutputsOfOneElementHaveOneRow) {
  const Layout layout = LayoutOf(std::vector<std::int64_t>{7}, {false});
  const RowOrder order = RowOrder::Of(layout, 7, 4, /*least=*/4);
  EXPECT_EQ(order.size, 1);
  EXPECT_EQ(order.at_once, 1);
  EXPECT_FALSE(order.fetches);
  const std::vector<std::byte> row(28);
  order.Fetch(row.data(), 1);  // nothing
}

}  // namespace
}  // namespace reduced
