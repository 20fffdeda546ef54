#include "server/observe/histogram.h"

#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace reduced::server {
namespace {

constexpr std::array<std::int64_t, 3> kBounds = {10, 20, 40};

TEST(HistogramTest, BoundsRise) {
  EXPECT_EQ(kTimeBoundsNs.front(), 1000);
  EXPECT_EQ(kTimeBoundsNs.back(), 100'000'000'000);
  EXPECT_EQ(kByteBounds.back(), std::int64_t{64} << 36);
  EXPECT_TRUE(std::is_sorted(kTimeBoundsNs.begin(), kTimeBoundsNs.end()));
  EXPECT_TRUE(std::is_sorted(kByteBounds.begin(), kByteBounds.end()));
}

TEST(HistogramTest, ABoundIsOfTheValuesBelow) {
  Histogram<kBounds> histogram;
  for (const std::int64_t value : {0, 10, 11, 40, 41, 1000}) histogram.Add(value);
  const auto counts = histogram.Read();
  EXPECT_EQ(counts.counts, (std::array<std::uint64_t, 4>{2, 1, 1, 2}));
  EXPECT_EQ(counts.sum, 1102);
  EXPECT_EQ(counts.total(), 6U);
}

TEST(HistogramTest, ThreadsLoseNothing) {
  constexpr int kThreads = 4;
  constexpr int kEach = 20'000;
  Histogram<kBounds> histogram;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&histogram] {
      for (int i = 0; i < kEach; ++i) histogram.Add(i % 50);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(histogram.Read().total(), std::uint64_t{kThreads} * kEach);
  EXPECT_EQ(histogram.Read().sum, std::int64_t{kThreads} * kEach / 50 * (49 * 50 / 2));
}

TEST(QuantileTest, BetweenTheBounds) {
  HistogramCounts<3> counts;
  EXPECT_EQ(Quantile(counts, kBounds, 0.5), 0);
  counts.counts = {0, 4, 0, 0};
  EXPECT_DOUBLE_EQ(Quantile(counts, kBounds, 0.5), 15);
  EXPECT_DOUBLE_EQ(Quantile(counts, kBounds, 1), 20);
  counts.counts = {1, 0, 1, 0};
  EXPECT_DOUBLE_EQ(Quantile(counts, kBounds, 0.25), 5);
  EXPECT_DOUBLE_EQ(Quantile(counts, kBounds, 0.75), 30);
  counts.counts = {0, 0, 0, 5};
  EXPECT_DOUBLE_EQ(Quantile(counts, kBounds, 0.5), 40) << "beyond the last bound nothing is known";
}

TEST(QuantileTest, OfWhatCameSince) {
  Histogram<kBounds> histogram;
  histogram.Add(5);
  const auto before = histogram.Read();
  histogram.Add(30);
  const auto since = histogram.Read().Since(before);
  EXPECT_EQ(since.total(), 1U);
  EXPECT_EQ(since.sum, 30);
}

}  // namespace
}  // namespace reduced::server
