// The end of a server: a drain that clients hear of before it refuses them, and a device that fails.
#include "server/lifetime.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <string>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/observe/log.h"
#include "tests/service/held_engine.h"
#include "tests/service/test_server.h"

namespace reduced::server {
namespace {

using ::testing::HasSubstr;

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

// What it was given never comes back.
class HungEngine final : public SharedEngine {
 public:
  explicit HungEngine(const std::atomic<bool>* failed) : failed_(failed) {}
  void Reduce(Job, Done done) override {
    static Done* const kept = new Done(std::move(done));
    static_cast<void>(kept);
    reducing = true;
  }
  absl::Status Health() override { return *failed_ ? absl::UnavailableError("hung") : absl::OkStatus(); }

  static inline std::atomic<bool> reducing = false;

 private:
  const std::atomic<bool>* const failed_;
};

// A request that nobody answers, on a thread of its own; returns when the engine has it.
void SendToHung(TestServer& server) {
  SetUpLog(/*json=*/false, "info");  // to standard error, which a test can read
  std::thread([&server] {
    v1::ReduceResponse response;
    server.client().Reduce(SmallSum(), &response).ok();
  }).detach();
  if (!AwaitTrue(HungEngine::reducing)) _exit(99);
}

TEST_F(EndTest, WhatHangsOnTheDeviceDoesNotKeepIt) {
  EXPECT_EXIT(
      {
        const sigset_t stop = BlockStopSignals();
        static std::atomic<bool> failed = false;
        TestServer server({}, OnlyEngine(std::make_unique<HungEngine>(&failed)));
        SendToHung(server);
        std::thread([] {
          failed = true;
          absl::SleepFor(absl::Seconds(5));
          _exit(100);  // the 5 seconds are over
        }).detach();
        std::exit(ServeUntilStopped(server.server(), stop, absl::ZeroDuration(), absl::Hours(1)));
      },
      ::testing::ExitedWithCode(kDeviceFailed), "");
}

// Fails when the server serves on for a delay, and when it waits for what runs.
TEST_F(EndTest, ADeviceThatFailsDuringAStopEndsTheProcessWithin5Seconds) {
  for (const absl::Duration drain_delay : {absl::Hours(1), absl::ZeroDuration()}) {
    EXPECT_EXIT(
        {
          const sigset_t stop = BlockStopSignals();
          static std::atomic<bool> failed = false;
          TestServer server({}, OnlyEngine(std::make_unique<HungEngine>(&failed)));
          SendToHung(server);
          HealthWatch watch(server.client(), "");
          if (watch.Next() != kServing) _exit(100);
          std::thread([&watch, drain_delay] {
            kill(getpid(), SIGTERM);
            if (watch.Next() != kNotServing) _exit(101);
            if (drain_delay == absl::ZeroDuration()) absl::SleepFor(absl::Seconds(1));  // well into the wait
            failed = true;
            absl::SleepFor(absl::Seconds(5));
            _exit(102);  // the 5 seconds are over
          }).detach();
          std::exit(ServeUntilStopped(server.server(), stop, drain_delay, absl::Hours(1)));
        },
        ::testing::ExitedWithCode(kDeviceFailed), "a device failed, the process ends: cpu: hung");
  }
}

TEST_F(EndTest, AStopEndsWhateverHangs) {
  EXPECT_EXIT(
      {
        const sigset_t stop = BlockStopSignals();
        static std::atomic<bool> failed = false;
        TestServer server({}, OnlyEngine(std::make_unique<HungEngine>(&failed)));
        SendToHung(server);
        std::thread([] {
          absl::SleepFor(kPatience);
          _exit(100);
        }).detach();
        kill(getpid(), SIGTERM);
        std::exit(ServeUntilStopped(server.server(), stop, absl::ZeroDuration(), absl::Milliseconds(100)));
      },
      ::testing::ExitedWithCode(EXIT_FAILURE), "requests were still running after 100ms.*(.|\n)*have not ended");
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

// A process that gets `first`, and `second` while it serves for the delay or waits for what never ends.
[[noreturn]] void StopTwice(int first, int second, absl::Duration drain_delay) {
  const sigset_t stop = BlockStopSignals();
  static std::atomic<bool> failed = false;
  TestServer server({}, OnlyEngine(std::make_unique<HungEngine>(&failed)));
  SendToHung(server);
  HealthWatch watch(server.client(), "");
  if (watch.Next() != kServing) _exit(100);
  std::thread([&watch, first, second] {
    kill(getpid(), first);
    if (watch.Next() != kNotServing) _exit(101);
    kill(getpid(), second);
    absl::SleepFor(absl::Seconds(5));
    _exit(102);
  }).detach();
  std::exit(ServeUntilStopped(server.server(), stop, drain_delay, absl::Hours(1)));
}

TEST_F(EndTest, ASecondSignalEndsTheProcessAtOnce) {
  EXPECT_EXIT(StopTwice(SIGTERM, SIGINT, absl::Hours(1)), ::testing::ExitedWithCode(128 + SIGINT), "at once");
  EXPECT_EXIT(StopTwice(SIGINT, SIGTERM, absl::ZeroDuration()), ::testing::ExitedWithCode(128 + SIGTERM), "at once");
}

// Of a process of its own, which has one thread.
template <class Body>
int ExitStatusOf(Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// The kernel gives the first process of a namespace no signal that has its default action.
TEST_F(EndTest, ASecondSignalEndsTheFirstProcessOfAContainer) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a sanitizer's runtime ends the first process of a namespace itself";
#endif
  const auto enter = [] { return unshare(CLONE_NEWUSER | CLONE_NEWPID) == 0 ? 0 : 1; };
  if (ExitStatusOf(enter) != 0) GTEST_SKIP() << "no namespaces of processes may be made here";
  EXPECT_EXIT(_exit(ExitStatusOf([enter] {
                if (enter() != 0) return 97;
                return ExitStatusOf([]() -> int {
                  if (getpid() != 1) return 98;
                  StopTwice(SIGTERM, SIGTERM, absl::ZeroDuration());
                });
              })),
              ::testing::ExitedWithCode(128 + SIGTERM), "at once");
}

}  // namespace
}  // namespace reduced::server
