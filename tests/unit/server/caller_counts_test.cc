#include "server/observe/caller_counts.h"

#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace reduced::server {
namespace {

// Calls by "kind caller", of those that have a row.
std::map<std::string, std::uint64_t> Calls(const CallerCounts& counts) {
  std::map<std::string, std::uint64_t> calls;
  for (const CallerCounts::Row& row : counts.Read()) {
    EXPECT_TRUE(
        calls.emplace(absl::StrCat(std::string(row.kind), " ", row.name), row.counts[CallerCounts::kCalls]).second)
        << "a row of its own for each: " << row.name;
  }
  return calls;
}

Caller Peer(int i) { return Caller("", absl::StrCat("192.0.2.", i)); }

TEST(CallerCountsTest, EachCallerByWhatItIs) {
  CallerCounts counts;
  for (const char* identity : {"alice", "other", "192.0.2.1", "a\\n", "a\n", "\xff"}) {
    counts.AddCall(Caller(identity), true, 8);
  }
  counts.AddCall(Peer(1), true, 8);
  counts.AddCall(Peer(1), false, 8);
  counts.AddUnauthenticated(Peer(1));
  counts.AddUnauthenticated(Caller());
  const std::map<std::string, std::uint64_t> calls = Calls(counts);
  EXPECT_EQ(calls.size(), 8U);
  for (const auto& [caller, count] : calls) {
    EXPECT_EQ(count, caller == "peer 192.0.2.1" ? 2U : caller == "other other" ? 0U : 1U) << caller;
  }
  EXPECT_EQ(calls.count("identity a\\\\n"), 1U);
  for (const CallerCounts::Row& row : counts.Read()) {
    if (row.kind == "identity") continue;
    EXPECT_EQ(row.counts, row.kind == "peer" ? (CallerCounts::Counts{2, 1, 1, 8}) : (CallerCounts::Counts{0, 0, 1, 0}));
  }
}

TEST(CallerCountsTest, ThoseBeyondTheMostAreCountedTogether) {
  CallerCounts counts;
  constexpr int kCallers = 3 * static_cast<int>(CallerCounts::kMost);
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < kCallers; ++i) counts.AddCall(Peer(i), true, 0);
    counts.Tick();
  }
  const std::map<std::string, std::uint64_t> calls = Calls(counts);
  EXPECT_EQ(calls.size(), CallerCounts::kMost + 1);
  EXPECT_EQ(calls.at("other other"), 2 * (kCallers - CallerCounts::kMost));
  EXPECT_EQ(calls.at("peer 192.0.2.0"), 2U);
}

TEST(CallerCountsTest, AnIdleCallerGivesItsPlace) {
  CallerCounts counts;
  for (int i = 0; i < static_cast<int>(CallerCounts::kMost); ++i) counts.AddCall(Peer(i), true, 0);
  const auto pass = [&counts](int ticks) {
    for (int i = 0; i < ticks; ++i) {
      for (int busy = 1; busy < static_cast<int>(CallerCounts::kMost); ++busy) counts.AddCall(Peer(busy), true, 0);
      counts.Tick();
    }
  };
  pass(CallerCounts::kIdle - 1);
  counts.AddCall(Caller("late"), true, 0);
  EXPECT_EQ(Calls(counts).at("other other"), 1U) << "none was idle for so long";
  pass(2);
  counts.AddCall(Caller("late"), true, 0);
  counts.AddCall(Peer(0), true, 0);
  const std::map<std::string, std::uint64_t> calls = Calls(counts);
  EXPECT_EQ(calls.at("identity late"), 1U);
  EXPECT_EQ(calls.count("peer 192.0.2.0"), 0U);
  EXPECT_EQ(calls.at("peer 192.0.2.1"), 2U + CallerCounts::kIdle);
  EXPECT_EQ(calls.at("other other"), 2U) << "it never falls";
}

TEST(CallerCountsTest, ThreadsLoseNothing) {
  CallerCounts counts;
  constexpr int kThreads = 4, kCallers = 200, kRounds = 50;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&counts] {
      for (int round = 0; round < kRounds; ++round) {
        for (int i = 0; i < kCallers; ++i) counts.AddCall(Peer(i), true, 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::uint64_t calls = 0;
  for (const auto& [caller, count] : Calls(counts)) calls += count;
  EXPECT_EQ(calls, std::uint64_t{kThreads} * kCallers * kRounds);
}

}  // namespace
}  // namespace reduced::server
