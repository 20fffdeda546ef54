// Precision::kExact on an engine: the state that element by element comes to, to the bit, whatever the array; beside
// other ops; and answers as the schoolbook has them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/algebra/finalize.h"
#include "kernels/exact/answers.h"
#include "tests/contract/engine_fixture.h"
#include "tests/support/data.h"
#include "tests/support/exact_oracle.h"
#include "tests/support/oracle.h"

namespace reduced {
namespace {

using test::Bytes;
using test::NameOfKind;

const std::vector<DType> kFloats = {DType::kF16,    DType::kBF16,   DType::kF32,   DType::kF64,
                                    DType::kF8E4M3, DType::kF8E5M2, DType::kF8E8M0};
const std::vector<OpCall> kExactOps = {Op::kSum, Op::kMean, Op::kL1, Op::kSumSquares, Op::kL2, Op::kVar, Op::kStd};

std::vector<double> ElementsOf(DType dtype, const Bytes& array) {
  return VisitDType(dtype, [&]<class T>(std::type_identity<T>) {
    std::vector<double> elements;
    if constexpr (kIsFloat<T>) {
      for (std::size_t i = 0; i < array.size(); i += sizeof(T)) {
        T x;
        std::memcpy(&x, array.data() + i, sizeof(T));
        elements.push_back(ToDouble(x));
      }
    }
    return elements;
  });
}

ExactSums SumsOf(const std::vector<double>& elements, AccumulatorSet set) {
  ExactSums sums;
  for (const double x : elements) Add(x, set, /*elsewhere=*/false, &sums);
  return sums;
}

template <class Param>
class ExactFixture : public test::EngineTest<Param> {
 protected:
  ReduceSpec ExactSpec(DType dtype, std::int64_t count, std::vector<OpCall> ops) const {
    ReduceSpec spec = this->Spec(dtype, count);
    spec.ops = std::move(ops);
    spec.precision = Precision::kExact;
    return spec;
  }

  void ExpectSums(DType dtype, const Bytes& array, const std::vector<OpCall>& ops, const std::string& what) const {
    const std::int64_t count = static_cast<std::int64_t>(array.size()) / RowOf(dtype).bytes;
    const ReduceSpec spec = ExactSpec(dtype, count, ops);
    const absl::StatusOr<Answer> result = test::ReduceAndWait(this->engine(), {.spec = spec, .array = {array.data()}});
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    ASSERT_NE(result->state.exact, nullptr);
    if (count > 0) {
      EXPECT_GT(result->timing.kernel_us.value_or(0), 0);
    }
    EXPECT_TRUE(*result->state.exact == SumsOf(ElementsOf(dtype, array), ExactAccumulatorsFor(spec)))
        << RowOf(dtype).name << "[" << count << "] " << what << ", " << RowOf(ops.front()).name << " and "
        << ops.size() - 1 << " more";
  }
};

class EngineExactTest : public ExactFixture<EngineKind> {};

TEST_P(EngineExactTest, GivesTheSameSumsAsElementByElement) {
  const std::int64_t large = test::kSlowBuild ? 40'001 : 300'001;
  for (const DType dtype : kFloats) {
    for (const test::DataKindRow& kind : test::kDataKinds) {
      for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1}, std::int64_t{33}, std::int64_t{8193}, large}) {
        const Bytes array = test::MakeData(kind.kind, dtype, count, static_cast<std::uint64_t>(count));
        ExpectSums(dtype, array, kExactOps, std::string(kind.name));
        if (count != large) continue;
        for (const Op op : {Op::kSum, Op::kL1, Op::kL2}) ExpectSums(dtype, array, {op}, std::string(kind.name));
      }
    }
  }
}

// Denormals that threads would lose if they flushed them; cancellation across chunks and threads.
TEST_P(EngineExactTest, LosesNothing) {
  std::vector<double> elements(200'000, 0x1p-1074);
  elements.front() = 1e300;
  elements.back() = -1e300;
  const ReduceSpec spec = ExactSpec(DType::kF64, 200'000, {Op::kSum, Op::kMean});
  const absl::StatusOr<Answer> result = test::ReduceAndWait(engine(), {.spec = spec, .array = {elements.data()}});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  const absl::StatusOr<std::vector<Value>> values = Finalize(spec, result->state);
  ASSERT_TRUE(values.ok());
  EXPECT_EQ(std::get<double>(values->at(0).value), 199'998 * 0x1p-1074);
  EXPECT_EQ(std::get<double>(values->at(1).value), 0x1p-1074);
}

TEST_P(EngineExactTest, GivesTheSameBitsInAnyOrder) {
  std::mt19937_64 random(1);
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    Bytes array = test::MakeData(test::DataKind::kFull, dtype, 50'000, 4);
    const std::size_t width = static_cast<std::size_t>(RowOf(dtype).bytes);
    const ReduceSpec spec = ExactSpec(dtype, 50'000, kExactOps);
    std::optional<ExactSums> first;
    for (int run = 0; run < 5; ++run) {
      const absl::StatusOr<Answer> result = test::ReduceAndWait(engine(), {.spec = spec, .array = {array.data()}});
      ASSERT_TRUE(result.ok()) << result.status().ToString();
      if (!first.has_value()) first = *result->state.exact;
      EXPECT_TRUE(*result->state.exact == *first);
      for (std::size_t i = 1; i < 50'000; ++i) {  // in another order
        const std::size_t j = random() % (i + 1);
        if (j != i) std::swap_ranges(&array[i * width], &array[i * width] + width, &array[j * width]);
      }
    }
  }
}

TEST_P(EngineExactTest, AnswersAsTheSchoolbookDoesBesideOtherOps) {
  for (const DType dtype : kFloats) {
    for (const test::DataKindRow& kind : test::kDataKinds) {
      for (const NanPolicy policy : {NanPolicy::kPropagate, NanPolicy::kOmit}) {
        const std::int64_t count = 100;
        const Bytes array = test::MakeData(kind.kind, dtype, count, 9);
        const std::vector<double> elements = ElementsOf(dtype, array);
        const test::Facts facts = test::Study(dtype, array.data(), count);
        ReduceSpec spec = ExactSpec(dtype, count, test::OpsOf(dtype));
        spec.nan_policy = policy;
        if (policy == NanPolicy::kOmit && kind.kind == test::DataKind::kAllNan) spec.ops = kExactOps;
        const absl::StatusOr<Answer> result = test::ReduceAndWait(engine(), {.spec = spec, .array = {array.data()}});
        ASSERT_TRUE(result.ok()) << result.status().ToString();
        const absl::StatusOr<std::vector<Value>> values = Finalize(spec, result->state);
        ASSERT_TRUE(values.ok()) << values.status().ToString();
        for (std::size_t i = 0; i < spec.ops.size(); ++i) {
          const Op op = spec.ops[i];
          const Value& got = values->at(i);
          const std::string what = test::Describe(spec, kind.name) + ", " + std::string(RowOf(op).name);
          if (IsExactOp(op, dtype)) {
            const Value expected{DType::kF64, test::ExactlyBySchoolbook(op, elements, policy, spec.ddof)};
            EXPECT_TRUE(test::SameBits(got, expected))
                << what << ": " << test::ToString(got) << ", not " << test::ToString(expected);
          } else {
            EXPECT_EQ(test::Mismatch(test::Expect(facts, spec, op), got), "") << what;
          }
        }
      }
    }
  }
}

TEST_P(EngineExactTest, LeavesIntegersAsTheyAre) {
  const std::vector<std::int32_t> array = {3, -1, 4};
  const absl::StatusOr<Answer> result =
      test::ReduceAndWait(engine(), {.spec = ExactSpec(DType::kI32, 3, {Op::kSum, Op::kVar}), .array = {array.data()}});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->state.exact, nullptr);
  EXPECT_EQ(static_cast<std::int64_t>(result->state.partial.int_sum), 6);
}

REDUCED_INSTANTIATE_BY_KIND(EngineExactTest);

class EngineExactAlone : public ExactFixture<test::KindAndDType> {};

// As kernels of one sum do by themselves, which tell their own time: of one block, and of several.
TEST_P(EngineExactAlone, TakesOneSum) {
  const DType dtype = std::get<DType>(GetParam());
  for (const std::int64_t count : {1, 100, 5'000, 100'003}) {
    const Bytes array = test::MakeData(test::DataKind::kFull, dtype, count, 3);
    for (const Op op : {Op::kSum, Op::kL1, Op::kL2, Op::kVar}) ExpectSums(dtype, array, {op}, "full");
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, EngineExactAlone,
                         ::testing::Combine(::testing::Values(EngineKind::kCpu), ::testing::ValuesIn(kFloats)),
                         test::NameOfDType);
INSTANTIATE_TEST_SUITE_P(Cuda, EngineExactAlone,
                         ::testing::Combine(::testing::Values(EngineKind::kCuda), ::testing::ValuesIn(kFloats)),
                         test::NameOfDType);

}  // namespace
}  // namespace reduced
