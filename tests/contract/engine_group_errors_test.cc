// What reductions of segments, by keys and under masks answer where they have no answer.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/engine/memory_budget.h"
#include "tests/contract/answers.h"
#include "tests/contract/engine_fixture.h"
#include "tests/contract/partitions.h"
#include "tests/contract/shapes.h"
#include "tests/support/data.h"

namespace reduced::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class EngineGroupErrors : public EngineTest<EngineKind> {
 protected:
  // Of 10 rows of 2 i64.
  Reply Ask(const Partition& partition, std::vector<OpCall> ops = {Op::kSum}, EmptyPolicy empty = EmptyPolicy::kError) {
    ReduceSpec spec = Spec(DType::kI64, 20);
    spec.ops = std::move(ops);
    spec.empty_policy = empty;
    Partition asked = partition;
    asked.layout = LayoutOf(Shape{10, 2}, {true, false});
    asked.rows = 10;
    Job job{.spec = spec, .array = {array_.data()}};
    job.cancelled = cancelled_;
    return ReducePartition(engine(), job, asked);
  }
  template <class T>
  Partition SegmentsOf(const std::vector<T>& values, bool lengths = false) {
    bounds_ = BytesOf(values);
    return {.segments = Segments{SideOf(sizeof(T) == 4 ? DType::kI32 : DType::kI64, bounds_), lengths}};
  }
  Partition KeysOf(const std::vector<std::int16_t>& values, std::int64_t groups, bool drop = false) {
    bounds_ = BytesOf(values);
    return {.keys = Keys{SideOf(DType::kI16, bounds_), groups, drop}};
  }

  std::vector<std::int64_t> array_ = std::vector<std::int64_t>(20, std::int64_t{1} << 61);
  Bytes bounds_;
  CancelFlag cancelled_;
};

TEST_P(EngineGroupErrors, SegmentsWithinTheArray) {
  EXPECT_TRUE(Ask(SegmentsOf<std::int32_t>({0, 2, 3})).status.ok());
  EXPECT_TRUE(Ask(SegmentsOf<std::int64_t>({10})).status.ok());
  EXPECT_TRUE(Ask(SegmentsOf<std::int64_t>({}, true)).status.code() == absl::StatusCode::kInvalidArgument);
  const auto message = [&](const Partition& partition) { return std::string(Ask(partition).status.message()); };
  EXPECT_EQ(message(SegmentsOf<std::int32_t>({0, 3, 2, 10})),
            "segments.offsets[2]: got 2; allowed: 3 to 10, ascending within dimension 0");
  EXPECT_EQ(message(SegmentsOf<std::int64_t>({0, 3, 11})),
            "segments.offsets[2]: got 11; allowed: 3 to 10, ascending within dimension 0");
  EXPECT_EQ(message(SegmentsOf<std::int64_t>({-1, 3})),
            "segments.offsets[0]: got -1; allowed: 0 to 10, ascending within dimension 0");
  EXPECT_EQ(message(SegmentsOf<std::int64_t>({4, 7}, true)),
            "segments.lengths[1]: got 7; allowed: 0 to 6, what is left of dimension 0");
  EXPECT_EQ(message(SegmentsOf<std::int64_t>({4, -7}, true)),
            "segments.lengths[1]: got -7; allowed: 0 to 6, what is left of dimension 0");
  EXPECT_EQ(message(SegmentsOf<std::int64_t>({std::numeric_limits<std::int64_t>::max(), 1}, true)),
            "segments.lengths[0]: got 9223372036854775807; allowed: 0 to 10, what is left of dimension 0");
  EXPECT_EQ(message(SegmentsOf<std::int64_t>({4, 2}, true)),
            "segments.lengths: got a sum of 6; allowed: 10, the size of dimension 0");
}

TEST_P(EngineGroupErrors, KeysWithinTheirGroups) {
  const std::vector<std::int16_t> keys = {0, 1, 2, 0, 1, 3, 0, -1, 2, 1};
  EXPECT_EQ(Ask(KeysOf(keys, 3)).status.message(), "keys[5]: got 3; allowed: 0 to 2, or outside: DROP");
  EXPECT_EQ(Ask(KeysOf(keys, 3)).status.code(), absl::StatusCode::kOutOfRange);
  const Reply dropped = Ask(KeysOf(keys, 3, true), {Op::kCount});
  ASSERT_TRUE(dropped.status.ok());
  std::uint64_t counts[6];
  std::memcpy(counts, dropped.answers->data[0], sizeof counts);
  EXPECT_THAT(counts, ElementsAre(3, 3, 3, 3, 2, 2));
  EXPECT_THAT(dropped.keys, IsEmpty());
  const Reply found = Ask(KeysOf(keys, 0), {Op::kCount});
  EXPECT_THAT(found.keys, ElementsAre(-1, 0, 1, 2, 3));
}

// Wherever it is in a large array, by whatever way its rows are grouped.
TEST_P(EngineGroupErrors, TheFirstKeyOutsideIsNamed) {
  const std::vector<float> array(400'000, 1);
  const auto expect = [&]<class Key>(std::vector<Key> keys, DType dtype, Key outside, const std::string& name) {
    keys[399'999] = keys[250'001] = static_cast<Key>(50);
    keys[250'000] = outside;
    const Bytes side = BytesOf(keys);
    for (const Op op : {Op::kSum, Op::kMax, Op::kBitXor}) {
      ReduceSpec spec = Spec(op == Op::kBitXor ? DType::kI32 : DType::kF32, std::ssize(array));
      spec.ops = {op};
      Partition partition{.layout = LayoutOf(Shape{std::ssize(array)}, {true}),
                          .rows = std::ssize(array),
                          .keys = Keys{SideOf(dtype, side), 50}};
      EXPECT_EQ(ReducePartition(engine(), {.spec = spec, .array = {array.data()}}, partition).status,
                absl::OutOfRangeError("keys[250000]: got " + name + "; allowed: 0 to 49, or outside: DROP"));
      partition.keys->drop = true;
      EXPECT_TRUE(ReducePartition(engine(), {.spec = spec, .array = {array.data()}}, partition).status.ok());
    }
  };
  std::vector<std::int32_t> keys(array.size());
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<std::int32_t>(i % 50);
  expect(keys, DType::kI32, -7, "-7");
  expect(std::vector<std::int8_t>(keys.begin(), keys.end()), DType::kI8, std::int8_t{-128}, "-128");
  expect(std::vector<std::uint64_t>(keys.begin(), keys.end()), DType::kU64, std::uint64_t{1} << 32, "4294967296");
}

TEST_P(EngineGroupErrors, TheFirstOutputIsNamed) {
  const Reply overflow = Ask(SegmentsOf<std::int32_t>({0, 2, 9, 10}));
  EXPECT_TRUE(absl::IsOutOfRange(overflow.status));
  EXPECT_THAT(std::string(overflow.status.message()), StartsWith("output [1, 0]: integer overflow: the sum"));
  const Reply empty = Ask(SegmentsOf<std::int32_t>({0, 2, 2, 3, 3}), {Op::kArgmin});
  EXPECT_TRUE(absl::IsInvalidArgument(empty.status));
  EXPECT_THAT(std::string(empty.status.message()),
              StartsWith("output [1, 0]: op argmin: got an empty array; allowed: at least 1 element"));
  EXPECT_TRUE(Ask(SegmentsOf<std::int32_t>({0, 2, 2, 3, 3}), {Op::kArgmin}, EmptyPolicy::kFill).status.ok());
}

TEST_P(EngineGroupErrors, StopWhenTheAnswerIsNotWanted) {
  cancelled_ = std::make_shared<std::atomic<bool>>(true);
  EXPECT_TRUE(absl::IsCancelled(Ask(SegmentsOf<std::int32_t>({0, 2})).status));
}

// Of many outputs one alone has an error.
TEST_P(EngineGroupErrors, OverflowInOneOutput) {
  std::vector<std::int64_t> array(6000, 5);
  array[3001] = array[3002] = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int32_t> bounds;
  for (int i = 0; i <= 1500; ++i) bounds.push_back(4 * i);
  const Bytes side = BytesOf(bounds);
  ReduceSpec spec = Spec(DType::kI64, 6000);
  for (const std::vector<OpCall>& ops :
       {std::vector<OpCall>{Op::kSum}, {Op::kSum, Op::kMax}, {Op::kMax, Op::kSumSquares}}) {
    spec.ops = ops;
    const Partition partition{
        .layout = LayoutOf(Shape{6000}, {true}), .rows = 6000, .segments = Segments{SideOf(DType::kI32, side)}};
    const Reply reply = ReducePartition(engine(), {.spec = spec, .array = {array.data()}}, partition);
    EXPECT_TRUE(absl::IsOutOfRange(reply.status)) << reply.status;
    EXPECT_THAT(std::string(reply.status.message()), StartsWith("output [750]: integer overflow"));
  }
}

// Between finding groups and answering for them.
TEST_P(EngineGroupErrors, CancelledMidway) {
  const std::vector<float> array(500'000, 1);
  std::vector<std::int32_t> keys(array.size());
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<std::int32_t>(i % 5000);
  const Bytes side = BytesOf(keys);
  for (const auto& [op, number] : {std::pair(Op::kSum, 0), {Op::kStd, 0}, {Op::kSum, 5000}, {Op::kMax, 5000}}) {
    if (number > 0 && kind() == EngineKind::kCpu) continue;  // which places answers once they are known
    ReduceSpec spec = Spec(DType::kF32, std::ssize(array));
    spec.ops = {op};
    const auto cancelled = std::make_shared<std::atomic<bool>>(false);
    Job job{.spec = spec, .array = {array.data()}, .cancelled = cancelled};
    const Partition partition{.layout = LayoutOf(Shape{std::ssize(array)}, {true}),
                              .rows = std::ssize(array),
                              .keys = Keys{SideOf(DType::kI32, side), number}};
    Answers answers(spec, 5000);
    job.partition = partition;
    job.place = [&](std::int64_t, std::int64_t, const std::byte*) {
      *cancelled = true;
      return answers.data;
    };
    const absl::Status status = ReduceAndWait(engine(), job).status();
    EXPECT_TRUE(absl::IsCancelled(status)) << status;
    EXPECT_TRUE(answers.GuardsStand());
  }
}

// Tables by key would take more memory than there is; sorting the rows takes less.
TEST_P(EngineGroupErrors, NoRoomForTables) {
  const bool on_cpu = kind() == EngineKind::kCpu;
  EngineOptions options = Options();
  if (on_cpu) options.memory = std::make_shared<MemoryBudget>(std::int64_t{3} << 20);
  if (!on_cpu) options.cuda_array_bytes = 15'000'000;
  const Started own = StartOwn(options);
  constexpr std::int64_t kRows = 100'000;
  const std::int64_t groups = on_cpu ? kRows : 1'000'000;  // one has a row if it is below kRows
  const std::vector<float> array(kRows, 1);
  std::vector<std::int32_t> keys(kRows);
  for (std::int64_t row = 0; row < kRows; ++row) {
    keys[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(kRows - 1 - row);
  }
  ReduceSpec spec = Spec(DType::kF32, kRows);
  spec.ops = {Op::kSum};
  const Bytes bytes = BytesOf(keys);
  const Partition keyed{
      .layout = LayoutOf(Shape{kRows}, {true}), .rows = kRows, .keys = Keys{SideOf(DType::kI32, bytes), groups}};
  const Reply reply = ReducePartition(*own.engine, {.spec = spec, .array = {array.data()}}, keyed);
  ASSERT_TRUE(reply.status.ok()) << reply.status;
  ASSERT_EQ(reply.outputs, groups);
  std::vector<double> sums(static_cast<std::size_t>(groups)), expected(sums.size(), 0);
  std::memcpy(sums.data(), reply.answers->data[0], sums.size() * sizeof(double));
  std::fill_n(expected.begin(), kRows, 1);
  EXPECT_EQ(sums, expected);
  EXPECT_EQ(on_cpu ? options.memory->taken() : own.engine->info().array_bytes, 0);
}

TEST_P(EngineGroupErrors, SidesOfAnotherDevice) {
  Partition partition = SegmentsOf<std::int32_t>({0, 10});
  partition.segments->bounds.array.space = MemorySpace::kDevice;
  partition.segments->bounds.array.device = 77;
  const Reply reply = Ask(partition);
  EXPECT_TRUE(absl::IsFailedPrecondition(reply.status)) << reply.status;
  EXPECT_THAT(std::string(reply.status.message()),
              StartsWith("segments.offsets: got an array in the memory of cuda:77 for the engine of"));
}

TEST_P(EngineGroupErrors, WhatPlaceSaysIsTheAnswer) {
  bounds_ = BytesOf(std::vector<std::int32_t>{0, 10});
  ReduceSpec spec = Spec(DType::kI64, 20);
  const Partition partition{
      .layout = LayoutOf(Shape{10, 2}, {true, false}), .rows = 10, .segments = Segments{SideOf(DType::kI32, bounds_)}};
  const auto place = [](std::int64_t, std::int64_t, const std::byte*) {
    return absl::ResourceExhaustedError("no room");
  };
  const Job job{.spec = spec, .array = {array_.data()}, .partition = partition, .place = place};
  EXPECT_EQ(ReduceAndWait(engine(), job).status(), absl::ResourceExhaustedError("no room"));
}

REDUCED_INSTANTIATE_BY_KIND(EngineGroupErrors);

}  // namespace
}  // namespace reduced::test
