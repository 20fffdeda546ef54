#include "kernels/engine/fair_limit.h"

#include <atomic>
#include <cstdint>
#include <limits>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace reduced {
namespace {

using Taking = FairLimit::Outcome;

// Takes one by one until the caller gets no more; how many it has then.
std::int64_t Fill(FairLimit& limit, std::uint64_t caller) {
  while (limit.Take(caller, 1) == Taking::kTaken) {
  }
  return limit.TakenBy(caller);
}

TEST(FairLimitTest, ACallerLeavesSomethingToOthers) {
  FairLimit limit(1024, 0.75);
  EXPECT_EQ(Fill(limit, 1), 768);
  EXPECT_EQ(Fill(limit, 2), 192);
  EXPECT_EQ(Fill(limit, 3), 48);
  EXPECT_EQ(limit.Take(1, 1), Taking::kOverShare);
  EXPECT_EQ(limit.ShareOf(1), 588) << "of what others leave";
  EXPECT_EQ(limit.taken(), 1008);
}

// Callers who give back and ask again come to have the same.
TEST(FairLimitTest, CallersBecomeEven) {
  FairLimit limit(4096, 0.75);
  for (int round = 0; round < 100; ++round) {
    for (const std::uint64_t caller : {1, 2, 3}) {
      limit.Give(caller, limit.TakenBy(caller) / 2);
      Fill(limit, caller);
    }
  }
  for (const std::uint64_t caller : {1, 2, 3}) EXPECT_NEAR(limit.TakenBy(caller), 0.3 * 4096, 8);
}

TEST(FairLimitTest, SmallLimitsAreRoundedUp) {
  FairLimit one(1, 0.75), two(2, 0.75), four(4, 0.75);
  EXPECT_EQ(Fill(one, 1), 1);
  EXPECT_EQ(Fill(two, 1), 2);
  EXPECT_EQ(Fill(four, 1), 3);
  EXPECT_EQ(Fill(four, 2), 1);
  EXPECT_EQ(one.Take(2, 1), Taking::kFull);
}

TEST(FairLimitTest, NoShareAppliesToNobodyInParticular) {
  FairLimit limit(100, 0.5);
  EXPECT_EQ(Fill(limit, 0), 100);
  EXPECT_EQ(limit.Take(0, 1), Taking::kFull);
  limit.Give(0, 60);
  EXPECT_EQ(Fill(limit, 1), 30);
}

TEST(FairLimitTest, AShareOfOneLeavesNothing) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  FairLimit limit(kMost);
  EXPECT_EQ(limit.Take(7, kMost), Taking::kTaken);
  EXPECT_EQ(limit.Take(8, 1), Taking::kFull);
  EXPECT_EQ(limit.Take(8, kMost), Taking::kFull);
  limit.Give(7, kMost);
  EXPECT_EQ(limit.taken(), 0);
  EXPECT_EQ(limit.TakenBy(7), 0);
  EXPECT_EQ(limit.TakenBy(8), 0);
}

TEST(FairLimitTest, ThreadsTogetherKeepToIt) {
  FairLimit limit(1000, 0.75);
  std::vector<std::thread> threads;
  for (std::uint64_t caller = 1; caller <= 4; ++caller) {
    threads.emplace_back([&limit, caller] {
      for (int i = 0; i < 20000; ++i) {
        if (limit.Take(caller % 2 + 1, 300) != Taking::kTaken) continue;
        EXPECT_LE(limit.taken(), 1000);
        limit.Give(caller % 2 + 1, 300);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(limit.taken(), 0);
  EXPECT_EQ(Fill(limit, 1), 750);
}

}  // namespace
}  // namespace reduced
