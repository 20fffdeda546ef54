// Device memory of another process. Built with CUDA only.
#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/contract/engine_fixture.h"
#include "tests/contract/exporter.h"

namespace reduced::test {
namespace {

constexpr std::int64_t kBytes = std::int64_t{64} << 20;

class EngineIpc : public EngineTest<EngineKind> {
 protected:
  // The sum of all bytes; nothing if it can't be told.
  std::optional<std::int64_t> Sum(const HeldArray& held, std::int64_t bytes = kBytes) {
    ReduceSpec spec = Spec(DType::kU8, bytes);
    spec.ops = {Op::kSum};
    const absl::StatusOr<Answer> result = ReduceAndWait(engine(), {.spec = spec, .array = held.array});
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) return std::nullopt;
    return static_cast<std::int64_t>(result->state.partial.int_sum);
  }
};

TEST_P(EngineIpc, IsReducedWhereItIs) {
  for (const std::int64_t offset : {0, 4096, 4097}) {
    const Exporter exporter(kBytes, offset, 0);
    ASSERT_EQ(exporter.error(), "");
    const absl::StatusOr<HeldArray> held = engine().Open(exporter.memory());
    ASSERT_TRUE(held.ok()) << held.status();
    EXPECT_EQ(held->array.space, MemorySpace::kDevice);
    EXPECT_EQ(held->array.device, engine().info().ordinal);
    EXPECT_EQ(Sum(*held), kBytes);
  }
}

// The exporter's memory is zeros until its event.
TEST_P(EngineIpc, WaitsForTheEvent) {
  const Exporter exporter(kBytes, 0, 500);
  ASSERT_EQ(exporter.error(), "");
  const absl::StatusOr<HeldArray> held = engine().Open(exporter.memory());
  ASSERT_TRUE(held.ok()) << held.status();
  EXPECT_EQ(Sum(*held), kBytes);
}

TEST_P(EngineIpc, CanBeOpenedTwiceAndClosedOnce) {
  const Exporter exporter(kBytes, 0, 0);
  ASSERT_EQ(exporter.error(), "");
  const absl::StatusOr<HeldArray> held = engine().Open(exporter.memory());
  ASSERT_TRUE(held.ok()) << held.status();
  {
    SharedDeviceMemory half = exporter.memory();
    half.offset = kBytes / 2;
    half.bytes = kBytes / 2;
    const absl::StatusOr<HeldArray> other = engine().Open(half);
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_EQ(Sum(*other, kBytes / 2), kBytes / 2);
  }
  EXPECT_EQ(Sum(*held), kBytes);
}

TEST_P(EngineIpc, IsNotReadBeyondItsAllocation) {
  const Exporter exporter(kBytes, 0, 0);
  ASSERT_EQ(exporter.error(), "");
  SharedDeviceMemory memory = exporter.memory();
  for (const auto& [offset, bytes] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, kBytes}, {0, kBytes + 1}, {-1, 1}, {0, -1}, {kBytes + 1, 0}, {INT64_MAX, INT64_MAX}}) {
    memory.offset = offset;
    memory.bytes = bytes;
    EXPECT_EQ(engine().Open(memory).status().code(), absl::StatusCode::kInvalidArgument) << offset << " " << bytes;
  }
  memory.offset = 0;
  memory.bytes = kBytes;
  memory.event = std::string(63, 'x');
  EXPECT_EQ(engine().Open(memory).status().code(), absl::StatusCode::kInvalidArgument);
  memory.device_uuid[0] = static_cast<char>(memory.device_uuid[0] + 1);
  EXPECT_EQ(engine().Open(memory).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_P(EngineIpc, OutlivesItsExporter) {
  Exporter exporter(kBytes, 0, 0);
  ASSERT_EQ(exporter.error(), "");
  const SharedDeviceMemory memory = exporter.memory();
  {
    const absl::StatusOr<HeldArray> held = engine().Open(memory);
    ASSERT_TRUE(held.ok()) << held.status();
    EXPECT_EQ(Sum(*held), kBytes);
    exporter.Kill();
    EXPECT_EQ(Sum(*held), kBytes) << "what is open stays readable";
  }
  // A stale handle is refused, and harms nobody.
  const absl::Status stale = engine().Open(memory).status();
  EXPECT_EQ(stale.code(), absl::StatusCode::kFailedPrecondition) << stale;
  const Exporter another(kBytes, 0, 0);
  ASSERT_EQ(another.error(), "");
  const absl::StatusOr<HeldArray> held = engine().Open(another.memory());
  ASSERT_TRUE(held.ok()) << held.status();
  EXPECT_EQ(Sum(*held), kBytes);
}

// Its end comes in the middle of a reduction, again and again: each ends, right, and the device goes on.
TEST_P(EngineIpc, ItsExporterIsKilledDuringReductions) {
  for (int round = 0; round < 5; ++round) {
    Exporter exporter(kBytes, 0, 0);
    ASSERT_EQ(exporter.error(), "");
    const absl::StatusOr<HeldArray> held = engine().Open(exporter.memory());
    ASSERT_TRUE(held.ok()) << held.status();
    std::atomic<int> reductions = 0;
    std::atomic<bool> over = false;
    std::thread reducing([&] {
      for (; !over && !HasFailure(); ++reductions) EXPECT_EQ(Sum(*held), kBytes);
    });
    while (reductions < 3 && !HasFailure()) std::this_thread::yield();
    exporter.Kill();
    for (const int killed = reductions; reductions < killed + 3 && !HasFailure();) std::this_thread::yield();
    over = true;
    reducing.join();
    EXPECT_TRUE(engine().Health().ok());
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, EngineIpc, ::testing::Values(EngineKind::kCuda), NameOfKind);

}  // namespace
}  // namespace reduced::test
