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
#include "kernels/engine/stopwatch.h"

namespace reduced {
namespace {

constexpr absl::Duration kDeadline = absl::Seconds(60);

// Occupies one lane from construction to Release.
class Held {
 public:
  explicit Held(Lanes& lanes, Lanes::Ticket ticket = {}) {
    lanes.Submit(
        [this](absl::StatusOr<int> lane) {
          lane_ = lane;
          started_.Notify();
          release_.WaitForNotificationWithTimeout(kDeadline);
          ended_.Notify();
        },
        std::move(ticket));
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
  constexpr double kJobUs = 900'000;
  Lanes lanes(2, 8);
  EXPECT_EQ(lanes.waiting_us(), 0);
  Held a(lanes, {.expected_us = kJobUs});
  EXPECT_GT(lanes.waiting_us(), 0.4 * kJobUs);  // one runs, on two lanes, and has just begun
  EXPECT_LE(lanes.waiting_us(), 0.5 * kJobUs);
  Held b(lanes, {.expected_us = kJobUs});
  lanes.Submit([](absl::StatusOr<int>) {}, {.expected_us = kJobUs});
  lanes.Submit([](absl::StatusOr<int>) {}, {.expected_us = 5 * kJobUs});
  EXPECT_GT(lanes.waiting_us(), 3.4 * kJobUs);
  EXPECT_LE(lanes.waiting_us(), 4 * kJobUs);
}

TEST(Lanes, LearnHowMuchLongerThanExpectedJobsTake) {
  constexpr double kExpectedUs = 1000;
  Lanes lanes(1, 8);
  for (int i = 0; i < 32; ++i) {
    absl::Notification done;
    lanes.Submit(
        [&](absl::StatusOr<int>) {
          absl::SleepFor(absl::Microseconds(5 * kExpectedUs));
          done.Notify();
        },
        {.expected_us = kExpectedUs});
    done.WaitForNotification();
  }
  const Stopwatch since_submitted;
  Held held(lanes, {.expected_us = kExpectedUs});
  const double waiting_us = lanes.waiting_us();
  EXPECT_GT(waiting_us + since_submitted.micros(), 4 * kExpectedUs);
}

// They end early, or late because they were to stop at the next opportunity.
TEST(Lanes, LearnNothingFromJobsThatWereCancelled) {
  constexpr double kExpectedUs = 1000;
  Lanes lanes(1, 8);
  for (int i = 0; i < 8; ++i) {
    const auto cancelled = std::make_shared<std::atomic<bool>>(false);
    absl::Notification done;
    lanes.Submit(
        [&, cancelled](absl::StatusOr<int>) {
          absl::SleepFor(absl::Microseconds(5 * kExpectedUs));
          cancelled->store(true);
          done.Notify();
        },
        {.expected_us = kExpectedUs, .cancelled = cancelled});
    done.WaitForNotification();
  }
  Held held(lanes, {.expected_us = kExpectedUs});
  EXPECT_LE(lanes.waiting_us(), kExpectedUs);
}

TEST(Lanes, NobodyWaitsForWhatIsCancelled) {
  Lanes lanes(1, 8);
  const auto cancelled = std::make_shared<std::atomic<bool>>(false);
  Held held(lanes, {.expected_us = 1e9, .cancelled = cancelled});
  EXPECT_GT(lanes.waiting_us(), 0);
  cancelled->store(true);
  EXPECT_EQ(lanes.waiting_us(), 0);
}

// What nobody waits for leaves the queue, though no lane gets free.
TEST(Lanes, WhatIsCancelledLeavesTheQueueAtOnce) {
  Lanes lanes(1, 2);
  Held held(lanes);
  const auto cancelled = std::make_shared<std::atomic<bool>>(false);
  absl::Notification answered;
  absl::StatusOr<int> why;
  lanes.Submit(
      [&](absl::StatusOr<int> lane) {
        why = std::move(lane);
        answered.Notify();
      },
      {.expected_us = 7, .cancelled = cancelled});
  absl::Notification late;
  absl::StatusOr<int> why_late;
  lanes.Submit(
      [&](absl::StatusOr<int> lane) {
        why_late = std::move(lane);
        late.Notify();
      },
      {.expected_us = 7, .deadline = absl::Now() + absl::Milliseconds(50)});
  EXPECT_EQ(lanes.queue_length(), 2);
  cancelled->store(true);
  ASSERT_TRUE(answered.WaitForNotificationWithTimeout(kDeadline));
  EXPECT_TRUE(absl::IsCancelled(why.status())) << why.status();
  ASSERT_TRUE(late.WaitForNotificationWithTimeout(kDeadline));
  EXPECT_TRUE(absl::IsDeadlineExceeded(why_late.status())) << why_late.status();
  EXPECT_EQ(lanes.queue_length(), 0);
  EXPECT_EQ(lanes.waiting_us(), 0);
}

// They may take anything up to what they may need at most: other jobs are not expected to be slow for that.
TEST(Lanes, LearnNothingFromJobsThatAreNotKnownBeforehand) {
  constexpr double kExpectedUs = 1000;
  Lanes lanes(1, 8);
  for (int i = 0; i < 8; ++i) {
    absl::Notification done;
    lanes.Submit(
        [&](absl::StatusOr<int>) {
          absl::SleepFor(absl::Microseconds(5 * kExpectedUs));
          done.Notify();
        },
        {.expected_us = kExpectedUs, .most_us = 100 * kExpectedUs});
    done.WaitForNotification();
  }
  Held held(lanes, {.expected_us = kExpectedUs});
  EXPECT_LE(lanes.waiting_us(), kExpectedUs);
}

// However many long jobs there are, one lane and half of the queue are there for others.
TEST(Lanes, LongJobsLeaveALaneToOthers) {
  constexpr double kLongUs = 2e6;
  Lanes lanes(2, 4);
  Held held(lanes, {.expected_us = kLongUs});
  absl::Notification second_long;
  lanes.Submit([&](absl::StatusOr<int>) { second_long.Notify(); }, {.expected_us = 10, .most_us = kLongUs});
  lanes.Submit([](absl::StatusOr<int>) {}, {.expected_us = kLongUs});
  absl::Status refused;
  lanes.Submit([&](absl::StatusOr<int> lane) { refused = lane.status(); }, {.expected_us = kLongUs});
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_FALSE(lanes.TryBorrow().has_value()) << "a lane is free, but others wait";
  for (int i = 0; i < 3; ++i) {
    absl::Notification ran;
    lanes.Submit([&](absl::StatusOr<int> lane) { EXPECT_TRUE((ran.Notify(), lane.ok())); }, {.expected_us = 10});
    ASSERT_TRUE(ran.WaitForNotificationWithTimeout(kDeadline));
  }
  EXPECT_FALSE(second_long.HasBeenNotified());
  held.Release();
  EXPECT_TRUE(second_long.WaitForNotificationWithTimeout(kDeadline));
}

TEST(Lanes, RefuseAtOnceWhatWouldWaitBeyondItsDeadline) {
  Lanes lanes(1, 8);
  Held held(lanes, {.expected_us = 60e6});
  absl::Status refused;
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  lanes.Submit([&](absl::StatusOr<int> lane) { refused = lane.status(); }, {.deadline = deadline});
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("the deadline would pass in the queue"));
  lanes.Submit([](absl::StatusOr<int>) {}, {.admitted = true, .deadline = deadline});  // goes on in any case
  EXPECT_EQ(lanes.queue_length(), 1);
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

// One caller floods the queue; the job of another is next.
TEST(Lanes, CallersTakeTurns) {
  std::vector<int> order;  // written by the one lane
  {
    Lanes lanes(1, 100);
    absl::BlockingCounter ran(41);
    Held held(lanes);
    const auto submit = [&](std::uint64_t caller) {
      lanes.Submit(
          [&, caller](absl::StatusOr<int> lane) {
            EXPECT_TRUE(lane.ok());
            order.push_back(static_cast<int>(caller));
            ran.DecrementCount();
          },
          {.expected_us = 1000, .caller = caller});
    };
    for (int i = 0; i < 40; ++i) submit(1);
    submit(2);
    held.Release();
    ran.Wait();
  }
  EXPECT_EQ(order[1], 2);
}

// A full queue is shared: the newest job of the caller with most places makes room.
TEST(Lanes, AFullQueueMakesRoomForOtherCallers) {
  Lanes lanes(1, 4);
  Held held(lanes);
  absl::Mutex mutex;
  std::vector<int> refused;
  const auto submit = [&](int number, std::uint64_t caller) {
    lanes.Submit(
        [&, number](absl::StatusOr<int> lane) {
          if (!absl::IsResourceExhausted(lane.status())) return;
          const absl::MutexLock lock(&mutex);
          refused.push_back(number);
        },
        {.caller = caller});
  };
  for (int i = 0; i < 4; ++i) submit(i, 1);
  EXPECT_TRUE(lanes.CheckRoom(2, absl::InfiniteFuture()).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(lanes.CheckRoom(1, absl::InfiniteFuture())));
  submit(10, 2);
  submit(11, 2);
  submit(12, 2);  // has its share
  submit(4, 1);
  EXPECT_THAT(refused, ::testing::ElementsAre(3, 2, 12, 4));
  EXPECT_EQ(lanes.queue_length(), 4);
}

// A caller may queue what takes twice as long as the target, and as long as the target once that is so for a while.
TEST(Lanes, WhoIsBehindGetsNoFurtherPlace) {
  constexpr int kJobs = 60;
  constexpr double kJobUs = 5000;
  Lanes lanes(1, 1000, /*queue_target=*/absl::Milliseconds(20));
  absl::BlockingCounter ran(kJobs);
  const auto check = [&](std::uint64_t caller) { return lanes.CheckRoom(caller, absl::InfiniteFuture()); };
  absl::Status behind;
  absl::Status of_another;
  {
    Held held(lanes);
    for (int i = 0; i < kJobs; ++i) {
      if (i == 7) {
        EXPECT_TRUE(check(1).ok()) << "a burst";
      }
      lanes.Submit(
          [&, i](const absl::StatusOr<int>& lane) {
            EXPECT_TRUE(lane.ok()) << lane.status();
            absl::SleepFor(absl::Microseconds(kJobUs));
            if (i == kJobs - 7) {  // six are left
              behind = check(1);
              of_another = check(2);
            }
            ran.DecrementCount();
          },
          {.expected_us = kJobUs, .admitted = true, .caller = 1});
    }
    EXPECT_TRUE(absl::IsResourceExhausted(check(1))) << "more than a burst";
    EXPECT_TRUE(check(2).ok());
  }
  ran.Wait();
  EXPECT_TRUE(absl::IsResourceExhausted(behind)) << behind;
  EXPECT_THAT(std::string(behind.message()), ::testing::HasSubstr("--queue_target"));
  EXPECT_TRUE(of_another.ok()) << of_another;
  EXPECT_TRUE(check(1).ok()) << "worked off: nothing waits";
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
      {.admitted = true});
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
