// What ops answer from what a fold knows: the functions that states and the folds in registers share.
#include "kernels/algebra/answer.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "gtest/gtest.h"
#include "kernels/algebra/order_key.h"
#include "kernels/cuda/quick_products.h"

namespace reduced {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

TEST(Answer, CountsLeaveOmittedNansOut) {
  const ElementCounts counts{.elements = 5, .nonzero = 4, .nans = 2};
  EXPECT_EQ(CountAnswer(Op::kCount, counts, false), 5);
  EXPECT_EQ(CountAnswer(Op::kCount, counts, true), 3);
  EXPECT_EQ(CountAnswer(Op::kCountNonzero, counts, false), 4);
  EXPECT_EQ(CountAnswer(Op::kCountNonzero, counts, true), 2);
  EXPECT_EQ(CountAnswer(Op::kNanCount, counts, true), 2);
  EXPECT_EQ(CountAnswer(Op::kAll, counts, true), 0);
  const ElementCounts nans{.elements = 2, .nonzero = 2, .nans = 2};
  EXPECT_EQ(CountAnswer(Op::kAny, nans, false), 1);
  EXPECT_EQ(CountAnswer(Op::kAny, nans, true), 0);
  EXPECT_EQ(CountAnswer(Op::kAll, nans, true), 1) << "there is no element";
}

TEST(Answer, ValuesThatAreNotFiniteDecideSums) {
  const SpecialValues up{.positive_infinity = true}, down{.negative_infinity = true};
  const SpecialValues both{.positive_infinity = true, .negative_infinity = true}, nan{true, true, false};
  EXPECT_FALSE(SpecialValues{}.any());
  for (const Op op : {Op::kSum, Op::kMean}) {
    EXPECT_EQ(SpecialAnswer(op, up), kUnbounded);
    EXPECT_EQ(SpecialAnswer(op, down), -kUnbounded);
    EXPECT_TRUE(std::isnan(SpecialAnswer(op, both)));
    EXPECT_TRUE(std::isnan(SpecialAnswer(op, nan)));
  }
  for (const Op op : {Op::kL1, Op::kL2, Op::kSumSquares}) {
    EXPECT_EQ(SpecialAnswer(op, down), kUnbounded);
    EXPECT_EQ(SpecialAnswer(op, both), kUnbounded);
    EXPECT_TRUE(std::isnan(SpecialAnswer(op, nan)));
  }
  for (const Op op : {Op::kVar, Op::kStd}) EXPECT_TRUE(std::isnan(SpecialAnswer(op, up)));
}

TEST(Answer, IntegersSaturateAtTheEndsOfTheirTypes) {
  EXPECT_EQ(LargestMagnitude(false, true), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(static_cast<std::int64_t>(SaturatedBits(false, false)), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(static_cast<std::int64_t>(SaturatedBits(true, false)), std::numeric_limits<std::int64_t>::min());
}

TEST(Answer, ProductsAreRoundedOnce) {
  for (const double mantissa : {1.0, -1.0, 1 + 0x1p-52, 2 - 0x1p-52, 1.5, 0.0, -0.0, kUnbounded}) {
    for (int exponent = -2300; exponent < 2300; ++exponent) {
      const double right = std::ldexp(mantissa, exponent);
      ASSERT_EQ(std::bit_cast<std::uint64_t>(ProductAnswer({mantissa, exponent})), std::bit_cast<std::uint64_t>(right))
          << mantissa << " * 2^" << exponent;
    }
  }
  EXPECT_EQ(ProductAnswer({1, std::int64_t{1} << 40}), kUnbounded);
  EXPECT_EQ(ProductAnswer({1, -(std::int64_t{1} << 40)}), 0);
}

// In f64 such a product is infinity times 0.
TEST(Answer, HugeIntegersTimesZeroAreZero) {
  const QuickElements of{.dtype = DType::kI64, .count = 33};
  QuickIntegerProduct<8> fold;
  for (int i = 0; i < 33; ++i) {
    QuickTile<std::uint64_t, 1> x{};
    x.Set(0, i < 32 ? std::uint64_t{1} << 62 : 0);
    fold.Add(x, 1, QuickPositions<1>{}, of);
  }
  std::int64_t product = -1;
  const QuickAnswer answer{Op::kProd, reinterpret_cast<std::byte*>(&product)};
  ASSERT_TRUE(fold.Finish(&answer, 1, 0, of));
  EXPECT_EQ(product, 0);
}

template <class T>
void ExpectBitsOfKeys() {
  using Key = typename OrderKey<T>::Type;
  for (int bits = 0; bits < 1 << 16; ++bits) {  // the highest bits of an element
    const auto pattern =
        static_cast<Key>((static_cast<std::uint64_t>(bits) << 48 >> (64 - 8 * sizeof(T))) | (bits & 1));
    ASSERT_EQ(BitsOfKey<T>(OrderKey<T>::Of(std::bit_cast<T>(pattern))), pattern);
  }
}

TEST(Answer, ElementsHaveTheBitsOfTheirKeys) {
  ExpectBitsOfKeys<Half>();
  ExpectBitsOfKeys<BFloat16>();
  ExpectBitsOfKeys<F8E4M3>();
  ExpectBitsOfKeys<F8E5M2>();
  ExpectBitsOfKeys<F8E8M0>();
  ExpectBitsOfKeys<float>();
  ExpectBitsOfKeys<double>();
  EXPECT_EQ(BitsOfKey<std::uint32_t>(~0U), ~0U);
}

}  // namespace
}  // namespace reduced
