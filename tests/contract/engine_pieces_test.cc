// Segments, keys and masks of arrays in host memory for which a GPU has no room: it takes them in pieces, and answers
// what the CPU engine does, bit for bit.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/algebra/finalize.h"
#include "kernels/engine/memory_budget.h"
#include "kernels/exact/answers.h"
#include "tests/contract/answers.h"
#include "tests/contract/engine_fixture.h"
#include "tests/contract/partitions.h"
#include "tests/contract/shapes.h"
#include "tests/support/data.h"

namespace reduced::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::int64_t kRows = 30'000;  // each of some hundred pieces takes a GPU milliseconds

class EnginePieces : public EngineTest<KindAndDType> {
 protected:
  DType dtype() const { return std::get<DType>(GetParam()); }

  // An engine whose arrays may take so many bytes; the memory of a lane has 16 KiB.
  Started StartSmall(std::int64_t array_bytes, std::shared_ptr<MemoryBudget> memory = nullptr) const {
    EngineOptions options = Options();
    options.cuda_array_bytes = array_bytes;
    options.memory = std::move(memory);
    return StartOwn(options);
  }
  // Two of them: one has pieces in the memory of its lane alone.
  void StartBoth() {
    for (const std::int64_t bytes : {1'000, 24'000}) {
      small_.push_back(StartSmall(bytes));
      ASSERT_NE(small_.back().engine, nullptr);
    }
  }

  ReduceSpec SpecFor(const Shape& shape) const {
    ReduceSpec spec = Spec(dtype(), CountOf(shape));
    spec.overflow_policy = OverflowPolicy::kWrap;
    spec.empty_policy = EmptyPolicy::kFill;
    spec.precision = Precision::kExact;
    return spec;
  }

  // Asks both, and the CPU engine. With and without masks, for several ops.
  void Check(const Shape& shape, const std::vector<int>& axes, const Partition& partition) {
    const std::int64_t count = CountOf(shape);
    std::vector<std::vector<OpCall>> sets = {{Op::kSum, Op::kArgmax, Op::kVar, Op::kCount},
                                             {Op::kArgmin, Op::kMax, Op::kMean, Op::kCountNonzero},
                                             {Op::kL1, Op::kL2, Op::kNanCount}};
    if (!RowOf(dtype()).is_float) sets.push_back(OpsOf(dtype()));
    for (const int masked : {0, 1, 2}) {
      const bool whole = !partition.grouped();
      if (whole && masked == 0) continue;
      SCOPED_TRACE(::testing::Message() << ShapeText(shape) << ", mask " << masked << ", turn " << ++turn_);
      const DataKind kind = random_() % 2 == 0 && RowOf(dtype()).is_float ? DataKind::kSomeNan : DataKind::kFull;
      const Bytes array = MakeData(kind, dtype(), count, static_cast<std::uint64_t>(turn_));
      Partition asked = partition;
      asked.layout = LayoutAlong(shape, whole ? axes : std::vector<int>{0});
      asked.rows = shape[0];
      Bytes mask;
      if (masked == 1) {
        for (std::int64_t i = 0; i < count; ++i) mask.push_back(std::byte(random_() % 3 == 0 ? 0 : i % 255 + 1));
        asked.mask = {SideOf(DType::kBool, mask), false, 0};
      } else if (masked == 2) {
        constexpr std::int64_t kFirstBit = 11;
        for (std::int64_t i = 0; i < (kFirstBit + count + 7) / 8; ++i) mask.push_back(std::byte(random_() % 256));
        asked.mask = {SideOf(DType::kU8, mask), true, kFirstBit};
      }
      ReduceSpec spec = SpecFor(shape);
      spec.nan_policy = random_() % 3 == 0 ? NanPolicy::kOmit : NanPolicy::kPropagate;
      spec.ops = sets[random_() % sets.size()];
      const Job job{.spec = spec, .array = {array.data()}};
      const Reply right = ReducePartition(**small_[0].owner->Get(EngineKind::kCpu), job, asked);
      ASSERT_TRUE(right.status.ok()) << right.status;
      for (const Started& small : small_) {
        const Reply reply = ReducePartition(*small.engine, job, asked);
        ASSERT_TRUE(reply.status.ok()) << reply.status;
        ASSERT_EQ(reply.keys, right.keys);
        ASSERT_EQ(reply.outputs, right.outputs);
        for (std::size_t i = 0; i < spec.ops.size(); ++i) {
          ASSERT_EQ(reply.answers->memory[i], right.answers->memory[i]) << RowOf(spec.ops[i]).name;
        }
        ASSERT_EQ(small.engine->info().array_bytes, 0);
      }
    }
  }

  std::vector<std::int64_t> RandomOffsets(std::int64_t rows, std::int64_t segments) {
    std::vector<std::int64_t> offsets;
    for (std::int64_t i = 0; i <= segments; ++i) {
      offsets.push_back(static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(rows + 1)));
    }
    if (segments > 2) offsets[1] = offsets[2];
    std::sort(offsets.begin(), offsets.end());
    return offsets;
  }

  std::vector<Started> small_;
  std::mt19937_64 random_{5};
  int turn_ = 0;
};

TEST_P(EnginePieces, Segments) {
  StartBoth();
  std::vector<std::int64_t> short_ones = {0};
  while (short_ones.back() < kRows) {
    short_ones.push_back(std::min<std::int64_t>(kRows, short_ones.back() + static_cast<std::int64_t>(random_() % 9)));
  }
  bool wide = false;
  const std::vector<std::int64_t> huge = {0, 0, 3, 3, 40, kRows - 70, kRows - 69, kRows - 69, kRows - 2, kRows, kRows};
  for (const std::vector<std::int64_t>& offsets :
       {short_ones, huge, RandomOffsets(kRows, 6), RandomOffsets(kRows, 700), {0, kRows}, {7, 7}, {5, kRows - 5}}) {
    wide = !wide;
    const Bytes bounds = wide ? BytesOf(offsets) : BytesOf(std::vector<std::int32_t>(offsets.begin(), offsets.end()));
    Check({kRows}, {}, {.segments = Segments{SideOf(wide ? DType::kI64 : DType::kI32, bounds)}});
    if (HasFailure()) return;
    if (offsets.front() != 0 || offsets.back() != kRows) continue;
    std::vector<std::int64_t> lengths;
    for (std::size_t i = 1; i < offsets.size(); ++i) lengths.push_back(offsets[i] - offsets[i - 1]);
    const Bytes bytes = BytesOf(lengths);
    Check({kRows}, {}, {.segments = Segments{SideOf(DType::kI64, bytes), true}});
    if (HasFailure()) return;
  }
}

TEST_P(EnginePieces, SegmentsOfSeveralColumns) {
  StartBoth();
  for (const Shape& shape : {Shape{kRows / 5, 5}, {kRows / 6, 2, 3}, {3, kRows / 3}, {1, kRows}, {kRows, 1}}) {
    for (const std::int64_t segments : {1, 3, 200}) {
      if (segments > 3 && shape[0] < segments) continue;
      const Bytes bounds = BytesOf(RandomOffsets(shape[0], segments));
      Check(shape, {}, {.segments = Segments{SideOf(DType::kI64, bounds)}});
      if (HasFailure()) return;
    }
  }
}

TEST_P(EnginePieces, Masks) {
  StartBoth();
  struct Case {
    Shape shape;
    std::vector<int> axes;
  };
  for (const auto& [shape, axes] : {Case{{kRows}, {0}},
                                    {{kRows / 30, 30}, {0, 1}},
                                    {{kRows / 30, 30}, {1}},
                                    {{kRows / 30, 30}, {0}},
                                    {{30, kRows / 30}, {0}},
                                    {{2, kRows / 2}, {1}},
                                    {{3, kRows / 3}, {0}},
                                    {{kRows}, {}},
                                    {{2, kRows / 6, 3}, {1}},
                                    {{3, 2, kRows / 12, 2}, {0, 2}},
                                    {{2, 5, kRows / 60, 6}, {1, 3}}}) {
    Check(shape, axes, {});
    if (HasFailure()) return;
  }
}

TEST_P(EnginePieces, Keys) {
  StartBoth();
  small_.push_back(StartSmall(800'000));  // enough for some arrays and keys, but not for sorting the rows
  for (const Shape& shape : {Shape{kRows}, {kRows / 3, 3}}) {
    std::vector<std::int32_t> keys;
    for (std::int64_t i = 0; i < shape[0]; ++i) keys.push_back(static_cast<std::int32_t>(random_() % 80) - 4);
    const Bytes bytes = BytesOf(keys);
    Check(shape, {}, {.keys = Keys{SideOf(DType::kI32, bytes), 60, true}});
    Check(shape, {}, {.keys = Keys{SideOf(DType::kI32, bytes)}});  // those that there are
    if (HasFailure()) return;
    for (std::int32_t& key : keys) key = (key + 4) * 100'000;
    const Bytes apart = BytesOf(keys);
    Check(shape, {}, {.keys = Keys{SideOf(DType::kI32, apart)}});
    const Bytes within = BytesOf(std::vector<std::int8_t>(keys.size(), 3));
    Check(shape, {}, {.keys = Keys{SideOf(DType::kI8, within), 5}});
    if (HasFailure()) return;
  }
}

// Arrays in files that are not mapped, beside masks, bounds and keys in the GPU's memory.
TEST_P(EnginePieces, InFilesAndOnTheDevice) {
  const std::int64_t count = 5 * kRows;
  const Started small = StartSmall(3 * count / 2);  // keys and mask, and some
  ASSERT_NE(small.engine, nullptr);
  constexpr std::int64_t kBefore = 5;  // bytes
  const Bytes array = MakeData(DataKind::kUniform, dtype(), count, 3);
  const int file = memfd_create("test", MFD_CLOEXEC);
  ASSERT_EQ(pwrite(file, array.data(), array.size(), kBefore), std::ssize(array));
  std::vector<std::unique_ptr<ArrayMemory>> held;
  const auto on_device = [&](const Bytes& bytes) {
    absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = small.engine->Allocate(std::ssize(bytes));
    EXPECT_TRUE(memory.ok() && (*memory)->Write(0, bytes.data(), std::ssize(bytes)).ok()) << memory.status();
    if (!memory.ok()) return ArrayRef();
    held.push_back(*std::move(memory));
    return held.back()->array();
  };
  ReduceSpec spec = SpecFor({count});
  spec.ops = {Op::kSum, Op::kArgmax, Op::kCount};
  Bytes mask;
  for (std::int64_t i = 0; i < (count + 10) / 8; ++i) mask.push_back(std::byte(random_() % 256));
  const Bytes bounds = BytesOf(std::vector<std::int32_t>{0, 900, 901, static_cast<std::int32_t>(count) / 2});
  Bytes keys;
  for (std::int64_t i = 0; i < count; ++i) keys.push_back(std::byte(random_() % 7));
  for (int by = 0; by < 4; ++by) {
    SCOPED_TRACE(by);
    Partition partition{.layout = LayoutAlong({count}, {0}), .rows = count};
    partition.mask = Mask{SideOf(DType::kU8, mask), true, 3};
    if (by == 1) partition.segments = Segments{SideOf(DType::kI32, bounds)};
    if (by == 2) partition.keys = Keys{SideOf(DType::kU8, keys), 7};
    if (by == 3) partition.keys = Keys{SideOf(DType::kU8, keys)};
    const Reply right =
        ReducePartition(**small.owner->Get(EngineKind::kCpu), {.spec = spec, .array = {array.data()}}, partition);
    ASSERT_TRUE(right.status.ok()) << right.status;
    partition.mask->array.array = on_device(mask);
    if (by == 1) partition.segments->bounds.array = on_device(bounds);
    if (by >= 2) partition.keys->keys.array = on_device(keys);
    const ArrayRef in_file{.space = MemorySpace::kFile, .file = file, .offset = kBefore};
    const Reply reply = ReducePartition(*small.engine, {.spec = spec, .array = in_file}, partition);
    held.clear();
    ASSERT_TRUE(reply.status.ok()) << reply.status;
    ASSERT_EQ(reply.keys, right.keys);
    EXPECT_EQ(reply.answers->memory, right.answers->memory);
    EXPECT_EQ(small.engine->info().array_bytes, 0);
  }
  close(file);
}

// States are those of whole outputs, however these are cut.
TEST_P(EnginePieces, States) {
  StartBoth();
  ReduceSpec spec = SpecFor({kRows});
  spec.ops = {Op::kSum, Op::kArgmax, Op::kCount};
  const Bytes array = MakeData(DataKind::kUniform, dtype(), kRows, 1);
  const Bytes bounds = BytesOf(std::vector<std::int64_t>{0, 5, 5, 200, kRows - 100, kRows - 3, kRows});
  const std::vector<std::int16_t> keys(kRows, 1);
  const Bytes by_key = BytesOf(keys);
  for (const bool keyed : {false, true}) {
    Partition partition{.layout = LayoutAlong({kRows}, {0}), .rows = kRows};
    if (keyed) partition.keys = Keys{SideOf(DType::kI16, by_key), 3};
    if (!keyed) partition.segments = Segments{SideOf(DType::kI64, bounds)};
    const Reply right =
        ReducePartition(**small_[0].owner->Get(EngineKind::kCpu), {.spec = spec, .array = {array.data()}}, partition);
    ASSERT_TRUE(right.status.ok()) << right.status;
    for (const Started& small : small_) {
      std::vector<State> states;
      Job job{.spec = spec, .array = {array.data()}, .partition = partition, .states = &states};
      job.place = [](std::int64_t, std::int64_t, const std::byte*) { return std::vector<std::byte*>(); };
      const absl::Status status = ReduceAndWait(*small.engine, std::move(job)).status();
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(std::ssize(states), right.outputs);
      Answers answers(spec, right.outputs);
      for (std::size_t i = 0; i < states.size(); ++i) {
        ReduceSpec one = spec;
        one.count = states[i].partial.count;
        const absl::StatusOr<std::vector<Value>> values = Finalize(one, states[i]);
        ASSERT_TRUE(values.ok()) << values.status();
        for (std::size_t op = 0; op < values->size(); ++op) {
          StoreAnswer((*values)[op], answers.data[op], static_cast<std::int64_t>(i));
        }
      }
      EXPECT_EQ(answers.memory, right.answers->memory);
    }
  }
}

REDUCED_INSTANTIATE_ON_CUDA(EnginePieces, DType::kF32, DType::kF64, DType::kI8, DType::kI64, DType::kBool);

// Of i64, whose sums overflow.
class EnginePieceErrors : public EnginePieces {
 protected:
  void SetUp() override {
    EnginePieces::SetUp();
    if (!IsSkipped()) small_.push_back(StartSmall(1000, memory_));
  }

  Reply Ask(const Partition& partition, const Shape& shape = {kRows}) {
    Partition asked = partition;
    asked.layout = LayoutAlong(shape, {0});
    asked.rows = shape[0];
    ReduceSpec spec = Spec(DType::kI64, kRows);
    spec.ops = {Op::kSum, Op::kCount};
    const Job job{.spec = spec, .array = {array_.data()}};
    Reply reply = ReducePartition(*small_[0].engine, job, asked);
    if (!absl::IsResourceExhausted(reply.status)) {
      EXPECT_EQ(reply.status, ReducePartition(**small_[0].owner->Get(EngineKind::kCpu), job, asked).status);
    }
    return reply;
  }
  // After that, nothing is held.
  void ExpectIdle() {
    EXPECT_EQ(small_[0].engine->info().array_bytes, 0);
    EXPECT_EQ(memory_->taken(), 0);
  }

  const std::shared_ptr<MemoryBudget> memory_ = std::make_shared<MemoryBudget>(std::int64_t{4} << 20);
  std::vector<std::int64_t> array_ = std::vector<std::int64_t>(kRows, 1);
};

TEST_P(EnginePieceErrors, OverflowNamesTheFirstOutput) {
  const std::int64_t half = std::numeric_limits<std::int64_t>::max() / 2 + 1;
  for (const std::int64_t at : {kRows - 3, kRows / 2 + 1}) array_[at] = array_[at + 1] = half;
  std::vector<std::int64_t> tens;
  for (std::int64_t i = 0; i <= kRows; i += 10) tens.push_back(i);
  for (const std::vector<std::int64_t>& offsets :
       {tens, {0, 2, 2, kRows / 2 - 5, kRows / 2, kRows - 5, kRows}, {0, 1, kRows}, {1, kRows - 10, kRows}}) {
    const Bytes bounds = BytesOf(offsets);
    const auto after = std::upper_bound(offsets.begin(), offsets.end(), kRows / 2 + 1);
    const Reply reply = Ask({.segments = Segments{SideOf(DType::kI64, bounds)}});
    EXPECT_TRUE(absl::IsOutOfRange(reply.status)) << reply.status;
    EXPECT_THAT(std::string(reply.status.message()),
                StartsWith("output [" + std::to_string(after - offsets.begin() - 1) + "]: integer overflow"));
    ExpectIdle();
  }
  std::vector<std::int32_t> keys;
  for (std::int64_t i = 0; i < kRows; ++i) keys.push_back(i >= kRows / 2 && i < kRows / 2 + 4 ? 7 : i % 7);
  const Bytes bytes = BytesOf(keys);
  array_[kRows - 3] = 1;
  const Reply reply = Ask({.keys = Keys{SideOf(DType::kI32, bytes), 9}});
  EXPECT_TRUE(absl::IsOutOfRange(reply.status)) << reply.status;
  EXPECT_THAT(std::string(reply.status.message()), StartsWith("output [7]: integer overflow"));
  const Bytes all(array_.size(), std::byte{1});
  const Reply masked = Ask({.mask = Mask{SideOf(DType::kBool, all)}}, {kRows / 4, 4});
  EXPECT_THAT(std::string(masked.status.message()), StartsWith("output [2]: integer overflow"));
  ExpectIdle();
}

TEST_P(EnginePieceErrors, BoundsAndKeysThatAreNot) {
  std::vector<std::int32_t> keys(kRows, 3);
  keys[kRows - 20] = keys[kRows - 5] = 50;
  const Bytes bytes = BytesOf(keys);
  EXPECT_EQ(
      Ask({.keys = Keys{SideOf(DType::kI32, bytes), 50}}).status,
      absl::OutOfRangeError("keys[" + std::to_string(kRows - 20) + "]: got 50; allowed: 0 to 49, or outside: DROP"));
  EXPECT_TRUE(Ask({.keys = Keys{SideOf(DType::kI32, bytes), 50, true}}).status.ok());
  const Bytes bounds = BytesOf(std::vector<std::int64_t>{0, 9, 8, kRows});
  EXPECT_EQ(Ask({.segments = Segments{SideOf(DType::kI64, bounds)}}).status.message(),
            "segments.offsets[2]: got 8; allowed: 9 to " + std::to_string(kRows) + ", ascending within dimension 0");
  ExpectIdle();
}

// States by key are in host memory while pieces come.
TEST_P(EnginePieceErrors, NoMemoryForStates) {
  std::vector<std::int32_t> keys(kRows);
  for (std::int64_t i = 0; i < kRows; ++i) keys[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i);
  const Bytes bytes = BytesOf(keys);
  const Reply reply = Ask({.keys = Keys{SideOf(DType::kI32, bytes), kRows}});
  EXPECT_TRUE(absl::IsResourceExhausted(reply.status)) << reply.status;
  EXPECT_THAT(std::string(reply.status.message()), HasSubstr("states of " + std::to_string(kRows) + " outputs"));
  ExpectIdle();
}

// What is resident is not cut.
TEST_P(EnginePieceErrors, ResidentArraysStay) {
  const std::vector<std::int8_t> few(900, 1);
  const absl::StatusOr<std::unique_ptr<ArrayMemory>> held = small_[0].engine->Allocate(900);
  ASSERT_TRUE(held.ok() && (*held)->Write(0, few.data(), 900).ok());
  const Bytes bounds = BytesOf(std::vector<std::int64_t>(40'000, 3));
  ReduceSpec spec = Spec(DType::kI8, 900);
  spec.ops = {Op::kSum};
  const Partition partition{
      .layout = LayoutAlong({900}, {0}), .rows = 900, .segments = Segments{SideOf(DType::kI64, bounds)}};
  const Reply reply = ReducePartition(*small_[0].engine, {.spec = spec, .array = (*held)->array()}, partition);
  EXPECT_TRUE(absl::IsResourceExhausted(reply.status)) << reply.status;
  EXPECT_THAT(std::string(reply.status.message()), HasSubstr("must be in the device's memory"));
}

// The caller leaves, or the time is over, once it is known where the answers go: before the first piece.
TEST_P(EnginePieceErrors, StopsBetweenPieces) {
  std::vector<std::int64_t> tens;
  for (std::int64_t i = 0; i <= kRows; i += 10) tens.push_back(i);
  const Bytes bounds = BytesOf(tens);
  const Bytes keys(array_.size(), std::byte{1});
  const Bytes mask(array_.size(), std::byte{1});
  for (int turn = 0; turn < 6; ++turn) {
    SCOPED_TRACE(turn);
    const int by = turn / 2;
    const bool leaves = turn % 2 == 0;
    Partition partition{.layout = LayoutAlong({kRows}, {0}), .rows = kRows};
    if (by == 0) partition.segments = Segments{SideOf(DType::kI64, bounds)};
    if (by == 1) partition.keys = Keys{SideOf(DType::kI8, keys), 3};
    if (by == 2) partition.mask = Mask{SideOf(DType::kBool, mask)};
    ReduceSpec spec = Spec(DType::kI64, kRows);
    spec.ops = {Op::kSum};
    const auto cancelled = std::make_shared<std::atomic<bool>>(false);
    Job job{.spec = spec, .array = {array_.data()}, .cancelled = cancelled};
    if (!leaves) job.deadline = absl::Now() + absl::Milliseconds(100);
    Answers answers(spec, kRows / 10);
    job.partition = partition;
    job.place = [&](std::int64_t, std::int64_t, const std::byte*) {
      *cancelled = leaves;
      if (!leaves) absl::Notification().WaitForNotificationWithDeadline(job.deadline + absl::Milliseconds(1));
      return answers.data;
    };
    const absl::Status status = ReduceAndWait(*small_[0].engine, job).status();
    EXPECT_EQ(status.code(), leaves ? absl::StatusCode::kCancelled : absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_TRUE(answers.GuardsStand());
    ExpectIdle();
  }
}

REDUCED_INSTANTIATE_ON_CUDA(EnginePieceErrors, DType::kI64);

}  // namespace
}  // namespace reduced::test
