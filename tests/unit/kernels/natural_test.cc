#include "kernels/exact/natural.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/algebra/portable.h"

namespace reduced {
namespace {

Natural NaturalOf(UInt128 value) {
  return Natural::MagnitudeOf(
      std::vector<std::uint64_t>{static_cast<std::uint64_t>(value), static_cast<std::uint64_t>(value >> 64), 0});
}

TEST(Natural, RoundsToTheNearestDouble) {
  const std::uint64_t even = (std::uint64_t{1} << 53) + 12;  // a double; the next is 2 away, so even + 1 is halfway
  EXPECT_EQ(RoundToDouble(Natural(even), 0), 0x1p53 + 12);
  EXPECT_EQ(RoundToDouble(Natural(even + 1), 0), 0x1p53 + 12);
  EXPECT_EQ(RoundToDouble(Natural(even + 3), 0), 0x1p53 + 16);  // halfway from an odd one
  EXPECT_EQ(RoundToDouble(NaturalOf(UInt128{even + 1} << 64), -64), 0x1p53 + 12);
  EXPECT_EQ(RoundToDouble(NaturalOf((UInt128{even + 1} << 64) + 1), -64), 0x1p53 + 14);
  EXPECT_EQ(RoundToDouble(NaturalOf((UInt128{even + 1} << 64) - 1), -64), 0x1p53 + 12);
  EXPECT_EQ(RoundToDouble(Natural((even + 1) << 1), -1, /*more=*/true), 0x1p53 + 14);
  EXPECT_EQ(RoundToDouble(Natural(1), 1024), std::numeric_limits<double>::infinity());
  EXPECT_EQ(RoundToDouble(Natural(1), -1075), 0);  // halfway to the smallest double
  EXPECT_EQ(RoundToDouble(Natural(3), -1075), 0x1p-1073);
}

TEST(Natural, FindsBitsBelowAnIndex) {
  const Natural one = Natural(1).ShiftedLeft(200);
  for (const int index : {-64, -1, 0, 1, 64, 128, 192, 200}) EXPECT_FALSE(one.AnyBitBelow(index)) << index;
  for (const int index : {201, 255, 256, 257, 1000}) EXPECT_TRUE(one.AnyBitBelow(index)) << index;
  EXPECT_FALSE(Natural().AnyBitBelow(100));
}

// The roots of R^2 - 1, R^2 and R^2 + 1 for R halfway between two doubles: what is left of the root's first 64 bits
// decides.
TEST(Natural, RoundsRootsByWhatIsLeftOfThem) {
  for (const std::uint64_t k : {(std::uint64_t{1} << 52) + 6, (std::uint64_t{1} << 52) + 7}) {
    const UInt128 halfway = 2 * k + 1;
    const auto below = static_cast<double>(2 * k);
    const double above = below + 2;
    const double even = k % 2 == 0 ? below : above;
    EXPECT_EQ(RoundRootToDouble(NaturalOf(halfway * halfway - 1), 0), below) << k;
    EXPECT_EQ(RoundRootToDouble(NaturalOf(halfway * halfway), 0), even) << k;
    EXPECT_EQ(RoundRootToDouble(NaturalOf(halfway * halfway + 1), 0), above) << k;
    // By an odd exponent, and with bits beyond the first 128.
    EXPECT_EQ(RoundRootToDouble(NaturalOf(halfway * halfway * 2), 1), 2 * even) << k;
    EXPECT_EQ(RoundRootToDouble(NaturalOf(halfway * halfway).ShiftedLeft(200), -200), even) << k;
    EXPECT_EQ(RoundRootToDouble(NaturalOf(halfway * halfway).ShiftedLeft(200), -200, /*more=*/true), above) << k;
  }
  EXPECT_EQ(RoundRootToDouble(Natural(2), 0), std::sqrt(2.0));
  EXPECT_EQ(RoundRootToDouble(Natural(), 0), 0);
}

}  // namespace
}  // namespace reduced
