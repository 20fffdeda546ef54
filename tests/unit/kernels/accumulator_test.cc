#include "kernels/algebra/accumulator.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/data.h"
#include "tests/support/exact_oracle.h"
#include "tests/support/fold.h"
#include "tests/support/oracle.h"
#include "tests/support/runs.h"

namespace reduced {
namespace {

using test::kInfinity;
using test::kNan;

// ---- order keys

// In the order of the results: by value, -0 before +0.
template <class T>
bool Before(T a, T b) {
  const double x = ToDouble(a);
  const double y = ToDouble(b);
  return x < y || (x == y && std::signbit(x) && !std::signbit(y));
}

template <class T>
void ExpectKeysInOrder(std::vector<T> elements) {
  std::sort(elements.begin(), elements.end(), Before<T>);
  for (std::size_t i = 1; i < elements.size(); ++i) {
    const auto low = OrderKey<T>::Of(elements[i - 1]);
    const auto high = OrderKey<T>::Of(elements[i]);
    if (Before(elements[i - 1], elements[i])) {
      ASSERT_LT(low, high) << ToDouble(elements[i - 1]) << " " << ToDouble(elements[i]);
      ASSERT_LT(WidenKey(low), WidenKey(high));
    } else {
      ASSERT_EQ(low, high);
    }
  }
}

template <class T>
std::vector<T> AllButNan() {
  std::vector<T> all;
  for (int bits = 0; bits < 1 << (8 * sizeof(T)); ++bits) {
    const T x{static_cast<decltype(T::bits)>(bits)};
    if (!IsNan(x)) all.push_back(x);
  }
  return all;
}

template <class T, class Bits>
std::vector<T> Samples() {
  std::mt19937_64 random(1);
  std::vector<T> samples = {0, -T{0}, 1, -1, std::numeric_limits<T>::max(), std::numeric_limits<T>::lowest()};
  for (const T x :
       {std::numeric_limits<T>::denorm_min(), std::numeric_limits<T>::min(), std::numeric_limits<T>::infinity()}) {
    samples.push_back(x);
    samples.push_back(-x);
  }
  for (int i = 0; i < 20'000; ++i) {
    const T x = std::bit_cast<T>(static_cast<Bits>(random()));
    if (!std::isnan(x)) samples.push_back(x);
  }
  return samples;
}

TEST(OrderKey, FollowsTheOrderOfFloats) {
  ExpectKeysInOrder(AllButNan<Half>());
  ExpectKeysInOrder(AllButNan<BFloat16>());
  ExpectKeysInOrder(AllButNan<F8E4M3>());
  ExpectKeysInOrder(AllButNan<F8E5M2>());
  ExpectKeysInOrder(AllButNan<F8E8M0>());
  ExpectKeysInOrder(Samples<float, std::uint32_t>());
  ExpectKeysInOrder(Samples<double, std::uint64_t>());
}

TEST(OrderKey, OfIntegersIsTheInteger) {
  EXPECT_EQ(OrderKey<std::int8_t>::Of(-128), -128);
  EXPECT_EQ(OrderKey<Bool>::Of(Bool{77}), 1);
  const std::uint64_t sorted[] = {0, 1, (std::uint64_t{1} << 63) - 1, std::uint64_t{1} << 63, ~std::uint64_t{0}};
  for (int i = 1; i < 5; ++i) EXPECT_LT(WidenKey(sorted[i - 1]), WidenKey(sorted[i]));
  EXPECT_EQ(WidenKey(std::uint32_t{0xffffffff}), 0xffffffff);
}

// ---- arithmetic

TEST(Magnitude, OfTheLowestIntegers) {
  EXPECT_EQ(Magnitude<std::int8_t>(-128), 128U);
  EXPECT_EQ(Magnitude(INT64_MIN), std::uint64_t{1} << 63);
  EXPECT_EQ(Magnitude(UINT64_MAX), UINT64_MAX);
  EXPECT_EQ(Magnitude(Bool{200}), 1U);
}

TEST(UInt192, CarriesThroughEveryWord) {
  UInt192 sum{{~std::uint64_t{0}, ~std::uint64_t{0}, 4}};
  Increase(sum, UInt192{{1, 0, 0}});
  EXPECT_EQ(sum.word[0], 0U);
  EXPECT_EQ(sum.word[1], 0U);
  EXPECT_EQ(sum.word[2], 5U);
  Increase(sum, UInt192{{7, ~std::uint64_t{0}, 1}});
  EXPECT_EQ(sum.word[0], 7U);
  EXPECT_EQ(sum.word[1], ~std::uint64_t{0});
  EXPECT_EQ(sum.word[2], 6U);
}

// ---- products

TEST(FloatProduct, NormalizeKeepsTheValue) {
  std::vector<double> values = Samples<double, std::uint64_t>();
  for (double x = std::numeric_limits<double>::denorm_min(); x < 1e-300; x *= 3) values.push_back(-x);
  for (const double x : values) {
    FloatProduct p{x, 0};
    Normalize(p);
    if (x == 0 || std::isinf(x)) {
      ASSERT_EQ(p.mantissa, x);
      ASSERT_EQ(std::signbit(p.mantissa), std::signbit(x));
      ASSERT_EQ(p.exponent, 0);
      continue;
    }
    ASSERT_GE(std::fabs(p.mantissa), 1) << x;
    ASSERT_LT(std::fabs(p.mantissa), 2) << x;
    // In two steps, each exact: 2^exponent alone can be out of range.
    ASSERT_EQ(std::ldexp(std::ldexp(p.mantissa, 52), static_cast<int>(p.exponent) - 52), x);
  }
  FloatProduct nan{kNan, 5};
  Normalize(nan);
  EXPECT_TRUE(std::isnan(nan.mantissa));
}

TEST(FloatProduct, NeitherOverflowsNorUnderflowsOnTheWay) {
  // 10,000 factors of 2^1023, then as many of 2^-1074, then what brings it back to 3: any order.
  std::vector<double> factors(10'000, 0x1p1023);
  factors.insert(factors.end(), 10'000, 0x1p-1074);
  for (std::int64_t missing = std::int64_t{10'000} * 51; missing > 0; missing -= 1000) factors.push_back(0x1p1000);
  factors.push_back(3);
  std::mt19937_64 random(3);
  for (int round = 0; round < 3; ++round) {
    ProductOf<double>::Local product;
    for (const double x : factors) ProductOf<double>::Add(product, x, 0);
    EXPECT_EQ(product.mantissa, 1.5);
    EXPECT_EQ(product.exponent, 1);
    std::shuffle(factors.begin(), factors.end(), random);
  }
}

TEST(FloatProduct, ZeroTimesInfinityIsNan) {
  ProductOf<float>::Local product;
  for (const float x : {2.0F, 0.0F, -std::numeric_limits<float>::infinity()}) ProductOf<float>::Add(product, x, 0);
  EXPECT_TRUE(std::isnan(product.mantissa));
}

bool SameProduct(const IntProduct& a, const IntProduct& b) {
  return a.wrapped == b.wrapped && a.zero == b.zero && a.negative == b.negative && a.overflowed == b.overflowed &&
         (a.overflowed || a.magnitude == b.magnitude);
}

TEST(IntProduct, DoesNotDependOnTheOrder) {
  const std::vector<std::vector<std::int64_t>> cases = {
      {std::int64_t{1} << 40, 0, std::int64_t{1} << 40, -3},
      {std::int64_t{1} << 32, std::int64_t{1} << 31, -1, 1},
      {std::int64_t{1} << 32, std::int64_t{1} << 32, -1, -1},
      {INT64_MIN, -1, -1, 1},
      {INT64_MIN, INT64_MIN, 0, 5},
      {641, 6700417, 4294967297 / 641 / 6700417, 4294967295},  // 2^64 - 1
  };
  for (std::vector<std::int64_t> factors : cases) {
    std::sort(factors.begin(), factors.end());
    ProductOf<std::int64_t>::Local first;
    bool have_first = false;
    do {
      ProductOf<std::int64_t>::Local all;
      ProductOf<std::int64_t>::Local pairs[2];
      for (std::size_t i = 0; i < factors.size(); ++i) {
        ProductOf<std::int64_t>::Add(all, factors[i], 0);
        ProductOf<std::int64_t>::Add(pairs[i / 2], factors[i], 0);
      }
      ProductOf<std::int64_t>::Merge(pairs[0], pairs[1]);
      if (!have_first) first = all;
      have_first = true;
      EXPECT_TRUE(SameProduct(all, first));
      EXPECT_TRUE(SameProduct(pairs[0], first));
    } while (std::next_permutation(factors.begin(), factors.end()));
  }
}

TEST(IntProduct, KnowsWhetherTheMagnitudeReached2To64) {
  ProductOf<std::uint64_t>::Local product;
  ProductOf<std::uint64_t>::Add(product, 4294967297, 0);
  ProductOf<std::uint64_t>::Add(product, 4294967295, 0);
  EXPECT_FALSE(product.overflowed);
  EXPECT_EQ(product.magnitude, UINT64_MAX);
  ProductOf<std::uint64_t>::Add(product, 1, 0);
  EXPECT_FALSE(product.overflowed);
  ProductOf<std::uint64_t>::Add(product, 2, 0);
  EXPECT_TRUE(product.overflowed);
  EXPECT_EQ(product.wrapped, UINT64_MAX - 1);
}

// ---- moments

ReduceSpec MomentsSpec(DType dtype, std::int64_t count) {
  ReduceSpec spec;
  spec.dtype = dtype;
  spec.count = count;
  spec.ops = {Op::kVar, Op::kStd};
  return spec;
}

// Folds pieces of different lengths and merges them, from left to right or pairwise, against the reference.
void CheckMerges(DType dtype, const test::Bytes& array) {
  const auto count = static_cast<std::int64_t>(array.size()) / RowOf(dtype).bytes;
  const ReduceSpec spec = MomentsSpec(dtype, count);
  const test::Facts facts = test::Study(dtype, array.data(), count);
  for (const std::int64_t piece : {std::int64_t{1}, std::int64_t{7}, std::int64_t{64}, count / 2 + 1, count}) {
    SCOPED_TRACE(piece);
    std::vector<MomentsState> states;
    for (std::int64_t begin = 0; begin < count; begin += piece) {
      states.push_back(test::Fold(spec, array.data(), begin, std::min(begin + piece, count)).moments);
    }
    Partial left_to_right;
    left_to_right.count = count;
    for (const MomentsState& state : states) MergeMoments(left_to_right.moments, state);
    test::CheckAnswers(facts, spec, left_to_right);
    while (states.size() > 1) {
      std::vector<MomentsState> merged;
      for (std::size_t i = 0; i < states.size(); i += 2) {
        merged.push_back(states[i]);
        if (i + 1 < states.size()) MergeMoments(merged.back(), states[i + 1]);
      }
      states = merged;
    }
    Partial pairwise;
    pairwise.count = count;
    pairwise.moments = states[0];
    test::CheckAnswers(facts, spec, pairwise);
  }
}

TEST(Moments, MergesAgreeWithTheReference) {
  for (const DTypeRow& dtype : kDTypes) {
    for (const test::DataKindRow& kind : test::kDataKinds) {
      if (!dtype.is_float || !test::Applies(kind, dtype.dtype)) continue;
      SCOPED_TRACE(std::string(kind.name) + " " + std::string(dtype.name));
      CheckMerges(dtype.dtype, test::MakeData(kind.kind, dtype.dtype, 1000, 6));
      if (HasFailure()) return;
    }
  }
}

TEST(Moments, ASmallSpreadBesideALargeMeanIsKept) {
  // Mean 1e9, standard deviation 1e-3: the sum of squares alone would have lost all of its digits.
  std::mt19937_64 random(4);
  std::normal_distribution<double> normal(0, 1e-3);
  test::Bytes array(5000 * sizeof(double));
  for (std::int64_t i = 0; i < 5000; ++i) test::SetElement(DType::kF64, i, 1e9 + normal(random), &array);
  CheckMerges(DType::kF64, array);
  const test::Facts facts = test::Study(DType::kF64, array.data(), 5000);
  EXPECT_NEAR(std::sqrt(static_cast<double>(facts.variance_sum) / 5000), 1e-3, 1e-4);
}

TEST(Moments, EqualElementsHaveNoSpread) {
  for (const DTypeRow& dtype : kDTypes) {
    if (!dtype.is_float) continue;
    const test::Bytes array = test::MakeData(test::DataKind::kEqual, dtype.dtype, 999, 0);
    const ReduceSpec spec = MomentsSpec(dtype.dtype, 999);
    Partial partial = test::Fold(spec, array.data(), 0, 500);
    MergeMoments(partial.moments, test::Fold(spec, array.data(), 500, 999).moments);
    EXPECT_EQ(partial.moments.m2, 0) << dtype.name;
    EXPECT_EQ(partial.moments.count, 999);
  }
}

TEST(Moments, NothingIsTheIdentity) {
  MomentsState state;
  MergeMoments(state, MomentsState{});
  EXPECT_EQ(state.count, 0);
  const MomentsState some{.count = 3, .pivot = 5, .offset = 1, .m2 = 2};
  MergeMoments(state, some);
  MergeMoments(state, MomentsState{});
  EXPECT_EQ(state.count, 3);
  EXPECT_EQ(state.pivot + state.offset, 6);
  EXPECT_EQ(state.m2, 2);
}

// ---- all of them

TEST(Accumulators, FoldedInOneAnswerAsTheReference) {
  for (const DTypeRow& dtype : kDTypes) {
    for (const test::DataKindRow& kind : test::kDataKinds) {
      if (!test::Applies(kind, dtype.dtype)) continue;
      for (const std::int64_t count : {0, 1, 2, 3, 100, 1001}) {
        for (const NanPolicy policy : {NanPolicy::kPropagate, NanPolicy::kOmit}) {
          const test::Bytes array = test::MakeData(kind.kind, dtype.dtype, count, static_cast<std::uint64_t>(count));
          ReduceSpec spec = MomentsSpec(dtype.dtype, count);
          spec.ops = test::OpsOf(dtype.dtype);
          spec.nan_policy = policy;
          SCOPED_TRACE(test::Describe(spec, kind.name));
          test::CheckAnswers(test::Study(dtype.dtype, array.data(), count), spec,
                             test::Fold(spec, array.data(), 0, count));
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(Extrema, MergeInAnyOrderIsTheSame) {
  // Ties, both zeros and NaNs, in pieces of 3, merged in shuffled order.
  std::mt19937_64 random(5);
  const test::Bytes array = test::MakeData(test::DataKind::kSignedZeros, DType::kF32, 99, 2);
  ReduceSpec spec = MomentsSpec(DType::kF32, 99);
  spec.ops = {Op::kMin};
  const ExtremaState whole = test::Fold(spec, array.data(), 0, 99).extrema;
  std::vector<ExtremaState> pieces;
  for (std::int64_t begin = 0; begin < 99; begin += 3) {
    pieces.push_back(test::Fold(spec, array.data(), begin, begin + 3).extrema);
  }
  for (int round = 0; round < 20; ++round) {
    std::shuffle(pieces.begin(), pieces.end(), random);
    ExtremaState merged;
    for (const ExtremaState& piece : pieces) MergeExtrema(merged, piece);
    EXPECT_EQ(merged.min_key, whole.min_key);
    EXPECT_EQ(merged.max_key, whole.max_key);
    EXPECT_EQ(merged.min_index, whole.min_index);
    EXPECT_EQ(merged.max_index, whole.max_index);
    EXPECT_EQ(merged.nan_index, whole.nan_index);
  }
}

TEST(Extrema, TheLargestAndLowestKeysAreStillElements) {
  // An element whose key is that of the identity is found all the same.
  ExtremaOf<std::int64_t>::Local local;
  ExtremaOf<std::int64_t>::Add(local, INT64_MAX, 4);
  ExtremaState merged;
  MergeExtrema(merged, ExtremaOf<std::int64_t>::Settle(local));
  EXPECT_EQ(merged.min_index, 4);
  EXPECT_EQ(merged.max_index, 4);
  ExtremaOf<std::uint64_t>::Local zeros;
  ExtremaOf<std::uint64_t>::Add(zeros, 0, 6);
  merged = {};
  MergeExtrema(merged, ExtremaOf<std::uint64_t>::Settle(zeros));
  EXPECT_EQ(merged.max_index, 6);
  EXPECT_EQ(merged.min_index, 6);
}

}  // namespace
}  // namespace reduced
