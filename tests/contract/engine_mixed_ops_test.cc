// Ops of several kinds in one request by keys: each has the answer that it has alone, byte for byte, and the same
// error.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/pipelines.h"
#include "tests/contract/engine_fixture.h"
#include "tests/contract/partitions.h"
#include "tests/support/data.h"
#include "tests/support/runs.h"

namespace reduced::test {
namespace {

// Rows by key: of many groups, of which some have no row, or of few.
struct KeyedShape {
  std::string name;
  std::int64_t rows;
  std::int64_t columns;
  std::int32_t groups;
};
const KeyedShape kKeyedShapes[] = {
    {"few groups", 997, 1, 5}, {"many groups", 1000, 1, 300}, {"columns", 300, 3, 7}, {"one row", 1, 1, 2}};

std::vector<OpCall> MixedCalls(DType dtype) {
  std::vector<OpCall> calls = {Op::kSum,
                               Op::kMax,
                               Op::kMedian,
                               Op::kVar,
                               Op::kDistinct,
                               Op::kMean,
                               {Op::kTopK, {.k = 2}},
                               Op::kArgmin,
                               {Op::kQuantile, {.quantiles = {0.25, 1}, .method = QuantileMethod::kLower}},
                               Op::kCount,
                               {Op::kHistogram, {.edges = {-1, 0, 1, 100}}},
                               Op::kNanCount,
                               {Op::kArgBottomK, {.k = 1}},
                               Op::kRange,
                               Op::kDistinctExact,
                               Op::kAny};
  if (!RowOf(dtype).is_float) calls.push_back(Op::kBitXor);
  if (RowOf(dtype).bytes <= 2) calls.insert(calls.begin() + 3, Op::kMode);
  return calls;
}

class EngineMixedOpsTest : public EngineTest<KindAndDType> {
 protected:
  DType dtype() const { return std::get<DType>(GetParam()); }

  // Compares all ops together with each alone. `given`: the groups are all keys from 0 on, else the keys that occur.
  void Check(const KeyedShape& shape, bool given, bool masked, DataKind data, ReduceSpec spec) const {
    spec.count = shape.rows * shape.columns;
    std::vector<std::int32_t> numbers;
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      numbers.push_back(static_cast<std::int32_t>(row * 7919 % 10'007 % shape.groups));
    }
    std::vector<std::uint8_t> mask;
    for (std::int64_t i = 0; i < spec.count; ++i) mask.push_back(i % 4 != 1 ? 1 : 0);
    const Bytes keys = BytesOf(numbers), there = BytesOf(mask);
    const Bytes array = MakeData(data, dtype(), spec.count, /*seed=*/9);
    Partition partition;
    const std::vector<std::int64_t> dimensions = {shape.rows, shape.columns};
    partition.layout = LayoutOf(dimensions, {true, false});
    partition.rows = shape.rows;
    partition.keys = Keys{.keys = SideOf(DType::kI32, keys), .groups = given ? shape.groups + 1 : 0};
    if (masked) partition.mask = Mask{.array = SideOf(DType::kBool, there)};
    const auto reduce = [&](std::vector<OpCall> calls, std::vector<absl::Status>* errors) {
      spec.ops = std::move(calls);
      return ReducePartition(engine(), {.spec = spec, .array = {array.data()}, .errors = errors}, partition);
    };
    const std::string what = shape.name + (given ? ", given" : ", found") + (masked ? ", masked" : "") + ", data " +
                             std::to_string(static_cast<int>(data)) + ", policy " +
                             std::to_string(static_cast<int>(spec.nan_policy));
    const std::vector<OpCall> calls = MixedCalls(dtype());
    std::vector<absl::Status> errors;
    const Reply together = reduce(calls, &errors);
    ASSERT_EQ(together.status, absl::OkStatus()) << what;
    errors.resize(calls.size());
    for (std::size_t i = 0; i < calls.size(); ++i) {
      std::vector<absl::Status> error;
      const Reply alone = reduce({calls[i]}, &error);
      ASSERT_EQ(alone.status, absl::OkStatus()) << what << ", " << RowOf(calls[i]).name;
      error.resize(1);
      ASSERT_EQ(errors[i], error[0]) << what << ", " << RowOf(calls[i]).name;
      ASSERT_EQ(together.outputs, alone.outputs) << what;
      ASSERT_EQ(together.keys, alone.keys) << what;
      if (!error[0].ok()) continue;
      const std::int64_t bytes = alone.outputs * AnswerElements(calls[i]) * RowOf(ResultDType(calls[i], dtype())).bytes;
      ASSERT_EQ(std::memcmp(together.answers->data[i], alone.answers->data[0], static_cast<std::size_t>(bytes)), 0)
          << what << ", " << RowOf(calls[i]).name;
    }
  }

  ReduceSpec MixedSpec(NanPolicy policy, EmptyPolicy empty, OverflowPolicy overflow) const {
    ReduceSpec spec = Spec(dtype(), 0);
    spec.nan_policy = policy;
    spec.empty_policy = empty;
    spec.overflow_policy = overflow;
    spec.ddof = 1;
    return spec;
  }
};

TEST_P(EngineMixedOpsTest, EachOpAnswersAsAlone) {
  for (const KeyedShape& shape : kKeyedShapes) {
    for (const DataKind data : {DataKind::kFull, DataKind::kSmall, DataKind::kSomeNan, DataKind::kSignedZeros}) {
      if (!Applies(kDataKinds[static_cast<int>(data)], dtype())) continue;
      for (const NanPolicy policy : {NanPolicy::kPropagate, NanPolicy::kOmit}) {
        for (const bool given : {true, false}) {
          // Small data has no further cases.
          const bool masked = data != DataKind::kSmall && shape.groups < 100;
          Check(shape, given, masked, data, MixedSpec(policy, EmptyPolicy::kFill, OverflowPolicy::kWrap));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// An op that a group has no answer to takes no other with it: sums that do not fit, and extrema of no element.
TEST_P(EngineMixedOpsTest, EachOpHasTheErrorThatItHasAlone) {
  for (const KeyedShape& shape : kKeyedShapes) {
    for (const DataKind data : {DataKind::kLarge, DataKind::kSmall, DataKind::kAllNan}) {
      if (!Applies(kDataKinds[static_cast<int>(data)], dtype())) continue;
      for (const bool given : {true, false}) {
        Check(shape, given, /*masked=*/true, data,
              MixedSpec(NanPolicy::kOmit, EmptyPolicy::kError, OverflowPolicy::kError));
        if (HasFatalFailure()) return;
      }
    }
  }
}

REDUCED_INSTANTIATE_BY_KIND_AND_DTYPE(EngineMixedOpsTest);

}  // namespace
}  // namespace reduced::test
