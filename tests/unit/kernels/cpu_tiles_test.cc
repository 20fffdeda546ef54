// The tile functions of every vector target that this machine can run, against adding element after element and against
// the definitions of the ops.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/algebra/accumulator.h"
#include "kernels/cpu/tiles.h"
#include "tests/support/data.h"
#include "tests/support/fold.h"
#include "tests/support/oracle.h"
#include "tests/support/runs.h"
#include "tests/unit/kernels/only_target.h"

namespace reduced {
namespace {

using test::Bytes;
using test::DataKind;
using test::GuardedArray;
using test::OnlyTarget;

// Around vectors of every width and four of them, and around tiles.
std::vector<std::int64_t> Sizes(DType dtype) {
  std::vector<std::int64_t> sizes = {0, 1, 2, 3, 5};
  for (const std::int64_t lanes : {4, 8, 16, 32, 64, 128, 256}) {
    for (const std::int64_t size : {lanes - 1, lanes, lanes + 1}) sizes.push_back(size);
  }
  const std::int64_t tile = kTileBytes / RowOf(dtype).bytes;
  for (const std::int64_t size : {tile - 1, tile, tile + 1, 3 * tile + 77}) sizes.push_back(size);
  return sizes;
}

ReduceSpec SpecOf(DType dtype, std::int64_t count, std::vector<OpCall> ops, NanPolicy policy) {
  return {.dtype = dtype, .count = count, .ops = std::move(ops), .nan_policy = policy};
}

Partial FoldByTiles(const ReduceSpec& spec, const void* data, std::int64_t first, std::int64_t count) {
  Partial partial;
  const auto* const elements = static_cast<const std::byte*>(data) + first * RowOf(spec.dtype).bytes;
  TilePlan(spec.dtype, AccumulatorsFor(spec), spec.nan_policy).Fold(elements, first, count, &partial);
  partial.count = count;
  return partial;
}

// What is exact whatever the order of addition.
void ExpectSameExactParts(const Partial& got, const Partial& expected) {
  EXPECT_TRUE(got.int_sum == expected.int_sum);
  EXPECT_TRUE(got.int_abs_sum == expected.int_abs_sum);
  for (int word = 0; word < 3; ++word) EXPECT_EQ(got.int_sum_squares.word[word], expected.int_sum_squares.word[word]);
  EXPECT_EQ(got.moments.count, expected.moments.count);
  EXPECT_EQ(got.int_product.wrapped, expected.int_product.wrapped);
  EXPECT_EQ(got.int_product.zero, expected.int_product.zero);
  EXPECT_EQ(got.int_product.negative, expected.int_product.negative);
  EXPECT_EQ(got.int_product.overflowed, expected.int_product.overflowed);
  if (!expected.int_product.overflowed) {
    EXPECT_EQ(got.int_product.magnitude, expected.int_product.magnitude);
  }
  EXPECT_EQ(got.extrema.min_index, expected.extrema.min_index);
  EXPECT_EQ(got.extrema.max_index, expected.extrema.max_index);
  EXPECT_EQ(got.extrema.nan_index, expected.extrema.nan_index);
  if (expected.extrema.min_index != kNoIndex) {
    EXPECT_EQ(got.extrema.min_key, expected.extrema.min_key);
    EXPECT_EQ(got.extrema.max_key, expected.extrema.max_key);
  }
  EXPECT_EQ(got.bits_and, expected.bits_and);
  EXPECT_EQ(got.bits_or, expected.bits_or);
  EXPECT_EQ(got.bits_xor, expected.bits_xor);
  EXPECT_EQ(got.nonzero, expected.nonzero);
  EXPECT_EQ(got.nan, expected.nan);
}

// The same double to the bit, or both NaN.
void ExpectSameBits(double a, double b) {
  const auto value = [](double x) { return Value{DType::kF64, x}; };
  EXPECT_TRUE(test::SameBits(value(a), value(b))) << a << " " << b;
}

void ExpectSameFloatParts(const Partial& a, const Partial& b) {
  ExpectSameBits(a.float_sum, b.float_sum);
  ExpectSameBits(a.float_abs_sum, b.float_abs_sum);
  ExpectSameBits(a.float_sum_squares, b.float_sum_squares);
  ExpectSameBits(a.moments.pivot, b.moments.pivot);
  ExpectSameBits(a.moments.offset, b.moments.offset);
  ExpectSameBits(a.moments.m2, b.moments.m2);
  ExpectSameBits(a.float_product.mantissa, b.float_product.mantissa);
}

class Tiles : public testing::TestWithParam<DType> {};

TEST_P(Tiles, AnswerAsElementAfterElementDoes) {
  const DType dtype = GetParam();
  for (const std::int64_t size : Sizes(dtype)) {
    for (const test::DataKindRow& kind : test::kDataKinds) {
      if (!test::Applies(kind, dtype) || (test::kSlowBuild && size > 300 && kind.kind > DataKind::kFull)) continue;
      const Bytes array = test::MakeData(kind.kind, dtype, size, static_cast<std::uint64_t>(size));
      const test::Facts facts = test::Study(dtype, array.data(), size);
      const GuardedArray guarded(array, GuardedArray::Against::kPageAfter, 0);
      for (const NanPolicy policy : {NanPolicy::kPropagate, NanPolicy::kOmit}) {
        if (policy == NanPolicy::kOmit && !RowOf(dtype).is_float) continue;
        const ReduceSpec spec = SpecOf(dtype, size, test::OpsOf(dtype), policy);
        const Partial expected = test::Fold(spec, array.data(), 0, size);
        for (const std::int64_t target : VectorTargets()) {
          const OnlyTarget only(target);
          SCOPED_TRACE(test::Describe(spec, kind.name) + " " + hwy::TargetName(target));
          const Partial got = FoldByTiles(spec, guarded.data(), 0, size);
          ExpectSameExactParts(got, expected);
          test::CheckAnswers(facts, spec, got);
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST_P(Tiles, MayStartAtAnyByteAndNeverReadBeyondTheArray) {
  const DType dtype = GetParam();
  for (const std::int64_t size : {std::int64_t{1}, std::int64_t{63}, std::int64_t{517}}) {
    const Bytes array = test::MakeData(DataKind::kFull, dtype, size, 3);
    for (const auto against : {GuardedArray::Against::kPageBefore, GuardedArray::Against::kPageAfter}) {
      for (std::size_t gap = 0; gap < 64; gap += gap < 9 ? 1 : 11) {
        const GuardedArray guarded(array, against, gap);
        const ReduceSpec spec = SpecOf(dtype, size, test::OpsOf(dtype), NanPolicy::kPropagate);
        const Partial expected = test::Fold(spec, array.data(), 0, size);
        for (const std::int64_t target : VectorTargets()) {
          const OnlyTarget only(target);
          SCOPED_TRACE(test::Describe(spec, "full") + " " + hwy::TargetName(target) + " " + std::to_string(gap));
          const Partial got = FoldByTiles(spec, guarded.data(), 0, size);
          ExpectSameExactParts(got, expected);
          ExpectSameFloatParts(got, FoldByTiles(spec, array.data(), 0, size));  // wherever it starts
          if (HasFailure()) return;
        }
      }
    }
  }
}

// An accumulator doesn't show what else was asked for, though some are folded together.
TEST_P(Tiles, GiveTheSameBitsTogetherAndAlone) {
  const DType dtype = GetParam();
  const std::int64_t size = 2 * kTileBytes / RowOf(dtype).bytes + 77;
  for (const DataKind kind : {DataKind::kUniform, DataKind::kSomeNan, DataKind::kSignedZeros, DataKind::kSmall}) {
    if (!test::Applies(test::kDataKinds[static_cast<int>(kind)], dtype)) continue;
    const Bytes array = test::MakeData(kind, dtype, size, 1);
    for (const NanPolicy policy : {NanPolicy::kPropagate, NanPolicy::kOmit}) {
      for (const std::int64_t target : VectorTargets()) {
        const OnlyTarget only(target);
        const Partial together = FoldByTiles(SpecOf(dtype, size, test::OpsOf(dtype), policy), array.data(), 0, size);
        Partial alone;
        VisitDType(dtype, [&]<class T>(std::type_identity<T>) {
          AllAccumulators<T>::ForEach([&]<class A>(std::type_identity<A>) {
            for (const OpRow& row : kOps) {  // the first op that takes only this accumulator
              if (!Supports(row.op, dtype) || AccumulatorsOf(row.op, dtype) != SetOf(A::kAccumulator)) continue;
              return A::Combine(FoldByTiles(SpecOf(dtype, size, {row.op}, policy), array.data(), 0, size), &alone);
            }
          });
        });
        SCOPED_TRACE(hwy::TargetName(target));
        ExpectSameExactParts(together, alone);
        ExpectSameFloatParts(together, alone);
      }
    }
  }
}

TEST_P(Tiles, OfAPartCountIndexesFromTheStartOfTheArray) {
  const DType dtype = GetParam();
  const std::int64_t size = 2 * kTileBytes / RowOf(dtype).bytes + 5;
  const std::int64_t first = size / 3;
  for (const DataKind kind : {DataKind::kAscending, DataKind::kDescending, DataKind::kEqual, DataKind::kSmall}) {
    const Bytes array = test::MakeData(kind, dtype, size, 2);
    const ReduceSpec spec = SpecOf(dtype, size, test::OpsOf(dtype), NanPolicy::kPropagate);
    const Partial expected = test::Fold(spec, array.data(), first, size);
    for (const std::int64_t target : VectorTargets()) {
      const OnlyTarget only(target);
      SCOPED_TRACE(hwy::TargetName(target));
      ExpectSameExactParts(FoldByTiles(spec, array.data(), first, size - first), expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, Tiles, testing::ValuesIn([] {
                           std::vector<DType> dtypes;
                           for (const DTypeRow& row : kDTypes) dtypes.push_back(row.dtype);
                           return dtypes;
                         }()),
                         [](const auto& info) { return std::string(RowOf(info.param).name); });

// 16 times 3 x 2^-1074, nearly the smallest number, and 2^1014, among ones: a product that f64 holds.
TEST(Products, OfSubnormalFactors) {
  std::vector<double> factors(1000, 1.0);
  for (std::size_t i = 0; i < 16; ++i) {
    factors[31 * i + i % 7] = 3 * 0x1p-1074;
    factors[31 * i + 8 + i % 7] = 0x1p1014;
  }
  const auto size = static_cast<std::int64_t>(factors.size());
  const ReduceSpec spec = SpecOf(DType::kF64, size, {Op::kProd}, NanPolicy::kPropagate);
  for (const std::int64_t target : VectorTargets()) {
    const OnlyTarget only(target);
    const FloatProduct product = FoldByTiles(spec, factors.data(), 0, size).float_product;
    EXPECT_EQ(std::ldexp(product.mantissa, static_cast<int>(product.exponent)), 0x1p-960 * 43046721)  // 3^16
        << hwy::TargetName(target);
  }
}

TEST(VectorTargets, AreBestFirst) {
  const std::vector<std::int64_t> targets = VectorTargets();
  ASSERT_FALSE(targets.empty());
  EXPECT_TRUE(std::is_sorted(targets.begin(), targets.end()));  // Highway numbers the better ones lower
  EXPECT_EQ(VectorTargetName(), hwy::TargetName(targets.front()));
}

// What is added in f64 is in vectors of four doubles, or two such side by side.
TEST(VectorTargets, Avx2AndAvx512GiveTheSameBits) {
  const std::vector<std::int64_t> targets = VectorTargets();
  for (const std::int64_t target : {HWY_AVX2, HWY_AVX3}) {
    if (std::find(targets.begin(), targets.end(), target) == targets.end()) {
      GTEST_SKIP() << "this machine has no " << hwy::TargetName(target);
    }
  }
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kF8E4M3, DType::kF8E8M0}) {
    const Bytes array = test::MakeData(DataKind::kUniform, dtype, 20'001, 4);
    const ReduceSpec spec = SpecOf(dtype, 20'001, test::OpsOf(dtype), NanPolicy::kPropagate);
    Partial partials[2];
    for (int i = 0; i < 2; ++i) {
      const OnlyTarget only(i == 0 ? HWY_AVX2 : HWY_AVX3);
      partials[i] = FoldByTiles(spec, array.data(), 0, 20'001);
    }
    ExpectSameFloatParts(partials[0], partials[1]);
  }
}

}  // namespace
}  // namespace reduced
