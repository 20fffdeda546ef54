#include "server/observe/repeats.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace reduced::server {
namespace {

constexpr absl::Duration kPeriod = absl::Seconds(10);
constexpr absl::Time kStart = absl::UnixEpoch();

TEST(RepeatsTest, TheFirstFewOfAPeriod) {
  Repeats repeats(2, kPeriod);
  EXPECT_TRUE(repeats.Admit("a", kStart));
  EXPECT_TRUE(repeats.Admit("a", kStart));
  EXPECT_FALSE(repeats.Admit("a", kStart + kPeriod / 2));
  EXPECT_TRUE(repeats.Admit("b", kStart)) << "of another kind";
  EXPECT_TRUE(repeats.TakeSuppressed(kStart + kPeriod / 2).empty()) << "the period is not over";

  const auto over = repeats.TakeSuppressed(kStart + kPeriod);
  ASSERT_EQ(over.size(), 1U) << "nothing of b was kept back";
  EXPECT_EQ(over[0].kind, "a");
  EXPECT_EQ(over[0].count, 1);
  EXPECT_TRUE(repeats.TakeSuppressed(kStart + kPeriod).empty()) << "said once";
  EXPECT_TRUE(repeats.Admit("a", kStart + kPeriod)) << "a new period";
}

TEST(RepeatsTest, WhatIsLeftAtTheEnd) {
  Repeats repeats(1, kPeriod);
  for (int i = 0; i < 5; ++i) repeats.Admit("a", kStart);
  const auto over = repeats.TakeSuppressed(absl::InfiniteFuture());
  ASSERT_EQ(over.size(), 1U);
  EXPECT_EQ(over[0].count, 4);
}

TEST(RepeatsTest, KindsAreLimited) {
  Repeats repeats(1, kPeriod);
  int said = 0;
  for (int i = 0; i < 10'000; ++i) said += repeats.Admit(absl::StrCat("kind ", i), kStart) ? 1 : 0;
  EXPECT_LE(said, 257);
  const auto over = repeats.TakeSuppressed(kStart + kPeriod);
  ASSERT_EQ(over.size(), 1U);
  EXPECT_EQ(over[0].kind, "others");
  EXPECT_EQ(over[0].count, 10'000 - said);
}

}  // namespace
}  // namespace reduced::server
