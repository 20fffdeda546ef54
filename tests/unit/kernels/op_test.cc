#include "kernels/algebra/op.h"

#include <iterator>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "kernels/algebra/spec.h"

namespace reduced {
namespace {

TEST(Op, NumbersAreDense) {
  int number = 0;
  for (const OpRow& row : kOps) {
    EXPECT_EQ(static_cast<int>(row.op), ++number) << row.name;
    EXPECT_EQ(&RowOf(row.op), &row);
  }
}

TEST(Op, NamesAreUniqueLowerCaseWords) {
  std::set<std::string> names;
  for (const OpRow& row : kOps) {
    EXPECT_TRUE(names.insert(std::string(row.name)).second) << row.name;
    EXPECT_EQ(row.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789"), std::string_view::npos) << row.name;
    EXPECT_FALSE(row.summary.empty()) << row.name;
  }
  EXPECT_EQ(names.size(), std::size(kOps));
}

TEST(Op, IsFoundByNameAndNumber) {
  for (const OpRow& row : kOps) {
    EXPECT_EQ(OpFromName(row.name), row.op);
    EXPECT_EQ(OpFromNumber(static_cast<int>(row.op)), row.op);
  }
  for (const char* const name : {"", "SUM", "sum ", "su", "sums", "medians"}) {
    EXPECT_FALSE(OpFromName(name).has_value()) << name;
  }
  for (const int number : {-1, 0, static_cast<int>(std::size(kOps)) + 1, 256 + 1}) {
    EXPECT_FALSE(OpFromNumber(number).has_value()) << number;
  }
}

TEST(Op, SupportFollowsTheTable) {
  for (const OpRow& row : kOps) {
    for (const DTypeRow& dtype : kDTypes) {
      const bool supports = row.dtypes == OpDTypes::kIntegers ? !dtype.is_float
                            : row.dtypes == OpDTypes::kNarrow ? dtype.bytes <= 2
                                                              : true;
      EXPECT_EQ(Supports(row.op, dtype.dtype), supports) << row.name << " " << dtype.name;
    }
  }
  EXPECT_FALSE(Supports(Op::kBitAnd, DType::kF32));
  EXPECT_TRUE(Supports(Op::kBitAnd, DType::kBool));
  EXPECT_TRUE(Supports(Op::kArgmax, DType::kBF16));
}

TEST(Op, ResultTypes) {
  const struct {
    Op op;
    DType dtype;
    DType result;
  } kCases[] = {
      {Op::kSum, DType::kBool, DType::kU64},        {Op::kSum, DType::kI8, DType::kI64},
      {Op::kSum, DType::kU8, DType::kU64},          {Op::kSum, DType::kF16, DType::kF64},
      {Op::kProd, DType::kI32, DType::kI64},        {Op::kProd, DType::kU64, DType::kU64},
      {Op::kL1, DType::kI8, DType::kU64},           {Op::kSumSquares, DType::kI64, DType::kU64},
      {Op::kL1, DType::kF32, DType::kF64},          {Op::kL2, DType::kI32, DType::kF64},
      {Op::kMean, DType::kBool, DType::kF64},       {Op::kVar, DType::kU64, DType::kF64},
      {Op::kMin, DType::kF16, DType::kF16},         {Op::kMax, DType::kBool, DType::kBool},
      {Op::kArgmin, DType::kF64, DType::kU64},      {Op::kAny, DType::kF64, DType::kBool},
      {Op::kCountNonzero, DType::kI8, DType::kU64}, {Op::kNanCount, DType::kF32, DType::kU64},
      {Op::kBitXor, DType::kI16, DType::kI16},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(ResultDType(c.op, c.dtype), c.result) << RowOf(c.op).name << " of " << RowOf(c.dtype).name;
  }
}

TEST(Op, AccumulatorsAreThoseOfTheOpsAndTheCountsThatOmissionNeeds) {
  ReduceSpec spec;
  spec.ops = {Op::kSum, Op::kMean, Op::kMax, Op::kArgmin};
  EXPECT_EQ(AccumulatorsFor(spec), SetOf(Accumulator::kSum) | SetOf(Accumulator::kExtrema));
  spec.nan_policy = NanPolicy::kOmit;
  EXPECT_EQ(AccumulatorsFor(spec),
            SetOf(Accumulator::kSum) | SetOf(Accumulator::kExtrema) | SetOf(Accumulator::kCounts));
  spec.precision = Precision::kExact;
  EXPECT_EQ(AccumulatorsFor(spec), SetOf(Accumulator::kExtrema) | SetOf(Accumulator::kCounts));
  spec.ops = {Op::kSum, Op::kMean};  // which count NaNs themselves
  EXPECT_EQ(AccumulatorsFor(spec), 0U);
  spec.ops = {Op::kSum, Op::kMean, Op::kMax, Op::kArgmin};
  spec.dtype = DType::kI32;  // has no NaN
  EXPECT_EQ(AccumulatorsFor(spec), SetOf(Accumulator::kSum) | SetOf(Accumulator::kExtrema));
  spec.ops = {Op::kVar};  // from exact sums; of floats in f64 from deviations
  EXPECT_EQ(AccumulatorsFor(spec), SetOf(Accumulator::kSum) | SetOf(Accumulator::kSumSquares));
  EXPECT_EQ(AccumulatorsOf(Op::kVar, DType::kF32), SetOf(Accumulator::kMoments));
  for (const OpRow& row : kOps) {
    spec.ops = {row.op};
    EXPECT_EQ(AccumulatorsFor(spec), AccumulatorsOf(row.op, DType::kI32)) << row.name;
    EXPECT_EQ(static_cast<int>(row.accumulator) < kAccumulatorCount, HasAccumulator(row.op)) << row.name;
  }
}

}  // namespace
}  // namespace reduced
