#include "kernels/algebra/finalize.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/algebra/accumulator.h"
#include "tests/support/exact_oracle.h"
#include "tests/support/fold.h"
#include "tests/support/oracle.h"
#include "tests/support/runs.h"

namespace reduced {
namespace {

using test::kInfinity;
using test::kNan;
using ::testing::AllOf;
using ::testing::HasSubstr;

ReduceSpec SpecOf(Op op, DType dtype, OverflowPolicy policy = OverflowPolicy::kError) {
  ReduceSpec spec;
  spec.dtype = dtype;
  spec.count = 2;
  spec.ops = {op};
  spec.overflow_policy = policy;
  return spec;
}

absl::StatusOr<Value> FinalizeOne(const ReduceSpec& spec, const Partial& partial) {
  const absl::StatusOr<std::vector<Value>> values = Finalize(spec, partial);
  if (!values.ok()) return values.status();
  EXPECT_EQ(values->size(), 1U);
  return values->at(0);
}

std::string MessageOf(const absl::StatusOr<Value>& value) { return std::string(value.status().message()); }

void ExpectValue(const absl::StatusOr<Value>& got, const Value& expected) {
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_TRUE(test::SameBits(*got, expected))
      << "got " << test::ToString(*got) << ", expected " << test::ToString(expected);
}

// ---- integers that don't fit

struct Whole {
  DType dtype;
  Int128 sum;
  bool fits;
  std::uint64_t wrapped, saturated;  // as bits
};

TEST(Finalize, IntegerSumsAtTheEdgesOfTheirTypes) {
  constexpr Int128 kI64Max = std::numeric_limits<std::int64_t>::max();
  constexpr Int128 kU64Max = std::numeric_limits<std::uint64_t>::max();
  constexpr std::uint64_t kTop = std::uint64_t{1} << 63;
  const Whole kCases[] = {
      {DType::kI32, kI64Max, true, kTop - 1, kTop - 1},
      {DType::kI32, kI64Max + 1, false, kTop, kTop - 1},
      {DType::kI64, -kI64Max - 1, true, kTop, kTop},
      {DType::kI64, -kI64Max - 2, false, kTop - 1, kTop},
      {DType::kI8, Int128{-1} << 100, false, 0, kTop},
      {DType::kI8, Int128{-1}, true, ~std::uint64_t{0}, ~std::uint64_t{0}},
      {DType::kU8, kU64Max, true, ~std::uint64_t{0}, ~std::uint64_t{0}},
      {DType::kU64, kU64Max + 1, false, 0, ~std::uint64_t{0}},
      {DType::kBool, Int128{5}, true, 5, 5},
  };
  for (const Whole& c : kCases) {
    Partial partial;
    partial.count = 2;
    partial.int_sum = c.sum;
    const bool is_signed = RowOf(c.dtype).is_signed;
    const auto value = [&](std::uint64_t bits) {
      return is_signed ? Value{DType::kI64, static_cast<std::int64_t>(bits)} : Value{DType::kU64, bits};
    };
    const auto strict = FinalizeOne(SpecOf(Op::kSum, c.dtype), partial);
    EXPECT_EQ(strict.status().code(), c.fits ? absl::StatusCode::kOk : absl::StatusCode::kOutOfRange);
    if (c.fits) ExpectValue(strict, value(c.wrapped));
    ExpectValue(FinalizeOne(SpecOf(Op::kSum, c.dtype, OverflowPolicy::kWrap), partial), value(c.wrapped));
    ExpectValue(FinalizeOne(SpecOf(Op::kSum, c.dtype, OverflowPolicy::kSaturate), partial), value(c.saturated));
  }
}

TEST(Finalize, OverflowSaysWhatAndHowToGetAResult) {
  Partial partial;
  partial.count = 2;
  partial.int_sum = -(Int128{1} << 63) - 1;
  const auto sum = FinalizeOne(SpecOf(Op::kSum, DType::kI16), partial);
  EXPECT_THAT(MessageOf(sum), AllOf(HasSubstr("sum"), HasSubstr("i16"), HasSubstr("-9223372036854775809"),
                                    HasSubstr("i64"), HasSubstr("wrap"), HasSubstr("saturate")));
  partial.int_product.overflowed = true;
  const auto product = FinalizeOne(SpecOf(Op::kProd, DType::kU8), partial);
  EXPECT_EQ(product.status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(MessageOf(product), AllOf(HasSubstr("prod"), HasSubstr("u8"), HasSubstr("beyond 64 bits")));
}

IntProduct ProductOfAll(const std::vector<std::int64_t>& factors) {
  ProductOf<std::int64_t>::Local product;
  for (const std::int64_t x : factors) ProductOf<std::int64_t>::Add(product, x, 0);
  return product;
}

TEST(Finalize, IntegerProducts) {
  constexpr std::int64_t kHalf = std::int64_t{1} << 62;
  Partial partial;
  partial.count = 2;
  partial.int_product = ProductOfAll({kHalf, -2});  // the lowest i64
  ExpectValue(FinalizeOne(SpecOf(Op::kProd, DType::kI64), partial), {DType::kI64, INT64_MIN});
  partial.int_product = ProductOfAll({kHalf, 2});
  EXPECT_EQ(FinalizeOne(SpecOf(Op::kProd, DType::kI64), partial).status().code(), absl::StatusCode::kOutOfRange);
  ExpectValue(FinalizeOne(SpecOf(Op::kProd, DType::kI64, OverflowPolicy::kWrap), partial), {DType::kI64, INT64_MIN});
  ExpectValue(FinalizeOne(SpecOf(Op::kProd, DType::kI64, OverflowPolicy::kSaturate), partial),
              {DType::kI64, INT64_MAX});
  partial.int_product = ProductOfAll({kHalf, kHalf, -kHalf});
  ExpectValue(FinalizeOne(SpecOf(Op::kProd, DType::kI64, OverflowPolicy::kSaturate), partial),
              {DType::kI64, INT64_MIN});
  // 0 however far the other factors go.
  partial.int_product = ProductOfAll({kHalf, kHalf, 0, -kHalf});
  for (const auto policy : {OverflowPolicy::kError, OverflowPolicy::kWrap, OverflowPolicy::kSaturate}) {
    ExpectValue(FinalizeOne(SpecOf(Op::kProd, DType::kI64, policy), partial), {DType::kI64, std::int64_t{0}});
  }
}

TEST(Finalize, SumSquaresBeyond128Bits) {
  Partial partial;
  partial.count = 2;
  partial.int_sum_squares = UInt192{{7, 0, 1}};  // 2^128 + 7
  EXPECT_EQ(FinalizeOne(SpecOf(Op::kSumSquares, DType::kU64), partial).status().code(), absl::StatusCode::kOutOfRange);
  ExpectValue(FinalizeOne(SpecOf(Op::kSumSquares, DType::kI64, OverflowPolicy::kWrap), partial),
              {DType::kU64, std::uint64_t{7}});
  ExpectValue(FinalizeOne(SpecOf(Op::kSumSquares, DType::kI64, OverflowPolicy::kSaturate), partial),
              {DType::kU64, ~std::uint64_t{0}});
  ExpectValue(FinalizeOne(SpecOf(Op::kL2, DType::kI64), partial), {DType::kF64, 0x1p64});  // never overflows
  partial.int_abs_sum = UInt128{1} << 64;
  EXPECT_EQ(FinalizeOne(SpecOf(Op::kL1, DType::kI8), partial).status().code(), absl::StatusCode::kOutOfRange);
}

// What no accumulation in f64 gets right: halves, magnitudes beyond 2^53, sums of squares beyond 2^128.
TEST(Finalize, IntegersAreRoundedOnce) {
  Partial partial;
  partial.count = 3;
  partial.int_sum = (Int128{3} << 52) + 1;
  ExpectValue(FinalizeOne(SpecOf(Op::kMean, DType::kI64), partial), {DType::kF64, 0x1p52 + 1.0 / 3});
  partial.int_sum = Int128{INT64_MIN} * 3;
  ExpectValue(FinalizeOne(SpecOf(Op::kMean, DType::kI64), partial), {DType::kF64, -0x1p63});
  partial.int_sum = 0;
  ExpectValue(FinalizeOne(SpecOf(Op::kMean, DType::kI64), partial), {DType::kF64, 0.0});
  partial.count = 2;
  partial.int_sum = (Int128{1} << 54) + 2;  // the mean is 2^53 + 1: halfway, to even
  ExpectValue(FinalizeOne(SpecOf(Op::kMean, DType::kI64), partial), {DType::kF64, 0x1p53});
  partial.int_sum += 4;
  ExpectValue(FinalizeOne(SpecOf(Op::kMean, DType::kI64), partial), {DType::kF64, 0x1p53 + 4});

  const auto fold = [](const std::vector<std::int64_t>& elements) {
    ReduceSpec spec = SpecOf(Op::kVar, DType::kI64);
    spec.count = static_cast<std::int64_t>(elements.size());
    return test::Fold(spec, elements.data(), 0, spec.count);
  };
  // The deviations are 2^63 - 1/2, each way.
  ExpectValue(FinalizeOne(SpecOf(Op::kVar, DType::kI64), fold({INT64_MIN, INT64_MAX})), {DType::kF64, 0x1p126});
  ExpectValue(FinalizeOne(SpecOf(Op::kStd, DType::kI64), fold({INT64_MIN, INT64_MAX})), {DType::kF64, 0x1p63});
  ExpectValue(FinalizeOne(SpecOf(Op::kVar, DType::kI64), fold({INT64_MAX, INT64_MAX - 1, INT64_MAX - 2})),
              {DType::kF64, 2.0 / 3});
  ExpectValue(FinalizeOne(SpecOf(Op::kVar, DType::kI64), fold({INT64_MIN, INT64_MIN})), {DType::kF64, 0.0});
  ExpectValue(FinalizeOne(SpecOf(Op::kStd, DType::kI64), fold({0, 0, 0, 6})), {DType::kF64, std::sqrt(6.75)});
  ReduceSpec none_left = SpecOf(Op::kVar, DType::kI64);
  none_left.ddof = 2;
  ExpectValue(FinalizeOne(none_left, fold({1, 2})), {DType::kF64, kNan});
  ExpectValue(FinalizeOne(SpecOf(Op::kL2, DType::kI64), fold({3, -4})), {DType::kF64, 5.0});
}

TEST(Finalize, IntegersAnswerAsTheSchoolbookDoes) {
  std::mt19937_64 random(8);
  for (int round = 0; round < 2000; ++round) {
    const int count = 1 + static_cast<int>(random() % 9);
    const int unused = static_cast<int>(random() % 64);
    std::vector<std::int64_t> elements;
    const auto base = static_cast<std::int64_t>(random());
    for (int i = 0; i < count; ++i) {
      elements.push_back(round % 2 == 0 ? static_cast<std::int64_t>(random()) >> unused
                                        : base ^ static_cast<std::int64_t>(random() >> unused));
    }
    const DType dtype = round % 3 == 0 ? DType::kU64 : DType::kI64;
    ReduceSpec spec = SpecOf(Op::kVar, dtype);
    spec.count = count;
    spec.ops = {Op::kMean, Op::kVar, Op::kStd, Op::kL2};
    EXPECT_TRUE(test::CheckAnswers(test::Study(dtype, elements.data(), count), spec,
                                   test::Fold(spec, elements.data(), 0, count)));
  }
}

// ---- floats

TEST(Finalize, FloatProductsAreScaledOnce) {
  const struct {
    FloatProduct product;
    double value;
  } kCases[] = {
      {{1.5, 1}, 3},
      {{-1.5, -1}, -0.75},
      {{1, 1024}, kInfinity},
      {{-1, 5'000'000'000}, -kInfinity},
      {{1, -1074}, 0x1p-1074},
      {{1, -5'000'000'000}, 0},
      {{0, 9'000'000'000}, 0},
      {{kNan, 3}, kNan},
      {{kInfinity, -9'000'000'000}, kInfinity},
  };
  for (const auto& c : kCases) {
    Partial partial;
    partial.count = 2;
    partial.float_product = c.product;
    ExpectValue(FinalizeOne(SpecOf(Op::kProd, DType::kF32), partial), {DType::kF64, c.value});
  }
}

TEST(Finalize, VarianceDividesByCountLessDdof) {
  Partial partial;
  partial.count = 5;
  partial.moments.count = 5;
  partial.moments.m2 = 20;
  ReduceSpec spec = SpecOf(Op::kVar, DType::kF32);
  for (const auto& [ddof, var] : std::vector<std::pair<std::int64_t, double>>{{0, 4}, {1, 5}, {4, 20}}) {
    spec.ddof = ddof;
    spec.ops = {Op::kVar, Op::kStd};
    const auto values = Finalize(spec, partial);
    ASSERT_TRUE(values.ok());
    EXPECT_EQ(std::get<double>(values->at(0).value), var);
    EXPECT_EQ(std::get<double>(values->at(1).value), std::sqrt(var));
  }
  for (const std::int64_t ddof : {5, 6}) {
    spec.ddof = ddof;
    spec.ops = {Op::kVar};
    ExpectValue(FinalizeOne(spec, partial), {DType::kF64, kNan});
  }
  partial.nan = 4;  // one left
  spec.nan_policy = NanPolicy::kOmit;
  spec.ddof = 1;
  ExpectValue(FinalizeOne(spec, partial), {DType::kF64, kNan});
}

TEST(Finalize, OmittedNansAreNotCounted) {
  Partial partial;
  partial.count = 10;
  partial.nan = 4;
  partial.nonzero = 9;  // NaNs included
  partial.float_sum = 12;
  for (const bool omit : {false, true}) {
    ReduceSpec spec = SpecOf(Op::kMean, DType::kF64);
    spec.ops = {Op::kMean, Op::kCountNonzero, Op::kAll, Op::kNanCount, Op::kCount};
    spec.nan_policy = omit ? NanPolicy::kOmit : NanPolicy::kPropagate;
    const auto values = Finalize(spec, partial);
    ASSERT_TRUE(values.ok());
    EXPECT_EQ(values->at(0), (Value{DType::kF64, omit ? 2.0 : 1.2}));
    EXPECT_EQ(values->at(1), (Value{DType::kU64, std::uint64_t{omit ? 5U : 9U}}));
    EXPECT_EQ(values->at(2), (Value{DType::kBool, false}));
    EXPECT_EQ(values->at(3), (Value{DType::kU64, std::uint64_t{4}}));
    EXPECT_EQ(values->at(4), (Value{DType::kU64, std::uint64_t{omit ? 6U : 10U}}));
  }
}

TEST(Finalize, ExtremaComeBackFromTheirKeys) {
  for (const double x : {0.0, -0.0, 1.5, -1.5, 65504.0, -0x1p-24, kInfinity, -kInfinity}) {
    Partial partial;
    partial.count = 1;
    const auto set = [&](std::int64_t key) {
      partial.extrema = {.min_key = key, .max_key = key, .min_index = 7, .max_index = 7};
    };
    set(WidenKey(OrderKey<double>::Of(x)));
    ExpectValue(FinalizeOne(SpecOf(Op::kMin, DType::kF64), partial), {DType::kF64, x});
    set(WidenKey(OrderKey<float>::Of(static_cast<float>(x))));
    ExpectValue(FinalizeOne(SpecOf(Op::kMax, DType::kF32), partial), {DType::kF32, x});
    ExpectValue(FinalizeOne(SpecOf(Op::kArgmax, DType::kF32), partial), {DType::kU64, std::uint64_t{7}});
  }
  for (int bits = 0; bits < 65536; ++bits) {
    const Half half{static_cast<std::uint16_t>(bits)};
    const BFloat16 brain{static_cast<std::uint16_t>(bits)};
    Partial partial;
    partial.count = 1;
    partial.extrema.min_index = 0;
    if (!IsNan(half)) {
      partial.extrema.min_key = WidenKey(OrderKey<Half>::Of(half));
      const auto got = FinalizeOne(SpecOf(Op::kMin, DType::kF16), partial);
      ASSERT_TRUE(test::SameBits(*got, {DType::kF16, ToDouble(half)})) << bits;
    }
    if (!IsNan(brain)) {
      partial.extrema.min_key = WidenKey(OrderKey<BFloat16>::Of(brain));
      const auto got = FinalizeOne(SpecOf(Op::kMin, DType::kBF16), partial);
      ASSERT_TRUE(test::SameBits(*got, {DType::kBF16, ToDouble(brain)})) << bits;
    }
  }
  Partial partial;
  partial.count = 1;
  partial.extrema = {.min_key = WidenKey(UINT64_MAX), .max_key = 1, .min_index = 0, .max_index = 0};
  ExpectValue(FinalizeOne(SpecOf(Op::kMin, DType::kU64), partial), {DType::kU64, UINT64_MAX});
  ExpectValue(FinalizeOne(SpecOf(Op::kMax, DType::kBool), partial), {DType::kBool, true});
  ExpectValue(FinalizeOne(SpecOf(Op::kMax, DType::kI8), partial), {DType::kI8, std::int64_t{1}});
}

TEST(Finalize, TheFirstNanIsTheExtremumUnlessOmitted) {
  Partial partial;
  partial.count = 9;
  partial.nan = 1;
  partial.extrema = {.min_key = 0, .max_key = 0, .min_index = 2, .max_index = 3, .nan_index = 5};
  for (const Op op : {Op::kMin, Op::kMax})
    ExpectValue(FinalizeOne(SpecOf(op, DType::kF16), partial), {DType::kF16, kNan});
  for (const Op op : {Op::kArgmin, Op::kArgmax}) {
    ExpectValue(FinalizeOne(SpecOf(op, DType::kF64), partial), {DType::kU64, std::uint64_t{5}});
    ReduceSpec omit = SpecOf(op, DType::kF64);
    omit.nan_policy = NanPolicy::kOmit;
    ExpectValue(FinalizeOne(omit, partial), {DType::kU64, std::uint64_t{op == Op::kArgmin ? 2U : 3U}});
  }
}

TEST(Finalize, RangesAreExactOrRoundedOnce) {
  const auto range = [](DType dtype, std::int64_t min_key, std::int64_t max_key) {
    Partial partial;
    partial.count = 2;
    partial.extrema = {.min_key = min_key, .max_key = max_key, .min_index = 0, .max_index = 1};
    return FinalizeOne(SpecOf(Op::kRange, dtype), partial);
  };
  ExpectValue(range(DType::kI64, INT64_MIN, INT64_MAX), {DType::kU64, UINT64_MAX});
  ExpectValue(range(DType::kU64, WidenKey(std::uint64_t{1}), WidenKey(UINT64_MAX)), {DType::kU64, UINT64_MAX - 1});
  ExpectValue(range(DType::kBool, 0, 1), {DType::kU64, std::uint64_t{1}});
  const auto key = [](double x) { return WidenKey(OrderKey<double>::Of(x)); };
  ExpectValue(range(DType::kF64, key(-1e308), key(1e308)), {DType::kF64, kInfinity});
  ExpectValue(range(DType::kF64, key(-0x1p-1074), key(1)), {DType::kF64, 1.0});
  ExpectValue(range(DType::kF64, key(kInfinity), key(kInfinity)), {DType::kF64, kNan});
  ExpectValue(range(DType::kF32, WidenKey(OrderKey<float>::Of(-1.5F)), WidenKey(OrderKey<float>::Of(0.25F))),
              {DType::kF64, 1.75});
}

// ---- nothing

TEST(Finalize, AnEmptyArrayAnswersWithTheIdentityOrAnError) {
  for (const DTypeRow& dtype : kDTypes) {
    const test::Facts nothing = test::Study(dtype.dtype, nullptr, 0);
    for (const OpRow& op : kOps) {
      if (!Supports(op.op, dtype.dtype) || !HasAccumulator(op.op)) continue;
      ReduceSpec spec = SpecOf(op.op, dtype.dtype);
      spec.count = 0;
      const auto got = FinalizeOne(spec, Partial{});
      EXPECT_EQ(test::Mismatch(test::Expect(nothing, spec, op.op), got), "") << op.name << " of " << dtype.name;
      EXPECT_EQ(got.status().code(), op.error_if_empty ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kOk);
    }
  }
  ExpectValue(FinalizeOne(SpecOf(Op::kSum, DType::kI8), {}), {DType::kI64, std::int64_t{0}});
  ExpectValue(FinalizeOne(SpecOf(Op::kProd, DType::kF16), {}), {DType::kF64, 1.0});
  ExpectValue(FinalizeOne(SpecOf(Op::kProd, DType::kU8), {}), {DType::kU64, std::uint64_t{1}});
  ExpectValue(FinalizeOne(SpecOf(Op::kMean, DType::kI8), {}), {DType::kF64, kNan});
  ExpectValue(FinalizeOne(SpecOf(Op::kVar, DType::kF32), {}), {DType::kF64, kNan});
  ExpectValue(FinalizeOne(SpecOf(Op::kAny, DType::kF32), {}), {DType::kBool, false});
  ExpectValue(FinalizeOne(SpecOf(Op::kAll, DType::kF32), {}), {DType::kBool, true});
  ExpectValue(FinalizeOne(SpecOf(Op::kBitAnd, DType::kI16), {}), {DType::kI16, std::int64_t{-1}});
  ExpectValue(FinalizeOne(SpecOf(Op::kBitAnd, DType::kU16), {}), {DType::kU16, std::uint64_t{0xffff}});
  ExpectValue(FinalizeOne(SpecOf(Op::kBitAnd, DType::kBool), {}), {DType::kBool, true});
}

TEST(Finalize, NothingButNansSaysSo) {
  ReduceSpec spec = SpecOf(Op::kMax, DType::kF32);
  spec.nan_policy = NanPolicy::kOmit;
  Partial partial;
  partial.count = partial.nan = 2;
  partial.extrema.nan_index = 0;
  const auto got = FinalizeOne(spec, partial);
  EXPECT_EQ(got.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(MessageOf(got), AllOf(HasSubstr("max"), HasSubstr("at least 1"), HasSubstr("not NaN"), HasSubstr("2")));
}

TEST(Finalize, BitsAreThoseOfTheElement) {
  Partial partial;
  partial.count = 3;
  partial.bits_or = 0xffffffffffffff80;  // an i8 of -128, extended
  partial.bits_and = 0x80;
  ExpectValue(FinalizeOne(SpecOf(Op::kBitOr, DType::kI8), partial), {DType::kI8, std::int64_t{-128}});
  ExpectValue(FinalizeOne(SpecOf(Op::kBitAnd, DType::kI8), partial), {DType::kI8, std::int64_t{-128}});
  ExpectValue(FinalizeOne(SpecOf(Op::kBitOr, DType::kU8), partial), {DType::kU8, std::uint64_t{0x80}});
  ExpectValue(FinalizeOne(SpecOf(Op::kBitOr, DType::kU64), partial), {DType::kU64, partial.bits_or});
  partial.bits_xor = 1;
  ExpectValue(FinalizeOne(SpecOf(Op::kBitXor, DType::kBool), partial), {DType::kBool, true});
}

TEST(Finalize, AnswersInTheOrderAskedAndTheFirstErrorWins) {
  Partial partial;
  partial.count = 1;
  partial.int_sum = 4;
  partial.nonzero = 1;
  ReduceSpec spec = SpecOf(Op::kSum, DType::kI32);
  spec.ops = {Op::kCountNonzero, Op::kSum, Op::kSum};
  const auto values = Finalize(spec, partial);
  ASSERT_TRUE(values.ok());
  ASSERT_EQ(values->size(), 3U);
  EXPECT_EQ(values->at(0), (Value{DType::kU64, std::uint64_t{1}}));
  EXPECT_EQ(values->at(1), (Value{DType::kI64, std::int64_t{4}}));
  EXPECT_EQ(values->at(2), values->at(1));
  spec.ops = {Op::kSum, Op::kArgmin, Op::kProd};
  partial.int_product.overflowed = true;
  EXPECT_EQ(Finalize(spec, partial).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace reduced
