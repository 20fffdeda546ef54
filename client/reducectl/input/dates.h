// Dates and times in ISO 8601, and the buckets that they fall in.
#ifndef REDUCED_CLIENT_REDUCECTL_INPUT_DATES_H_
#define REDUCED_CLIENT_REDUCECTL_INPUT_DATES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace reduced::client {

// A point in time to the second.
struct DateTime {
  std::int64_t seconds = 0;  // since 1970-01-01T00:00, of UTC if there is an offset, else of wherever it was written
  bool offset = false;       // it ends with Z or an offset, such as +02:00
};

// "2026-03-01", "2026-03-01T06:30", "2026-03-01 06:30:15.25", each but the first also with Z, +02:00, +0200 or +02 at
// its end. Blanks at the ends are ignored, and so are fractions of a second. Absent: it is none.
std::optional<DateTime> ParseDateTime(absl::string_view text);

// Stretches of the calendar, one after the other.
struct Bucket {
  enum class Unit { kYear, kQuarter, kMonth, kWeek, kDay, kHour, kMinute, kSecond };

  Unit unit = Unit::kDay;
  std::int64_t count = 1;  // of hours, minutes and seconds, which divide a day
};

// "month", "15m", "6h": a unit, or a multiple of h, m or s of which a whole number is a day. Returns what is wrong;
// empty: nothing is.
std::string ParseBucket(const std::string& text, std::optional<Bucket>* bucket);

// "year", "quarter", ..., "second".
std::vector<std::string> BucketUnits();

// The first second of the bucket that has this one. Weeks begin on Monday.
std::int64_t BucketStart(const Bucket& bucket, std::int64_t seconds);

// "2026", "2026-03", "2026-03-01", "2026-03-01T06:00", "2026-03-01T06:00:15": as much as the unit needs.
std::string BucketText(const Bucket& bucket, std::int64_t start);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_INPUT_DATES_H_
