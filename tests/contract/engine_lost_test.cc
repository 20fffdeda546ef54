// An engine whose device is lost says so, and answers what it is asked. In a process of its own: the device stays lost.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/engine/engines.h"
#include "tests/contract/lost_context.h"

namespace reduced::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kLostPatience = absl::Seconds(60);

absl::Status Ask(Engine& engine, std::int64_t count) {
  const std::vector<float> ones(static_cast<std::size_t>(count), 1.0F);
  absl::Status status;
  absl::Notification done;
  engine.Reduce(Job{.spec = {.dtype = DType::kF32, .count = count, .ops = {Op::kSum}}, .array = {.data = ones.data()}},
                [&](absl::StatusOr<Answer> result) {
                  status = result.status();
                  done.Notify();
                });
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(kLostPatience));
  return status;
}

TEST(LostDeviceTest, IsSaidAndAnswered) {
  EngineOptions options;
  options.cuda_array_bytes = std::int64_t{1} << 51;  // more than there is: the device itself refuses
  absl::StatusOr<std::unique_ptr<Engines>> engines = Engines::Start(options);
  const absl::StatusOr<Engine*> cuda = engines.ok() ? (*engines)->Get(EngineKind::kCuda) : engines.status();
  if (!cuda.ok()) {
    if (std::getenv("REDUCED_REQUIRE_GPU") != nullptr) FAIL() << cuda.status();
    GTEST_SKIP() << "no CUDA engine: " << cuda.status();
  }
  Engine& engine = **cuda;
  EXPECT_TRUE(engine.Health().ok()) << engine.Health();
  EXPECT_TRUE(Ask(engine, 100).ok());
  // A lack of memory is no failure of the device.
  const absl::Status no_room = engine.Allocate(std::int64_t{1} << 50).status();
  EXPECT_TRUE(absl::IsResourceExhausted(no_room)) << no_room;
  EXPECT_TRUE(engine.Health().ok()) << engine.Health();

  EXPECT_EQ(LoseContext(), "cudaErrorIllegalAddress");
  for (int i = 0; i < 3; ++i) {
    const absl::Status health = engine.Health();
    EXPECT_TRUE(absl::IsUnavailable(health)) << health;
    EXPECT_THAT(std::string(health.message()), AllOf(HasSubstr("cudaErrorIllegalAddress"), HasSubstr("is lost")));
    for (const std::int64_t count : {100, 10'000'000}) {
      const absl::Status status = Ask(engine, count);
      EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    }
  }
  EXPECT_TRUE((*(*engines)->Get(EngineKind::kCpu))->Health().ok());
}

}  // namespace
}  // namespace reduced::test
