#include "kernels/algebra/state.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/algebra/finalize.h"
#include "kernels/engine/engine.h"
#include "kernels/exact/answers.h"
#include "tests/support/fold.h"

namespace reduced {
namespace {

const ReduceSpec kSpec{.dtype = DType::kF64,
                       .count = 6,
                       .ops = {Op::kSum, Op::kMax, Op::kArgmax, Op::kVar},
                       .precision = Precision::kExact};
const std::vector<double> kElements = {1e300, 1, -1e300, 5, 5, 0x1p-1074};

// The state of elements [begin, end), whose indexes count from `begin`.
State StateOf(std::int64_t begin, std::int64_t end) {
  State state = test::Fold(kSpec, kElements.data() + begin, 0, end - begin);
  state.exact = std::make_unique<ExactSums>();
  for (std::int64_t i = begin; i < end; ++i) {
    Add(kElements[static_cast<std::size_t>(i)], ExactAccumulatorsFor(kSpec), false, state.exact.get());
  }
  return state;
}

std::vector<Value> Answers(const State& state) {
  const absl::StatusOr<std::vector<Value>> values = Finalize(kSpec, state);
  EXPECT_TRUE(values.ok()) << values.status().ToString();
  return values.value_or(std::vector<Value>());
}

TEST(StateTest, PartsCombineIntoTheWhole) {
  const std::vector<Value> whole = Answers(StateOf(0, 6));
  EXPECT_EQ(std::get<double>(whole[0].value), 11);
  EXPECT_EQ(std::get<std::uint64_t>(whole[2].value), 0U);
  for (std::int64_t first = 0; first <= 6; ++first) {
    for (std::int64_t second = first; second <= 6; ++second) {
      State combined;
      for (const auto& [begin, end] : {std::pair{std::int64_t{0}, first}, {first, second}, {second, std::int64_t{6}}}) {
        State part = StateOf(begin, end);
        Shift(begin, &part);
        Combine(part, &combined);
      }
      EXPECT_EQ(combined.partial.count, 6);
      EXPECT_EQ(Answers(combined), whole) << first << ", " << second;
    }
  }
}

TEST(StateTest, ShiftMovesOnlyIndexesThatThereAre) {
  State state;
  state.partial.extrema.min_index = 0;
  state.partial.extrema.max_index = 5;
  Shift(1'000'000'000'000, &state);
  EXPECT_EQ(state.partial.extrema.min_index, 1'000'000'000'000);
  EXPECT_EQ(state.partial.extrema.max_index, 1'000'000'000'005);
  EXPECT_EQ(state.partial.extrema.nan_index, kNoIndex);
  state.partial.extrema.nan_index = 3;
  Shift(4, &state);
  EXPECT_EQ(state.partial.extrema.nan_index, 7);
}

TEST(StateTest, CopiesAreIndependent) {
  const State one = StateOf(1, 2);
  State two = one;
  Combine(one, &two);
  EXPECT_EQ(ExactAnswer(kSpec, Op::kSum, 1, *one.exact), 1);
  EXPECT_EQ(ExactAnswer(kSpec, Op::kSum, 2, *two.exact), 2);
  two = one;
  EXPECT_TRUE(*two.exact == *one.exact);
  EXPECT_NE(two.exact.get(), one.exact.get());
}

TEST(AnswerTest, CombiningSumsTheStagesThatHappened) {
  Answer first;
  first.timing.kernel_us = 1;
  first.timing.queue_us = 0;
  Answer second;
  second.state = StateOf(0, 6);
  second.timing.kernel_us = 2;
  second.timing.host_copy_us = 4;
  second.ran.pipeline = "second";
  Combine(second, &first);
  EXPECT_EQ(first.timing.kernel_us, 3);
  EXPECT_EQ(first.timing.queue_us, 0);
  EXPECT_EQ(first.timing.host_copy_us, 4);
  EXPECT_EQ(first.timing.device_to_host_us, std::nullopt);
  EXPECT_EQ(first.ran.pipeline, "second");
  EXPECT_EQ(first.state.partial.count, 6);
  EXPECT_TRUE(*first.state.exact == *second.state.exact);
}

}  // namespace
}  // namespace reduced
