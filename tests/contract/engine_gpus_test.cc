// The engines of a process with GPUs: one for each, arrays that know their home, and GPUs that can't start. Built with
// CUDA only; what needs two GPUs is skipped where there is one.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/status.h"
#include "kernels/engine/engines.h"

namespace reduced::test {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(60);

ReduceSpec SumOf(std::int64_t count) {
  return {.dtype = DType::kF32, .count = count, .ops = {Op::kSum}, .precision = Precision::kF64};
}

// The sum; what went wrong is a test failure.
double Sum(Engine& engine, std::int64_t count, const ArrayRef& array) {
  absl::StatusOr<Answer> answer = absl::UnknownError("no answer");
  absl::Notification done;
  engine.Reduce(Job{.spec = SumOf(count), .array = array}, [&](absl::StatusOr<Answer> result) {
    answer = std::move(result);
    done.Notify();
  });
  if (!done.WaitForNotificationWithTimeout(kPatience)) ADD_FAILURE() << "no answer in time";
  EXPECT_TRUE(answer.ok()) << answer.status();
  return answer.ok() ? answer->state.partial.float_sum : 0;
}

TEST(DeviceErrorTest, ALackOfMemoryIsNoFailureOfTheDevice) {
  const absl::Status no_memory = DeviceError(cudaErrorMemoryAllocation, "a test");
  EXPECT_EQ(no_memory.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(no_memory.message()), HasSubstr("no memory left"));
  const absl::Status failed = DeviceError(cudaErrorIllegalAddress, "a test");
  EXPECT_EQ(failed.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(failed.message()), HasSubstr("cudaErrorIllegalAddress"));
}

class GpusTest : public ::testing::Test {
 protected:
  static int Count() {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
  }
  void SetUp() override {
    if (Count() > 0) return;
    if (std::getenv("REDUCED_REQUIRE_GPU") != nullptr) FAIL() << "no GPU";
    GTEST_SKIP() << "no GPU";
  }
  static std::unique_ptr<Engines> Start(const EngineOptions& options = {}) {
    absl::StatusOr<std::unique_ptr<Engines>> engines = Engines::Start(options);
    EXPECT_TRUE(engines.ok()) << engines.status();
    return engines.ok() ? *std::move(engines) : nullptr;
  }
};

TEST_F(GpusTest, EachHasAnEngineThatKnowsItsArrays) {
  const auto engines = Start();
  ASSERT_NE(engines, nullptr);
  ASSERT_EQ(engines->all().size(), 1U + static_cast<std::size_t>(Count())) << engines->no_cuda_reason();
  EXPECT_TRUE(engines->left_out().empty());
  const std::vector<float> ones(100'000, 1.0F);
  const auto count = static_cast<std::int64_t>(ones.size());
  for (std::size_t i = 0; i < engines->all().size(); ++i) {
    Engine& engine = *engines->all()[i];
    EXPECT_EQ(engine.info().ordinal, static_cast<int>(i) - 1);
    const auto memory = engine.Allocate(count * 4);
    ASSERT_TRUE(memory.ok()) << memory.status();
    ASSERT_TRUE((*memory)->Write(0, ones.data(), count * 4).ok());
    const ArrayRef array = (*memory)->array();
    EXPECT_EQ(array.device, engine.info().ordinal);
    const auto placed = engines->Place(SumOf(count), array);
    ASSERT_TRUE(placed.ok()) << placed.status();
    if (array.space == MemorySpace::kDevice) {
      EXPECT_EQ(placed->engine, &engine);
    }
    EXPECT_EQ(Sum(*placed->engine, count, array), 100'000);
    // No other engine takes memory of this device.
    for (const auto& other : engines->all()) {
      if (other.get() == &engine || array.space != MemorySpace::kDevice) continue;
      absl::Status refused;
      other->Reduce(Job{.spec = SumOf(count), .array = array},
                    [&](const absl::StatusOr<Answer>& result) { refused = result.status(); });
      EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
    }
  }
}

// cudaHostRegister takes a range once in a process.
TEST_F(GpusTest, APinnedRangeServesThemAll) {
  const auto engines = Start();
  ASSERT_NE(engines, nullptr);
  const std::vector<float> ones(4'000'000, 1.0F);
  const auto count = static_cast<std::int64_t>(ones.size());
  for (int round = 0; round < 2; ++round) {  // again once it isn't registered any more
    const auto pin = engines->Pin(ones.data(), count * 4);
    ASSERT_TRUE(pin.ok()) << pin.status();
    ASSERT_NE(*pin, nullptr);
    for (const auto& engine : engines->all()) {
      EXPECT_EQ(Sum(*engine, count, {.data = ones.data(), .space = MemorySpace::kPinnedHost}), 4'000'000);
    }
  }
}

TEST_F(GpusTest, ArraysGoWhereThereIsMostRoom) {
  if (Count() < 2) GTEST_SKIP() << "one GPU only";
  const auto engines = Start();
  ASSERT_NE(engines, nullptr);
  const auto first = engines->OnDevice("");
  ASSERT_TRUE(first.ok());
  const auto memory = (*first)->Allocate(1 << 20);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_NE(*engines->OnDevice(""), *first);
}

TEST_F(GpusTest, ThoseThatAreNamedAreUsed) {
  if (Count() < 2) GTEST_SKIP() << "one GPU only";
  const auto engines = Start({.cuda_devices = {1}});
  ASSERT_NE(engines, nullptr);
  ASSERT_EQ(engines->all().size(), 2U);
  EXPECT_EQ(engines->all()[1]->info().name, "cuda:1");
  const std::vector<float> ones(1000, 1.0F);
  EXPECT_EQ(Sum(*engines->all()[1], 1000, {.data = ones.data()}), 1000);
}

// Requests that come together use every GPU.
TEST_F(GpusTest, WorkIsSpread) {
  if (Count() < 2) GTEST_SKIP() << "one GPU only";
  const auto engines = Start();
  ASSERT_NE(engines, nullptr);
  const std::vector<float> ones(16 << 20, 1.0F);
  ReduceSpec spec = SumOf(static_cast<std::int64_t>(ones.size()));
  spec.engine = EngineKind::kCuda;
  for (const auto& engine : engines->all())
    Sum(*engine, spec.count, {.data = ones.data()});  // they know how long it takes
  constexpr int kJobs = 16;
  std::map<std::string, int> placed;
  absl::Notification done[kJobs];
  for (absl::Notification& each : done) {
    const auto place = engines->Place(spec, {.data = ones.data()});
    ASSERT_TRUE(place.ok()) << place.status();
    ++placed[place->engine->info().name];
    place->engine->Reduce(Job{.spec = spec, .array = {.data = ones.data()}},
                          [&each](const absl::StatusOr<Answer>& result) {
                            EXPECT_TRUE(result.ok()) << result.status();
                            each.Notify();
                          });
  }
  for (absl::Notification& each : done) ASSERT_TRUE(each.WaitForNotificationWithTimeout(kPatience));
  EXPECT_EQ(placed.size(), static_cast<std::size_t>(Count()));
}

// Device memory that nobody else gets.
class Hog {
 public:
  explicit Hog(std::size_t left) {
    std::size_t free_bytes = 0;
    std::size_t total = 0;
    cudaSetDevice(0);
    cudaMemGetInfo(&free_bytes, &total);
    for (std::size_t piece = std::size_t{8} << 30; piece >= (std::size_t{1} << 20); piece /= 2) {
      while (free_bytes > left + piece) {
        void* memory = nullptr;
        if (cudaMalloc(&memory, piece) != cudaSuccess) break;
        pieces_.push_back(memory);
        cudaMemGetInfo(&free_bytes, &total);
      }
    }
    cudaGetLastError();
  }
  ~Hog() {
    for (void* const piece : pieces_) cudaFree(piece);
  }
  Hog(const Hog&) = delete;
  Hog& operator=(const Hog&) = delete;

 private:
  std::vector<void*> pieces_;
};

TEST_F(GpusTest, OneWithTooLittleMemoryIsLeftOut) {
  EngineOptions options;
  options.cuda_devices = {0};
  options.chunk_bytes = 64 << 20;  // 3 of them for each of 4 lanes
  {
    const Hog hog(std::size_t{256} << 20);
    const auto engines = Start(options);
    ASSERT_NE(engines, nullptr);
    ASSERT_EQ(engines->all().size(), 1U);
    EXPECT_EQ(engines->all()[0]->kind(), EngineKind::kCpu);
    ASSERT_EQ(engines->left_out().size(), 1U);
    EXPECT_EQ(engines->left_out()[0].name, "cuda:0");
    EXPECT_THAT(engines->no_cuda_reason(), HasSubstr("cuda:0: the CUDA device has no memory left"));
    EXPECT_EQ(engines->Get(EngineKind::kCuda).status().code(), absl::StatusCode::kFailedPrecondition);
  }
  const auto engines = Start(options);
  ASSERT_NE(engines, nullptr);
  EXPECT_EQ(engines->all().size(), 2U) << engines->no_cuda_reason();
}

}  // namespace
}  // namespace reduced::test
