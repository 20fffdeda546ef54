#include "kernels/engine/lanes.h"

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace reduced {
namespace {

constexpr absl::Duration kDeadline = absl::Seconds(60);

// Occupies one lane from construction to Release.
class Held {
 public:
  explicit Held(Lanes& lanes) {
    lanes.Submit([this](absl::StatusOr<int> lane) {
      lane_ = lane;
      started_.Notify();
      release_.WaitForNotificationWithTimeout(kDeadline);
      ended_.Notify();
    });
    EXPECT_TRUE(started_.WaitForNotificationWithTimeout(kDeadline));
  }
  ~Held() { Release(); }
  void Release() {
    if (!release_.HasBeenNotified()) release_.Notify();
    EXPECT_TRUE(ended_.WaitForNotificationWithTimeout(kDeadline));
  }
  int lane() const { return lane_.value_or(-1); }

 private:
  absl::Notification started_, release_, ended_;
  absl::StatusOr<int> lane_;
};

TEST(Lanes, JobsRunOnThreadsOfTheirOwnAndAreToldWhich) {
  Lanes lanes(3, 4);
  EXPECT_EQ(lanes.count(), 3);
  EXPECT_EQ(lanes.queue_limit(), 4);
  Held a(lanes);
  Held b(lanes);
  Held c(lanes);
  EXPECT_THAT((std::vector<int>{a.lane(), b.lane(), c.lane()}), ::testing::UnorderedElementsAre(0, 1, 2));
  EXPECT_EQ(lanes.busy(), 3);
  EXPECT_EQ(lanes.queue_length(), 0);
}

TEST(Lanes, TellHowLongAJobWouldWait) {
  constexpr absl::Duration kJob = absl::Milliseconds(20);
  Lanes lanes(2, 8);
  EXPECT_EQ(lanes.waiting_us(), 0);
  for (int i = 0; i < 32; ++i) {  // until they know how long a job takes
    absl::Notification done;
    lanes.Submit([&](absl::StatusOr<int>) {
      absl::SleepFor(kJob);
      done.Notify();
    });
    done.WaitForNotification();
  }
  const double job_us = absl::ToDoubleMicroseconds(kJob);
  Held a(lanes);
  EXPECT_GT(lanes.waiting_us(), 0.4 * job_us);  // one runs, on two lanes
  Held b(lanes);
  lanes.Submit([](absl::StatusOr<int>) {});
  lanes.Submit([](absl::StatusOr<int>) {});
  EXPECT_GT(lanes.waiting_us(), 1.8 * job_us);  // two run, two wait
}

TEST(Lanes, FirstInFirstOut) {
  std::vector<int> order;  // written by the one lane
  {
    Lanes lanes(1, 100);
    absl::BlockingCounter ran(100);
    Held held(lanes);
    for (int i = 0; i < 100; ++i) {
      lanes.Submit([&, i](absl::StatusOr<int> lane) {
        EXPECT_TRUE(lane.ok());
        order.push_back(i);
        ran.DecrementCount();
      });
    }
    EXPECT_EQ(lanes.queue_length(), 100);
    held.Release();
    ran.Wait();
  }
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST(Lanes, RefuseAtOnceWhatTheQueueHasNoRoomFor) {
  std::atomic<int> ran = 0;
  {
    Lanes lanes(1, 2);
    Held held(lanes);
    absl::BlockingCounter queued(2);
    for (int i = 0; i < 2; ++i) {
      lanes.Submit([&](absl::StatusOr<int> lane) {
        EXPECT_TRUE(lane.ok()) << lane.status().ToString();
        ++ran;
        queued.DecrementCount();
      });
    }
    for (int i = 0; i < 3; ++i) {
      std::optional<absl::Status> refused;
      lanes.Submit([&, caller = std::this_thread::get_id()](absl::StatusOr<int> lane) {
        EXPECT_EQ(std::this_thread::get_id(), caller);
        refused = lane.status();
      });
      ASSERT_TRUE(refused.has_value()) << "called before Submit returns";
      EXPECT_EQ(refused->code(), absl::StatusCode::kResourceExhausted);
      EXPECT_THAT(std::string(refused->message()), ::testing::HasSubstr("2 wait"));
    }
    EXPECT_EQ(lanes.queue_length(), 2);
    EXPECT_EQ(lanes.busy(), 1);
    held.Release();
    queued.Wait();
  }
  EXPECT_EQ(ran, 2);
}

TEST(Lanes, AJobForAFreeLaneNeedsNoPlaceInTheQueue) {
  // As many jobs at once as there are lanes and places, whether or not the lanes have woken up yet.
  for (int round = 0; round < 50; ++round) {
    Lanes lanes(2, 1);
    absl::Notification release;
    std::atomic<int> accepted = 0;
    std::atomic<int> refused = 0;
    for (int i = 0; i < 3; ++i) {
      lanes.Submit([&](const absl::StatusOr<int>& lane) {
        ++(lane.ok() ? accepted : refused);
        if (lane.ok()) release.WaitForNotificationWithTimeout(kDeadline);
      });
    }
    EXPECT_EQ(refused, 0);
    lanes.Submit([&](const absl::StatusOr<int>& lane) { ++(lane.ok() ? accepted : refused); });
    EXPECT_EQ(refused, 1);
    release.Notify();
  }
}

TEST(Lanes, WhatIsAdmittedIsNeverRefused) {
  Lanes lanes(1, 1);
  Held held(lanes);
  absl::BlockingCounter ran(2);
  lanes.Submit([&](absl::StatusOr<int> lane) {
    EXPECT_TRUE(lane.ok());
    ran.DecrementCount();
  });
  lanes.Submit(
      [&](absl::StatusOr<int> lane) {
        EXPECT_TRUE(lane.ok()) << lane.status();
        ran.DecrementCount();
      },
      /*admitted=*/true);
  EXPECT_EQ(lanes.queue_length(), 2);
  held.Release();
  ran.Wait();
}

TEST(Lanes, LendAFreeLane) {
  Lanes lanes(2, 4);
  const std::optional<int> lent = lanes.TryBorrow();
  ASSERT_TRUE(lent.has_value());
  EXPECT_EQ(lanes.busy(), 1);
  Held held(lanes);
  EXPECT_EQ(held.lane(), 1 - *lent) << "a job has got the lane that is lent";
  EXPECT_FALSE(lanes.TryBorrow().has_value());
  absl::Notification ran;
  lanes.Submit([&](absl::StatusOr<int> lane) {
    EXPECT_EQ(lane.value_or(-1), *lent);
    ran.Notify();
  });
  EXPECT_EQ(lanes.queue_length(), 1);
  lanes.GiveBack(*lent);
  EXPECT_TRUE(ran.WaitForNotificationWithTimeout(kDeadline)) << "a lane that is given back takes no job";
}

TEST(Lanes, LendNoLaneWhileAJobWaits) {
  Lanes lanes(1, 4);
  auto held = std::make_unique<Held>(lanes);
  absl::Notification ran;
  lanes.Submit([&](absl::StatusOr<int>) { ran.Notify(); });
  EXPECT_FALSE(lanes.TryBorrow().has_value());
  held.reset();
  EXPECT_TRUE(ran.WaitForNotificationWithTimeout(kDeadline));
}

TEST(Lanes, CancelWhatWaitsWhenTheyStopAndFinishWhatRuns) {
  absl::Mutex mutex;
  std::vector<absl::StatusCode> codes;
  auto lanes = std::make_unique<Lanes>(1, 10);
  Held held(*lanes);
  absl::BlockingCounter answered(5);
  for (int i = 0; i < 5; ++i) {
    lanes->Submit([&](const absl::StatusOr<int>& lane) {
      absl::MutexLock lock(&mutex);
      codes.push_back(lane.status().code());
      answered.DecrementCount();
    });
  }
  absl::Notification destroyed;
  std::thread destroyer([&] {
    lanes.reset();
    destroyed.Notify();
  });
  answered.Wait();  // while the lane is held
  EXPECT_FALSE(destroyed.HasBeenNotified());
  held.Release();
  EXPECT_TRUE(destroyed.WaitForNotificationWithTimeout(kDeadline));
  destroyer.join();
  EXPECT_THAT(codes, ::testing::ElementsAreArray(std::vector(5, absl::StatusCode::kCancelled)));
}

TEST(Lanes, AreNotBusyOnceTheirJobsAreGone) {
  Lanes lanes(2, 4);
  absl::Notification destroyed;
  {
    // Lets go of its notification when the job itself is destroyed, after it ran.
    auto on_destruction = std::shared_ptr<void>(nullptr, [&](void*) { destroyed.Notify(); });
    lanes.Submit([on_destruction](const absl::StatusOr<int>&) {});
  }
  ASSERT_TRUE(destroyed.WaitForNotificationWithTimeout(kDeadline));
  // Then the lane takes the next jobs: both lanes can be held.
  Held a(lanes);
  Held b(lanes);
  EXPECT_NE(a.lane(), b.lane());
  EXPECT_EQ(lanes.queue_length(), 0);
}

TEST(Lanes, JobsFromManyThreadsRunOnceEach) {
  std::atomic<int> ran = 0;
  std::atomic<int> refused = 0;
  {
    Lanes lanes(3, 8);
    absl::Notification started;  // on a busy machine all the others can be submitted before a lane wakes up
    lanes.Submit([&](const absl::StatusOr<int>& lane) {
      ++(lane.ok() ? ran : refused);
      started.Notify();
    });
    EXPECT_TRUE(started.WaitForNotificationWithTimeout(kDeadline));
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 500; ++i) {
          lanes.Submit([&](const absl::StatusOr<int>& lane) { ++(lane.ok() ? ran : refused); });
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(ran + refused, 2001);  // what waited at the end was cancelled
  EXPECT_GT(ran, 0);
}

}  // namespace
}  // namespace reduced
