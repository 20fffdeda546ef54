// Dates and times in ISO 8601, and their buckets.
#include "client/reducectl/input/dates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>

namespace reduced::client {
namespace {

std::optional<std::int64_t> Seconds(const std::string& text) {
  const std::optional<DateTime> time = ParseDateTime(text);
  return time.has_value() ? std::optional(time->seconds) : std::nullopt;
}

// The label of the bucket that a time is in.
std::string Label(const std::string& unit, const std::string& text) {
  std::optional<Bucket> bucket;
  EXPECT_EQ(ParseBucket(unit, &bucket), "");
  const std::int64_t start = BucketStart(*bucket, Seconds(text).value());
  EXPECT_EQ(BucketStart(*bucket, start), start);  // a bucket has its own beginning
  return BucketText(*bucket, start);
}

TEST(DatesTest, Times) {
  EXPECT_EQ(Seconds("1970-01-01"), 0);
  EXPECT_EQ(Seconds(" 1969-12-31T23:59:59 "), -1);
  EXPECT_EQ(Seconds("2000-03-01"), 951868800);
  EXPECT_EQ(Seconds("2024-02-29 12:30"), 1709209800);
  EXPECT_EQ(Seconds("2024-02-29t12:30:15.999"), 1709209815);
  for (const char* const same : {"2024-02-29T12:30Z", "2024-02-29T14:30+02:00", "2024-02-29T14:30+0200",
                                 "2024-02-29T14:30+02", "2024-02-29T07:00:00.5-05:30", "2024-02-29 12:30:00z"}) {
    EXPECT_EQ(Seconds(same), 1709209800) << same;
    EXPECT_TRUE(ParseDateTime(same)->offset) << same;
  }
  EXPECT_FALSE(ParseDateTime("2024-02-29T12:30")->offset);
  EXPECT_EQ(Seconds("0000-01-01"), -62167219200);
  EXPECT_EQ(Seconds("9999-12-31T23:59:59"), 253402300799);
}

TEST(DatesTest, WhatIsNone) {
  for (const char* const text : {"",
                                 "2024",
                                 "2024-02",
                                 "20240229",
                                 "2023-02-29",
                                 "2024-00-01",
                                 "2024-01-00",
                                 "2024-1-1",
                                 "24-01-01",
                                 "-2024-01-01",
                                 "+2024-01-01",
                                 "2024-01-01T",
                                 "2024-01-01T12",
                                 "2024-01-01T24:00",
                                 "2024-01-01T12:60",
                                 "2024-01-01T12:00:60",
                                 "2024-01-01T12:00:0",
                                 "2024-01-01T12:00:00.",
                                 "2024-01-01Z",
                                 "2024-01-01+02:00",
                                 "2024-01-01T12:00+",
                                 "2024-01-01T12:00+2",
                                 "2024-01-01T12:00+24:00",
                                 "2024-01-01T12:00+02:60",
                                 "2024-01-01T12:00+02:",
                                 "2024-01-01T12:00ZZ",
                                 "2024-01-01  12:00",
                                 "2024/01/01",
                                 "2024-01-01T12:00 Z",
                                 "x"}) {
    EXPECT_FALSE(ParseDateTime(text).has_value()) << text;
  }
}

TEST(DatesTest, Buckets) {
  const std::string time = "2026-08-30T17:44:59";  // a Sunday
  EXPECT_EQ(Label("year", time), "2026");
  EXPECT_EQ(Label("quarter", time), "2026-07");
  EXPECT_EQ(Label("month", time), "2026-08");
  EXPECT_EQ(Label("week", time), "2026-08-24");
  EXPECT_EQ(Label("week", "2026-08-24"), "2026-08-24");
  EXPECT_EQ(Label("week", "2026-01-01"), "2025-12-29");
  EXPECT_EQ(Label("day", time), "2026-08-30");
  EXPECT_EQ(Label("hour", time), "2026-08-30T17:00");
  EXPECT_EQ(Label("6h", time), "2026-08-30T12:00");
  EXPECT_EQ(Label("24h", time), "2026-08-30T00:00");
  EXPECT_EQ(Label("15m", time), "2026-08-30T17:30");
  EXPECT_EQ(Label("1440m", time), "2026-08-30T00:00");
  EXPECT_EQ(Label("second", time), "2026-08-30T17:44:59");
  EXPECT_EQ(Label("30s", time), "2026-08-30T17:44:30");
  // Before 1970, when seconds are negative.
  EXPECT_EQ(Label("6h", "1969-12-31T23:59:59"), "1969-12-31T18:00");
  EXPECT_EQ(Label("6h", "1969-12-31T18:00"), "1969-12-31T18:00");
  EXPECT_EQ(Label("quarter", "1969-12-31"), "1969-10");
  EXPECT_EQ(Label("week", "1969-12-31"), "1969-12-29");
}

TEST(DatesTest, WhatIsNoBucket) {
  std::optional<Bucket> bucket;
  for (const char* const text : {"", "days", "Day", "7m", "5h", "0s", "25h", "86401s", "-1h", "+1h", "1 h", "1.5h",
                                 "1d", "2w", "99999999999999999999s"}) {
    EXPECT_THAT(ParseBucket(text, &bucket), testing::HasSubstr("; allowed: ")) << text;
  }
}

}  // namespace
}  // namespace reduced::client
