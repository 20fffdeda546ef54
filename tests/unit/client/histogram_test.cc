// Histograms against what sorting the samples gives.
#include "client/reducectl/loadtest/histogram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"

namespace reduced::client {
namespace {

constexpr double kPercents[] = {0.001, 1, 10, 25, 50, 75, 90, 99, 99.9, 99.99, 99.999, 100};

// The least sample that `percent` of them don't exceed.
std::int64_t Exact(const std::vector<std::int64_t>& sorted, double percent) {
  const double rank = std::ceil(percent / 100 * static_cast<double>(sorted.size()) * (1 - 1e-9));
  return sorted[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

void ExpectClose(const Histogram& histogram, std::vector<std::int64_t> samples) {
  std::sort(samples.begin(), samples.end());
  ASSERT_EQ(histogram.count(), static_cast<std::int64_t>(samples.size()));
  for (const double percent : kPercents) {
    const auto exact = static_cast<double>(Exact(samples, percent));
    EXPECT_NEAR(histogram.PercentileNs(percent), exact, exact * Histogram::kRelativeError) << percent;
  }
  EXPECT_EQ(histogram.min_ns(), samples.front());
  EXPECT_EQ(histogram.max_ns(), samples.back());
  double sum = 0;
  for (const std::int64_t sample : samples) sum += static_cast<double>(sample);
  EXPECT_NEAR(histogram.MeanNs(), sum / static_cast<double>(samples.size()), 1e-9 * sum);
}

TEST(Histogram, IsWithinTheStatedErrorOfSortedSamples) {
  static_assert(Histogram::kRelativeError <= 0.01);
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> lognormal(11, 2);
  std::uniform_real_distribution<double> exponent(0, 39.9);
  std::exponential_distribution<double> exponential(1e-6);
  const std::vector<std::function<double()>> kinds = {
      [&] { return lognormal(random); },
      [&] { return std::exp2(exponent(random)); },
      [&] { return exponential(random); },
      [&] { return random() % 1000 == 0 ? 5e9 : 4e4 + static_cast<double>(random() % 1000); },
  };
  for (const auto& draw : kinds) {
    Histogram histogram;
    std::vector<std::int64_t> samples;
    for (int i = 0; i < 50'000; ++i) {
      samples.push_back(static_cast<std::int64_t>(std::min(draw(), static_cast<double>(Histogram::kMaxNs))));
      histogram.Record(samples.back());
    }
    ExpectClose(histogram, samples);
  }
}

TEST(Histogram, EveryPowerOfTwoAndItsNeighboursHaveTheirBucket) {
  for (int bit = 0; bit < 40; ++bit) {
    for (const std::int64_t off : {-1, 0, 1}) {
      const std::int64_t ns = (std::int64_t{1} << bit) + off;
      Histogram histogram;
      histogram.Record(ns);
      const std::vector<Histogram::Bucket> buckets = histogram.Buckets();
      ASSERT_EQ(buckets.size(), 1U);
      EXPECT_LE(buckets[0].low_ns, ns);
      EXPECT_GE(buckets[0].high_ns, ns);
      EXPECT_EQ(buckets[0].count, 1);
      EXPECT_TRUE(ns >= 256 || buckets[0].low_ns == buckets[0].high_ns);
      EXPECT_EQ(histogram.PercentileNs(50), static_cast<double>(ns));  // of one sample everything is known
    }
  }
}

TEST(Histogram, MergedAreWhatOneWouldHaveBeen) {
  std::mt19937_64 random(8);
  std::vector<std::int64_t> samples;
  Histogram parts[3], merged;
  for (int i = 0; i < 30'000; ++i) {
    samples.push_back(static_cast<std::int64_t>(random() % (std::uint64_t{1} << (i % 40))));
    parts[i % 3].Record(samples.back());
  }
  merged.Merge(Histogram());
  for (const Histogram& part : parts) merged.Merge(part);
  merged.Merge(Histogram());
  ExpectClose(merged, samples);
  Histogram one, first;
  one.Record(5'000);
  first.Merge(one);
  EXPECT_EQ(first.min_ns(), 5'000);
  merged.Clear();
  EXPECT_EQ(merged.count(), 0);
  EXPECT_EQ(merged.PercentileNs(99), 0);
  EXPECT_THAT(merged.Buckets(), ::testing::IsEmpty());
}

TEST(Histogram, WhatIsOutOfRangeCounts) {
  Histogram histogram;
  histogram.Record(-5);
  histogram.Record(std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(histogram.count(), 2);
  EXPECT_EQ(histogram.min_ns(), 0);
  EXPECT_EQ(histogram.max_ns(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(histogram.PercentileNs(50), 0);
}

// p99.9 of 1000 samples is the 999th, although 0.999 x 1000 is a little more than 999 in floating point.
TEST(Histogram, PercentilesAreRanks) {
  for (const std::int64_t scale : {1, 10, 1000}) {
    Histogram histogram;
    for (std::int64_t i = 0; i < 999 * scale; ++i) histogram.Record(1'000'000);
    for (std::int64_t i = 0; i < scale; ++i) histogram.Record(5'000'000'000);
    EXPECT_NEAR(histogram.PercentileNs(99.9), 1e6, 1e4) << scale;
    EXPECT_NEAR(histogram.PercentileNs(99.91), 5e9, 5e7) << scale;
    EXPECT_EQ(histogram.PercentileNs(100), 5e9) << scale;
  }
}

TEST(Histogram, LogIsWhatPlottersRead) {
  Histogram histogram;
  for (int i = 1; i <= 1000; ++i) histogram.Record(i * 1'000'000);
  const std::vector<std::string> lines = absl::StrSplit(histogram.PercentileLog(), '\n');
  EXPECT_THAT(lines[0], ::testing::ContainsRegex("Value +Percentile +TotalCount +1/\\(1-Percentile\\)"));
  double last_value = 0, last_fraction = -1;
  int rows = 0;
  for (const std::string& line : lines) {
    double value = 0, fraction = 0;
    std::int64_t count = 0;
    if (std::sscanf(line.c_str(), "%lf %lf %ld", &value, &fraction, &count) != 3) continue;
    EXPECT_GE(value, last_value);
    EXPECT_GT(fraction, last_fraction);
    EXPECT_NEAR(value, static_cast<double>(count), 0.01 * static_cast<double>(count));
    EXPECT_GE(static_cast<double>(count), fraction * 1000 - 1e-6);
    last_value = value;
    last_fraction = fraction;
    ++rows;
  }
  EXPECT_GT(rows, 30);
  EXPECT_EQ(last_value, 1000);
  EXPECT_EQ(last_fraction, 1);
}

}  // namespace
}  // namespace reduced::client
