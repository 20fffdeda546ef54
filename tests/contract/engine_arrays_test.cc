// Arrays that stay in the memory of an engine's device: written in pieces, reduced where they lie, within a budget.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/contract/engine_fixture.h"
#include "tests/support/data.h"
#include "tests/support/oracle.h"

namespace reduced::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

class EngineArrays : public EngineTest<EngineKind> {
 protected:
  static EngineOptions WithBudget(std::int64_t bytes) {
    EngineOptions options = Options();
    options.cpu_array_bytes = bytes;
    options.cuda_array_bytes = options.cpu_array_bytes;
    return options;
  }

  // An array in memory of the engine, written `piece` bytes at a time.
  static std::unique_ptr<ArrayMemory> Store(Engine& engine, const Bytes& array, std::int64_t piece) {
    const auto bytes = static_cast<std::int64_t>(array.size());
    absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = engine.Allocate(bytes);
    EXPECT_TRUE(memory.ok()) << memory.status().ToString();
    if (!memory.ok()) return nullptr;
    for (std::int64_t i = 0; i < bytes; i += piece) {
      EXPECT_TRUE((*memory)->Write(i, array.data() + i, std::min(piece, bytes - i)).ok());
    }
    return *std::move(memory);
  }

  void Check(DType dtype, std::int64_t count, std::int64_t piece) {
    SCOPED_TRACE(std::string(RowOf(dtype).name) + " " + std::to_string(count));
    const Bytes array = MakeData(DataKind::kUniform, dtype, count, 11);
    const std::unique_ptr<ArrayMemory> memory = Store(engine(), array, piece);
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(memory->array().space, kind() == EngineKind::kCpu ? MemorySpace::kHost : MemorySpace::kDevice);
    EXPECT_EQ(memory->array().device, engine().info().ordinal);
    Bytes copy(array.size() + 1, std::byte{0xa5});  // one more, which stays
    for (std::int64_t i = 0; i < std::ssize(array); i += piece) {
      ASSERT_TRUE(memory->Read(i, std::min(piece, std::ssize(array) - i), copy.data() + i).ok());
    }
    EXPECT_EQ(std::exchange(copy.back(), std::byte{}), std::byte{0xa5});
    copy.pop_back();
    EXPECT_TRUE(copy == array);
    const ReduceSpec spec = Spec(dtype, count);
    for (int run = 0; run < 2; ++run) {
      const absl::StatusOr<Answer> result = ReduceAndWait(engine(), {.spec = spec, .array = memory->array()});
      ASSERT_TRUE(result.ok()) << result.status().ToString();
      EXPECT_FALSE(result->timing.host_to_device_us.has_value()) << "it was not reduced where it lies";
      CheckAnswers(Study(dtype, array.data(), count), spec, result->state);
    }
  }
};

TEST_P(EngineArrays, AreReducedWhereTheyLie) {
  for (const DTypeRow& row : kDTypes) {
    Check(row.dtype, 0, 1);
    Check(row.dtype, 1, 1);
    Check(row.dtype, 1000, 333);
    Check(row.dtype, 70'001, 65'537);
    if (HasFailure()) return;
  }
  Check(DType::kF32, kSlowBuild ? 300'000 : 3'000'000, 1 << 20);
}

TEST_P(EngineArrays, AreReadBySeveralThreads) {
  const Bytes array = MakeData(DataKind::kUniform, DType::kF64, 40'000, 12);
  const std::unique_ptr<ArrayMemory> memory = Store(engine(), array, 100'000);
  ASSERT_NE(memory, nullptr);
  std::vector<std::thread> threads;
  for (std::int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Bytes part(array.size() / 4);
      for (int i = 0; i < 20; ++i) {
        EXPECT_TRUE(memory->Read(t * std::ssize(part), std::ssize(part), part.data()).ok());
        EXPECT_TRUE(std::equal(part.begin(), part.end(), array.begin() + t * std::ssize(part)));
        std::fill(part.begin(), part.end(), std::byte{});
      }
    });
  }
  for (std::thread& each : threads) each.join();
}

TEST_P(EngineArrays, KeepToTheBudget) {
  const Started own = StartOwn(WithBudget(1'000'000));
  ASSERT_NE(own.engine, nullptr);
  const auto used = [&own] { return own.engine->info().array_bytes; };
  EXPECT_EQ(own.engine->info().array_bytes_limit, 1'000'000);
  EXPECT_EQ(used(), 0);
  auto first = own.engine->Allocate(600'000);
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  for (const std::int64_t bytes : {std::int64_t{400'001}, kNoLimit}) {
    const absl::Status full = own.engine->Allocate(bytes).status();
    EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(full.message()), AllOf(HasSubstr("array of " + std::to_string(bytes) + " bytes"),
                                                   HasSubstr("take 600000 of"), HasSubstr("the 1000000 bytes")));
    EXPECT_EQ(used(), 600'000);
  }
  {
    const auto rest = own.engine->Allocate(400'000);
    ASSERT_TRUE(rest.ok()) << rest.status().ToString();
    EXPECT_EQ(used(), 1'000'000);
    EXPECT_TRUE(own.engine->Allocate(0).ok());
    EXPECT_FALSE(own.engine->Allocate(1).ok());
  }
  EXPECT_EQ(used(), 600'000);
  first->reset();
  EXPECT_EQ(used(), 0);
  // As often as one likes: what is freed is there again.
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(own.engine->Allocate(i % 2 == 0 ? 1'000'000 : 999'999).ok());
  EXPECT_EQ(used(), 0);
}

TEST_P(EngineArrays, FillTheBudgetInSmallPieces) {
  const Started own = StartOwn(WithBudget(100 * 1001));
  ASSERT_NE(own.engine, nullptr);
  std::vector<std::unique_ptr<ArrayMemory>> arrays;
  for (int i = 0; i < 100; ++i) {
    auto memory = own.engine->Allocate(1001);
    ASSERT_TRUE(memory.ok()) << i << ": " << memory.status().ToString();
    arrays.push_back(*std::move(memory));
  }
  EXPECT_EQ(own.engine->Allocate(1).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_P(EngineArrays, WhatTheDeviceHasNoRoomForIsRefusedAndNothingElse) {
  const Started own = StartOwn(WithBudget(kNoLimit));
  ASSERT_NE(own.engine, nullptr);
  const std::int64_t bytes = kind() == EngineKind::kCpu ? std::int64_t{1} << 60 : 2 * own.engine->info().memory_bytes;
  const absl::Status full = own.engine->Allocate(bytes).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full.ToString();
  EXPECT_THAT(std::string(full.message()),
              AllOf(HasSubstr("no memory left"), HasSubstr(std::to_string(bytes)), HasSubstr("take only 0 of")));
  EXPECT_EQ(own.engine->info().array_bytes, 0);
  const Bytes array = MakeData(DataKind::kUniform, DType::kF32, 1000, 3);
  const std::unique_ptr<ArrayMemory> memory = Store(*own.engine, array, 4000);
  ASSERT_NE(memory, nullptr);
  EXPECT_TRUE(ReduceAndWait(*own.engine, {.spec = Spec(DType::kF32, 1000), .array = memory->array()}).ok());
}

TEST_P(EngineArrays, ComeAndGoWhileOthersAreReduced) {
  const Started own = StartOwn(WithBudget(4 << 20));
  ASSERT_NE(own.engine, nullptr);
  const std::int64_t count = kSlowBuild ? 10'000 : 100'000;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const Bytes array = MakeData(DataKind::kSmall, DType::kF32, count, t);
      ReduceSpec spec = Spec(DType::kF32, count);
      const Facts facts = Study(DType::kF32, array.data(), count);
      for (int i = 0; i < 20; ++i) {
        const std::unique_ptr<ArrayMemory> memory = Store(*own.engine, array, 100'000);
        if (memory == nullptr) return;
        const auto result = ReduceAndWait(*own.engine, {.spec = spec, .array = memory->array()});
        EXPECT_TRUE(result.ok()) << result.status().ToString();
        if (result.ok()) CheckAnswers(facts, spec, result->state);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(own.engine->info().array_bytes, 0);
}

REDUCED_INSTANTIATE_BY_KIND(EngineArrays);

}  // namespace
}  // namespace reduced::test
