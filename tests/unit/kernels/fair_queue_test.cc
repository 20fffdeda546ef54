#include "kernels/engine/fair_queue.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/engine/standing_delay.h"

namespace reduced {
namespace {

using ::testing::ElementsAre;

struct FakeJob {
  std::uint64_t caller = 0;
  double cost = 1;
  std::string name{};
  JobClass job_class = JobClass::kShort;
  bool stays = false;
};

std::string Drain(FairQueue<FakeJob>& queue, bool long_too = true) {
  std::string names;
  while (std::optional<FakeJob> job = queue.Pop(long_too)) names += job->name;
  return names;
}

TEST(FairQueue, OfOneCallerIsFirstInFirstOut) {
  FairQueue<FakeJob> queue;
  for (const char* name : {"a", "b", "c", "d"}) queue.Push({.caller = 7, .cost = 3, .name = name});
  EXPECT_EQ(queue.size(), 4);
  EXPECT_EQ(queue.cost(), 12);
  EXPECT_EQ(Drain(queue), "abcd");
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.cost(), 0);
}

// One caller floods; another's only job is next, whenever it comes.
TEST(FairQueue, WhoComesLaterIsNext) {
  FairQueue<FakeJob> queue;
  for (int i = 0; i < 100; ++i) queue.Push({.caller = 1, .cost = 10, .name = "f"});
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(queue.Pop(true).has_value());
  queue.Push({.caller = 2, .cost = 10, .name = "x"});
  EXPECT_EQ(queue.CostBefore(2), 20) << "its own job, and one of the other";
  EXPECT_EQ(queue.CostBefore(3), 0);
  EXPECT_EQ(queue.Pop(true)->name, "x");
  EXPECT_EQ(queue.Pop(true)->name, "f");
}

// Each gets the same time, not the same number of jobs.
TEST(FairQueue, SharesByCost) {
  FairQueue<FakeJob> queue;
  for (int i = 0; i < 4; ++i) queue.Push({.caller = 1, .cost = 4, .name = "A"});
  for (int i = 0; i < 16; ++i) queue.Push({.caller = 2, .cost = 1, .name = "b"});
  EXPECT_EQ(Drain(queue), "AbbbbAbbbbAbbbbAbbbb");
}

// Who has nothing queued keeps what it was served in mind only as long as the others catch up with it.
TEST(FairQueue, NothingIsSavedUpAndNothingForgottenTooSoon) {
  FairQueue<FakeJob> queue;
  for (int i = 0; i < 10; ++i) queue.Push({.caller = 1, .cost = 1, .name = "f"});
  queue.Push({.caller = 2, .cost = 5, .name = "X"});
  EXPECT_EQ(queue.Pop(true)->name, "f");
  EXPECT_EQ(queue.Pop(true)->name, "X");
  queue.Push({.caller = 2, .cost = 5, .name = "Y"});  // at once: its turn is 5 later
  std::string names;
  for (int i = 0; i < 6; ++i) names += queue.Pop(true)->name;
  EXPECT_EQ(names, "fffffY");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(queue.Pop(true)->name, "f");
  queue.Push({.caller = 3, .cost = 1, .name = "z"});  // was never there: has no credit for that
  queue.Push({.caller = 3, .cost = 1, .name = "z"});
  queue.Push({.caller = 1, .cost = 1, .name = "f"});
  EXPECT_EQ(Drain(queue), "zfzff");
}

TEST(FairQueue, WhatTookLongerIsCharged) {
  FairQueue<FakeJob> queue;
  for (int i = 0; i < 3; ++i) queue.Push({.caller = 1, .cost = 1, .name = "a"});
  for (int i = 0; i < 6; ++i) queue.Push({.caller = 2, .cost = 1, .name = "b"});
  EXPECT_EQ(queue.Pop(true)->name, "a");
  queue.Charge(1, 3);
  queue.Charge(99, 3);  // unknown
  EXPECT_EQ(Drain(queue), "bbbbabab");
}

TEST(FairQueue, LongOnesWaitForTheirLane) {
  FairQueue<FakeJob> queue;
  queue.Push({.caller = 1, .cost = 9, .name = "L", .job_class = JobClass::kLong});
  EXPECT_FALSE(queue.HasNext(false));
  EXPECT_TRUE(queue.HasNext(true));
  queue.Push({.caller = 1, .cost = 1, .name = "s"});
  EXPECT_EQ(queue.size(JobClass::kLong), 1);
  EXPECT_EQ(Drain(queue, /*long_too=*/false), "s") << "passes the long one";
  EXPECT_EQ(Drain(queue), "L");
}

TEST(FairQueue, NewestOfWhoHasMostMakesRoom) {
  FairQueue<FakeJob> queue;
  queue.Push({.caller = 1, .name = "a", .stays = true});
  for (const char* name : {"b", "c", "d"}) queue.Push({.caller = 1, .name = name});
  EXPECT_FALSE(queue.MayDisplace(1)) << "nobody has more";
  EXPECT_TRUE(queue.MayDisplace(2));
  EXPECT_EQ(queue.Displace(2)->name, "d");
  queue.Push({.caller = 2, .name = "x"});
  EXPECT_EQ(queue.Displace(2)->name, "c");
  queue.Push({.caller = 2, .name = "y"});
  EXPECT_FALSE(queue.Displace(2).has_value()) << "both have two";
  EXPECT_EQ(queue.Displace(3)->name, "b");
  EXPECT_EQ(queue.Displace(4)->name, "y");
  EXPECT_EQ(Drain(queue), "ax");
}

TEST(FairQueue, WhatStaysIsNotDisplaced) {
  FairQueue<FakeJob> queue;
  for (int i = 0; i < 4; ++i) queue.Push({.caller = 1, .name = "a", .stays = true});
  EXPECT_FALSE(queue.MayDisplace(2));
  EXPECT_FALSE(queue.Displace(2).has_value());
}

TEST(FairQueue, DisplacesWithinAClass) {
  FairQueue<FakeJob> queue;
  for (int i = 0; i < 2; ++i) queue.Push({.caller = 1, .name = "L", .job_class = JobClass::kLong});
  for (int i = 0; i < 9; ++i) queue.Push({.caller = 3, .name = "s"});
  EXPECT_EQ(queue.Displace(2, JobClass::kLong)->name, "L");
  EXPECT_FALSE(queue.Displace(2, JobClass::kLong).has_value());
}

TEST(FairQueue, DisplacesTheNewestOfAnyClass) {
  for (const bool long_first : {false, true}) {
    FairQueue<FakeJob> queue;
    const FakeJob long_one{.caller = 1, .name = "L", .job_class = JobClass::kLong}, short_one{.caller = 1, .name = "s"};
    for (const bool of_first : {true, true, false, false}) queue.Push(of_first == long_first ? long_one : short_one);
    EXPECT_EQ(queue.Displace(2)->name, long_first ? "s" : "L");
  }
}

TEST(FairQueue, RemovesWhatIsNotWanted) {
  FairQueue<FakeJob> queue;
  for (const char* name : {"a", "b", "c"}) queue.Push({.caller = 1, .name = name});
  queue.Push({.caller = 2, .name = "d"});
  const std::vector<FakeJob> removed =
      queue.RemoveUnless([](const FakeJob& job) { return job.name != "b" && job.name != "d"; });
  ASSERT_EQ(removed.size(), 2U);
  EXPECT_EQ(removed[0].name + removed[1].name, "bd");
  EXPECT_FALSE(queue.Waits(2));
  EXPECT_EQ(Drain(queue), "ac");
}

// Thousands of steps: what comes out went in, counts and costs agree, and callers that always wait get equal time.
TEST(FairQueue, StaysFairAndConsistentUnderRandomUse) {
  std::mt19937 random(5);
  FairQueue<FakeJob> queue;
  std::map<std::uint64_t, double> served;
  int in = 0;
  int out = 0;
  for (int step = 0; step < 20'000; ++step) {
    for (std::uint64_t caller = 0; caller < 3; ++caller) {
      if (queue.Waits(caller)) continue;
      queue.Push({.caller = caller, .cost = 1.0 + static_cast<double>(random() % (caller * 20 + 1))});
      ++in;
    }
    if (random() % 4 == 0) {
      queue.Push({.caller = 3 + random() % 5, .cost = 1, .job_class = JobClass::kLong, .stays = random() % 2 == 0});
      ++in;
    }
    if (random() % 50 == 0) out += queue.Displace(100).has_value() ? 1 : 0;
    if (random() % 50 == 0) {
      const std::uint64_t unwanted = 3 + random() % 5;
      out += static_cast<int>(queue.RemoveUnless([&](const FakeJob& job) { return job.caller != unwanted; }).size());
    }
    const std::optional<FakeJob> job = queue.Pop(random() % 3 != 0);
    if (!job.has_value()) continue;
    ++out;
    served[job->caller] += job->cost;
    ASSERT_EQ(queue.size(), in - out);
  }
  EXPECT_NEAR(served[0] / served[2], 1, 0.1);
  EXPECT_NEAR(served[1] / served[2], 1, 0.1);
}

TEST(StandingDelay, IsThatOfAllJobsForAnInterval) {
  constexpr absl::Duration kTarget = absl::Milliseconds(20);
  const absl::Duration kPart = StandingDelay::kInterval / 4;
  StandingDelay delay(kTarget);
  absl::Time now = absl::UnixEpoch();
  const auto leave = [&](absl::Duration waited, int parts) {
    for (int i = 0; i < parts; ++i) delay.Left(1, waited, now += kPart);
    return delay.IsBehind(1);
  };
  EXPECT_FALSE(leave(2 * kTarget, 4)) << "a burst";
  EXPECT_FALSE(leave(kTarget, 1)) << "worked off in time";
  EXPECT_FALSE(leave(2 * kTarget, 4));
  EXPECT_TRUE(leave(2 * kTarget, 1));
  EXPECT_FALSE(delay.IsBehind(2)) << "another caller";
  EXPECT_TRUE(leave(kTarget / 2, 9)) << "what is admitted waits about that long";
  EXPECT_TRUE(leave(kTarget / 3, 4)) << "a lull";
  EXPECT_TRUE(leave(kTarget, 1));
  EXPECT_TRUE(leave(kTarget / 3, 4));
  EXPECT_FALSE(leave(kTarget / 3, 1)) << "worked off";

  EXPECT_TRUE(leave(2 * kTarget, 5));
  const auto look = [&](bool waits) {
    delay.Look([waits](std::uint64_t) { return waits; }, now += kPart);
    return delay.IsBehind(1);
  };
  EXPECT_TRUE(look(false));
  for (int i = 0; i < 9; ++i) EXPECT_TRUE(look(true)) << "nothing has left";
  EXPECT_FALSE(look(false)) << "has nothing there for an interval";
}

// What a queue does in 20 s of virtual time, after the first: one lane, jobs of 10 ms, and requests at random times
// that are refused as Lanes does it.
struct Outcome {
  double busy = 0;  // the share of the time that the lane works
  absl::Duration p99{};
  int refused = 0;
};
Outcome Simulate(double offered, absl::Duration target) {
  constexpr absl::Duration kService = absl::Milliseconds(10);
  const absl::Time begin = absl::UnixEpoch() + absl::Seconds(1);
  const absl::Time end = begin + absl::Seconds(20);
  std::mt19937 random(3);
  StandingDelay delay(target);
  std::deque<absl::Time> queue;  // when they came
  absl::Time free = absl::UnixEpoch();
  std::vector<absl::Duration> latencies;
  Outcome outcome;
  for (absl::Time now = absl::UnixEpoch(); now < end;) {
    now += kService / offered * -std::log((random() + 1.0) / 4294967297.0);
    for (; !queue.empty() && free <= now; free += kService) {
      free = std::max(free, queue.front());
      const absl::Duration waited = free - queue.front();
      queue.pop_front();
      delay.Left(1, waited, free);
      if (free >= begin) latencies.push_back(waited + kService);
    }
    delay.Look([&](std::uint64_t) { return !queue.empty(); }, now);
    const absl::Duration wait = kService * static_cast<int>(queue.size()) + std::max(free - now, absl::ZeroDuration());
    if (wait > delay.Allowed(1)) {
      ++outcome.refused;
    } else {
      queue.push_back(now);
    }
  }
  std::sort(latencies.begin(), latencies.end());
  outcome.busy = absl::FDivDuration(kService * static_cast<int>(latencies.size()), end - begin);
  outcome.p99 = latencies[latencies.size() * 99 / 100];
  return outcome;
}

TEST(StandingDelay, HoldsTheTargetWhateverTheLoad) {
  constexpr absl::Duration kTarget = absl::Milliseconds(100);
  for (const double offered : {1.2, 2.0, 10.0, 100.0}) {
    const Outcome outcome = Simulate(offered, kTarget);
    EXPECT_GT(outcome.busy, 0.95) << offered;
    EXPECT_LE(outcome.p99, 2 * kTarget) << offered;
  }
  EXPECT_EQ(Simulate(0.5, kTarget).refused, 0);
}

}  // namespace
}  // namespace reduced
