// Medians, quartiles and spreads.
#include "client/reducectl/output/statistics.h"

#include <gtest/gtest.h>

#include <vector>

namespace reduced::client {
namespace {

void Expect(const std::vector<double>& samples, const Summary& want) {
  const Summary summary = Summarize(samples);
  EXPECT_DOUBLE_EQ(summary.min, want.min);
  EXPECT_DOUBLE_EQ(summary.lower_quartile, want.lower_quartile);
  EXPECT_DOUBLE_EQ(summary.median, want.median);
  EXPECT_DOUBLE_EQ(summary.upper_quartile, want.upper_quartile);
  EXPECT_DOUBLE_EQ(summary.max, want.max);
}

TEST(Summarize, TakesSamplesInAnyOrder) {
  Expect({5, 1, 4, 2, 3}, {1, 2, 3, 4, 5});
  Expect({3, 5, 2, 4, 1}, {1, 2, 3, 4, 5});
}

TEST(Summarize, InterpolatesBetweenSamples) {
  Expect({10, 20}, {10, 12.5, 15, 17.5, 20});
  Expect({4, 3, 2, 1}, {1, 1.75, 2.5, 3.25, 4});
}

TEST(Summarize, OneSampleIsEverything) {
  Expect({7}, {7, 7, 7, 7, 7});
  EXPECT_EQ(Summarize({7}).Spread(), 0);
}

TEST(Summarize, OutliersDontCount) {
  const Summary summary = Summarize({98, 99, 100, 101, 1e9});
  EXPECT_EQ(summary.median, 100);
  EXPECT_DOUBLE_EQ(summary.Spread(), 0.01);
}

}  // namespace
}  // namespace reduced::client
