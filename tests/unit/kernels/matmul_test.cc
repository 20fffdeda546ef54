// Matrix products: what is allowed, bank conflicts, and what finds a wrong product.
#include "kernels/matmul/matmul.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "kernels/matmul/host.h"

namespace reduced {
namespace {

using ::testing::HasSubstr;

absl::Status Never() { return absl::OkStatus(); }

TEST(BankConflicts, FollowFromTheLayout) {
  EXPECT_EQ(BankConflictWays(TransposedTile(32), 32, 4), 32);
  EXPECT_EQ(BankConflictWays(PaddedTransposedTile(32), 32, 4), 1);
  EXPECT_EQ(BankConflictWays(StraightTile(32), 32, 4), 1);
  // Half a warp at a time, each element in two banks.
  EXPECT_EQ(BankConflictWays(TransposedTile(32), 32, 8), 16);
  EXPECT_EQ(BankConflictWays(PaddedTransposedTile(32), 32, 8), 1);
  // A warp has two rows of threads, which read the same elements.
  EXPECT_EQ(BankConflictWays(TransposedTile(16), 16, 4), 8);
  EXPECT_EQ(BankConflictWays(TransposedTile(16), 16, 8), 16);
  EXPECT_EQ(BankConflictWays(StraightTile(16), 16, 8), 1);
}

TEST(MatmulRowsTest, HaveNamesOfTheirOwn) {
  for (const MatmulRow& row : MatmulRows()) EXPECT_EQ(FindMatmulRow(row.name), &row);
  EXPECT_EQ(FindMatmulRow("single_pass"), nullptr);
  EXPECT_TRUE(Supports(*FindMatmulRow("matmul_host"), DType::kI32));
  EXPECT_FALSE(Supports(*FindMatmulRow("cublas"), DType::kI32));
  EXPECT_FALSE(Supports(*FindMatmulRow("matmul_tensor_f64"), DType::kF32));
  EXPECT_FALSE(Supports(*FindMatmulRow("matmul_host"), DType::kU8));
}

TEST(ValidateMatmulTest, SaysWhatIsAllowed) {
  const MatmulSpec good{.dtype = DType::kF32, .m = 1, .n = 1, .k = 0};
  EXPECT_TRUE(ValidateMatmul(good).ok());
  const auto error = [&good](auto spoil) {
    MatmulSpec bad = good;
    spoil(bad);
    return std::string(ValidateMatmul(bad).message());
  };
  EXPECT_THAT(error([](MatmulSpec& s) { s.dtype = DType::kU8; }),
              HasSubstr("dtype: got u8 for matrix products; allowed"));
  EXPECT_THAT(error([](MatmulSpec& s) { s.m = 0; }), HasSubstr("matmul.m: got 0; allowed: 1 to 1048576"));
  EXPECT_THAT(error([](MatmulSpec& s) { s.n = -1; }), HasSubstr("matmul.n: got -1"));
  EXPECT_THAT(error([](MatmulSpec& s) { s.k = kMaxMatmulSide + 1; }),
              HasSubstr("matmul.k: got 1048577; allowed: 0 to"));
  EXPECT_THAT(error([](MatmulSpec& s) { s.m = s.n = s.k = kMaxMatmulSide; }),
              HasSubstr("allowed: products of at most"));
  EXPECT_THAT(error([](MatmulSpec& s) { s.tile = 8; }), HasSubstr("matmul.tile: got 8; allowed: 0"));
  EXPECT_THAT(error([](MatmulSpec& s) { s.block = {7, 3}; }), HasSubstr("matmul.blocks: got 7x3; allowed: 8x8"));
}

template <class T>
void CheckExpected(DType dtype) {
  const MatmulSpec spec{.dtype = dtype, .m = 7, .n = 5, .k = 11};
  std::vector<T> a(77);
  std::vector<T> b(55);
  std::vector<T> transposed(55);
  std::vector<T> c(35);
  std::vector<std::uint64_t> values(35);
  FillSourceA(spec, 0, 77, a.data());
  FillSourceB(spec, 0, 55, b.data());
  EXPECT_EQ(a[12], static_cast<T>(3));  // row 1, column 1
  EXPECT_EQ(b[12], static_cast<T>(0));  // row 2, column 2
  MultiplyOnHost(spec, a.data(), b.data(), transposed.data(), c.data(), [] { return false; });
  ExpectedProduct closed(spec);
  ExpectedProduct product(spec);
  ASSERT_TRUE(closed.Study(a.data(), b.data(), Never).ok());
  ASSERT_TRUE(product.Study(a.data(), b.data(), Never).ok());
  ASSERT_TRUE(product.Multiply(a.data(), b.data(), 3, values.data(), Never).ok());
  EXPECT_TRUE(closed.Allows(c.data()));
  EXPECT_TRUE(product.Allows(c.data()));
  c[34] += 1;
  EXPECT_FALSE(closed.Allows(c.data()));
  EXPECT_FALSE(product.Allows(c.data()));
}

TEST(ExpectedProductTest, FindsOneWrongElement) {
  CheckExpected<float>(DType::kF32);
  CheckExpected<double>(DType::kF64);
  CheckExpected<std::int32_t>(DType::kI32);
}

TEST(ExpectedProductTest, StopsWhenAsked) {
  const MatmulSpec spec{.dtype = DType::kF64, .m = 4, .n = 4, .k = 4};
  const std::vector<double> matrix(16);
  std::vector<double> values(16);
  ExpectedProduct product(spec);
  const auto stop = [] { return absl::CancelledError(); };
  EXPECT_TRUE(absl::IsCancelled(product.Study(matrix.data(), matrix.data(), stop)));
  EXPECT_TRUE(absl::IsCancelled(product.Multiply(matrix.data(), matrix.data(), 2, values.data(), stop)));
}

TEST(ExpectedProductTest, NaNsAreWrong) {
  const MatmulSpec spec{.dtype = DType::kF32, .m = 1, .n = 1, .k = 1};
  const float one = 1;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  ExpectedProduct product(spec);
  double value = 0;
  ASSERT_TRUE(product.Study(&one, &one, Never).ok());
  ASSERT_TRUE(product.Multiply(&one, &one, 1, &value, Never).ok());
  EXPECT_TRUE(product.Allows(&one));
  EXPECT_FALSE(product.Allows(&nan));
}

}  // namespace
}  // namespace reduced
