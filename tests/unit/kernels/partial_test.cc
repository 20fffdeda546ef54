#include "kernels/algebra/partial.h"

#include <algorithm>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/data.h"
#include "tests/support/fold.h"
#include "tests/support/oracle.h"
#include "tests/support/runs.h"

namespace reduced {
namespace {

static_assert(std::is_trivially_copyable_v<Partial>);
static_assert(std::is_standard_layout_v<Partial>);

// Everything in `a` that no order of combining may change.
void ExpectSameExactFields(const Partial& a, const Partial& b) {
  EXPECT_EQ(a.count, b.count);
  EXPECT_TRUE(a.int_sum == b.int_sum);
  EXPECT_TRUE(a.int_abs_sum == b.int_abs_sum);
  for (int word = 0; word < 3; ++word) EXPECT_EQ(a.int_sum_squares.word[word], b.int_sum_squares.word[word]);
  EXPECT_EQ(a.moments.count, b.moments.count);
  EXPECT_EQ(a.int_product.wrapped, b.int_product.wrapped);
  EXPECT_EQ(a.int_product.zero, b.int_product.zero);
  EXPECT_EQ(a.int_product.negative, b.int_product.negative);
  EXPECT_EQ(a.int_product.overflowed, b.int_product.overflowed);
  EXPECT_EQ(a.extrema.min_key, b.extrema.min_key);
  EXPECT_EQ(a.extrema.max_key, b.extrema.max_key);
  EXPECT_EQ(a.extrema.min_index, b.extrema.min_index);
  EXPECT_EQ(a.extrema.max_index, b.extrema.max_index);
  EXPECT_EQ(a.extrema.nan_index, b.extrema.nan_index);
  EXPECT_EQ(a.bits_and, b.bits_and);
  EXPECT_EQ(a.bits_or, b.bits_or);
  EXPECT_EQ(a.bits_xor, b.bits_xor);
  EXPECT_EQ(a.nonzero, b.nonzero);
  EXPECT_EQ(a.nan, b.nan);
}

class CombineTest : public ::testing::TestWithParam<DType> {
 protected:
  static ReduceSpec Spec(std::int64_t count, NanPolicy policy) {
    ReduceSpec spec;
    spec.dtype = GetParam();
    spec.count = count;
    spec.ops = test::OpsOf(GetParam());
    spec.nan_policy = policy;
    return spec;
  }
};

TEST_P(CombineTest, AnySplitIsTheWhole) {
  static const std::int64_t kCount = 61, kStep = test::kSlowBuild ? 15 : 1;
  for (const test::DataKindRow& kind : test::kDataKinds) {
    if (!test::Applies(kind, GetParam())) continue;
    const test::Bytes array = test::MakeData(kind.kind, GetParam(), kCount, 8);
    const test::Facts facts = test::Study(GetParam(), array.data(), kCount);
    for (const NanPolicy policy : {NanPolicy::kPropagate, NanPolicy::kOmit}) {
      const ReduceSpec spec = Spec(kCount, policy);
      SCOPED_TRACE(test::Describe(spec, kind.name));
      const Partial whole = test::Fold(spec, array.data(), 0, kCount);
      for (std::int64_t split = 0; split <= kCount; split += kStep) {
        Partial combined = test::Fold(spec, array.data(), 0, split);
        Combine(test::Fold(spec, array.data(), split, kCount), &combined);
        ExpectSameExactFields(combined, whole);
        test::CheckAnswers(facts, spec, combined);
        if (HasFailure()) FAIL() << "split at " << split;
      }
    }
  }
}

TEST_P(CombineTest, ManyPiecesInAnyGrouping) {
  constexpr std::int64_t kCount = 2000;
  std::mt19937_64 random(7);
  const test::DataKind kind = RowOf(GetParam()).is_float ? test::DataKind::kSomeNan : test::DataKind::kFull;
  const test::Bytes array = test::MakeData(kind, GetParam(), kCount, 8);
  const test::Facts facts = test::Study(GetParam(), array.data(), kCount);
  const ReduceSpec spec = Spec(kCount, NanPolicy::kOmit);
  const Partial whole = test::Fold(spec, array.data(), 0, kCount);
  for (int round = 0; round < 5; ++round) {
    std::vector<Partial> pieces;
    for (std::int64_t begin = 0; begin < kCount;) {
      const std::int64_t end = std::min(kCount, begin + static_cast<std::int64_t>(random() % 100));
      pieces.push_back(test::Fold(spec, array.data(), begin, end));
      begin = end;
    }
    while (pieces.size() > 1) {  // any two neighbours
      const std::size_t i = random() % (pieces.size() - 1);
      Combine(pieces[i + 1], &pieces[i]);
      pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    }
    ExpectSameExactFields(pieces[0], whole);
    test::CheckAnswers(facts, spec, pieces[0]);
  }
}

TEST_P(CombineTest, AnEmptyStretchChangesNothing) {
  const test::Bytes array = test::MakeData(test::DataKind::kUniform, GetParam(), 20, 8);
  const ReduceSpec spec = Spec(20, NanPolicy::kPropagate);
  const test::Facts facts = test::Study(GetParam(), array.data(), 20);
  Partial before;
  Combine(test::Fold(spec, array.data(), 0, 20), &before);
  Combine(Partial{}, &before);
  ExpectSameExactFields(before, test::Fold(spec, array.data(), 0, 20));
  test::CheckAnswers(facts, spec, before);
}

std::vector<DType> AllDTypes() {
  std::vector<DType> all;
  for (const DTypeRow& row : kDTypes) all.push_back(row.dtype);
  return all;
}

INSTANTIATE_TEST_SUITE_P(DTypes, CombineTest, ::testing::ValuesIn(AllDTypes()),
                         [](const auto& info) { return std::string(RowOf(info.param).name); });

}  // namespace
}  // namespace reduced
