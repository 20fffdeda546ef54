// The end of a server: a drain that clients hear of before it refuses them, and a device that fails.
#include "server/lifetime.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <string>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/held_engine.h"
#include "tests/service/test_server.h"

namespace reduced {
namespace {

using ::testing::HasSubstr;

v1::ReduceRequest SmallSum() { return RequestOf<float>(v1::DTYPE_F32, {1, 2, 3, 4}, {v1::OP_SUM}); }

// Its device fails when a test says so.
class FailingEngine final : public SharedEngine {
 public:
  explicit FailingEngine(const std::atomic<bool>* failed) : failed_(failed) {}
  absl::Status Health() override {
    return *failed_ ? absl::UnavailableError("the CUDA device failed: an illegal memory access") : absl::OkStatus();
  }

 private:
  const std::atomic<bool>* const failed_;
};

TEST(WithdrawTest, HealthSaysNotServingAndRequestsAreServedAllTheSame) {
  TestServer server;
  HealthWatch watch(server.client(), "reduced.v1.Reduction");
  EXPECT_EQ(watch.Next(), kServing);
  server.server().Withdraw();
  EXPECT_EQ(watch.Next(), kNotServing);
  int health = 0;
  EXPECT_TRUE(server.client().Health("", &health).ok());
  EXPECT_EQ(health, kNotServing);
  v1::ReduceResponse response;
  EXPECT_TRUE(server.client().Reduce(SmallSum(), &response).ok());
  server.server().Drain();
  EXPECT_EQ(server.client().Reduce(SmallSum(), &response).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(CheckEnginesTest, AFailedDeviceEndsTheServiceNotTheProcess) {
  std::atomic<bool> failed = false;
  TestServer server({}, OnlyEngine(std::make_unique<FailingEngine>(&failed)));
  HealthWatch watch(server.client(), "");
  EXPECT_EQ(watch.Next(), kServing);
  EXPECT_TRUE(server.server().CheckEngines().ok());
  v1::ReduceResponse response;
  EXPECT_TRUE(server.client().Reduce(SmallSum(), &response).ok());
  failed = true;
  const absl::Status status = server.server().CheckEngines();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cpu: the CUDA device failed: an illegal memory access"));
  EXPECT_EQ(watch.Next(), kNotServing);
  EXPECT_EQ(server.client().Reduce(SmallSum(), &response).error_code(), grpc::StatusCode::UNAVAILABLE);
}

// Each process of its own, from its start: they end.
class EndTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(EndTest, ADeviceThatFailsEndsTheProcessWithin5Seconds) {
  EXPECT_EXIT(
      {
        const sigset_t stop = BlockStopSignals();
        std::atomic<bool> failed = false;
        TestServer server({}, OnlyEngine(std::make_unique<FailingEngine>(&failed)));
        HealthWatch watch(server.client(), "");
        if (watch.Next() != kServing) std::exit(100);
        std::thread([&] {
          failed = true;
          if (watch.Next() != kNotServing) _exit(101);
          absl::SleepFor(absl::Seconds(5));
          _exit(102);  // the 5 seconds are over
        }).detach();
        std::exit(ServeUntilStopped(server.server(), stop, absl::Hours(1), absl::Hours(1)));
      },
      ::testing::ExitedWithCode(kDeviceFailed), "");
}

TEST_F(EndTest, WhatHangsOnTheDeviceDoesNotKeepIt) {
  // What the engine was given never comes back.
  EXPECT_EXIT(
      {
        class Hung final : public SharedEngine {
         public:
          explicit Hung(std::atomic<bool>* failed) : failed_(failed) {}
          void Reduce(Job, Done done) override {
            static Done* const kept = new Done(std::move(done));
            static_cast<void>(kept);
            *failed_ = true;
          }
          absl::Status Health() override { return *failed_ ? absl::UnavailableError("hung") : absl::OkStatus(); }

         private:
          std::atomic<bool>* const failed_;
        };
        const sigset_t stop = BlockStopSignals();
        static std::atomic<bool> failed = false;
        TestServer server({}, OnlyEngine(std::make_unique<Hung>(&failed)));
        std::thread([&] {
          v1::ReduceResponse response;
          server.client().Reduce(SmallSum(), &response).ok();
        }).detach();
        std::thread([] {
          AwaitTrue(failed);
          absl::SleepFor(absl::Seconds(5));
          _exit(100);  // the 5 seconds are over
        }).detach();
        std::exit(ServeUntilStopped(server.server(), stop, absl::ZeroDuration(), absl::Hours(1)));
      },
      ::testing::ExitedWithCode(kDeviceFailed), "");
}

TEST_F(EndTest, ASignalServesForTheDelayThenEndsWell) {
  EXPECT_EXIT(
      {
        const sigset_t stop = BlockStopSignals();
        TestServer server;
        HealthWatch watch(server.client(), "");
        if (watch.Next() != kServing) std::exit(100);
        std::thread([&] {
          kill(getpid(), SIGTERM);
          if (watch.Next() != kNotServing) _exit(101);
          v1::ReduceResponse response;
          if (!server.client().Reduce(SmallSum(), &response).ok()) _exit(102);
        }).detach();
        std::exit(ServeUntilStopped(server.server(), stop, absl::Seconds(1), absl::Seconds(10)));
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace reduced
