#include "client/reducectl/input/dates.h"

#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/civil_time.h"
#include "client/reducectl/input/number.h"

namespace reduced::client {
namespace {

constexpr std::int64_t kDay = 24 * 60 * 60;
constexpr absl::CivilSecond kEpoch(1970, 1, 1);

// Takes so many digits off the text, and what separates them from those before.
bool Take(absl::string_view separator, std::size_t digits, absl::string_view* text, int* number) {
  if (!absl::ConsumePrefix(text, separator) || text->size() < digits) return false;
  *number = 0;
  for (std::size_t i = 0; i < digits; ++i) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>((*text)[i]))) return false;
    *number = *number * 10 + ((*text)[i] - '0');
  }
  text->remove_prefix(digits);
  return true;
}

// The offset at the end of a time, in seconds. False: it is none.
bool TakeOffset(absl::string_view text, std::int64_t* offset) {
  *offset = 0;
  if (text == "Z" || text == "z") return true;
  const bool west = absl::StartsWith(text, "-");
  int hours = 0, minutes = 0;
  if (!Take(west ? "-" : "+", 2, &text, &hours)) return false;
  if (!text.empty() && !Take(absl::StartsWith(text, ":") ? ":" : "", 2, &text, &minutes)) return false;
  *offset = (west ? -60 : 60) * (60 * hours + minutes);
  return text.empty() && hours < 24 && minutes < 60;
}

struct Unit {
  absl::string_view name;
  absl::string_view letter;  // that multiples are written with; empty: there are none
  Bucket::Unit unit;
  std::int64_t seconds;
};
constexpr Unit kUnits[] = {
    {"year", "", Bucket::Unit::kYear, 0},       {"quarter", "", Bucket::Unit::kQuarter, 0},
    {"month", "", Bucket::Unit::kMonth, 0},     {"week", "", Bucket::Unit::kWeek, 0},
    {"day", "", Bucket::Unit::kDay, kDay},      {"hour", "h", Bucket::Unit::kHour, 60 * 60},
    {"minute", "m", Bucket::Unit::kMinute, 60}, {"second", "s", Bucket::Unit::kSecond, 1},
};

}  // namespace

std::optional<DateTime> ParseDateTime(absl::string_view text) {
  text = Strip(text);
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0;
  if (!Take("", 4, &text, &year) || !Take("-", 2, &text, &month) || !Take("-", 2, &text, &day)) return std::nullopt;
  const bool timed = !text.empty();
  if (timed) {
    const absl::string_view separator = absl::StartsWith(text, " ") ? " " : absl::StartsWith(text, "t") ? "t" : "T";
    if (!Take(separator, 2, &text, &hour) || !Take(":", 2, &text, &minute)) return std::nullopt;
    if (absl::StartsWith(text, ":") && !Take(":", 2, &text, &second)) return std::nullopt;
    if (absl::StartsWith(text, ".") || absl::StartsWith(text, ",")) {
      int digit = 0;
      text.remove_prefix(1);
      if (!Take("", 1, &text, &digit)) return std::nullopt;
      while (Take("", 1, &text, &digit)) {
      }
    }
  }
  std::int64_t offset = 0;
  const bool has_offset = timed && !text.empty();
  if (has_offset && !TakeOffset(text, &offset)) return std::nullopt;
  if (!has_offset && !text.empty()) return std::nullopt;
  // Of what is beyond the calendar, such as February 30, a civil time would be another.
  const absl::CivilSecond time(year, month, day, hour, minute, second);
  if (time.month() != month || time.day() != day || time.hour() != hour || time.minute() != minute ||
      time.second() != second) {
    return std::nullopt;
  }
  return DateTime{.seconds = (time - kEpoch) - offset, .offset = has_offset};
}

std::string ParseBucket(const std::string& text, std::optional<Bucket>* bucket) {
  for (const Unit& unit : kUnits) {
    if (text == unit.name) {
      *bucket = Bucket{unit.unit, 1};
      return "";
    }
    absl::string_view number = text;
    std::int64_t count = 0;
    if (unit.letter.empty() || !absl::ConsumeSuffix(&number, unit.letter) ||
        number.find_first_not_of("0123456789") != absl::string_view::npos || !absl::SimpleAtoi(number, &count)) {
      continue;
    }
    if (count < 1 || count > kDay / unit.seconds || kDay % (count * unit.seconds) != 0) {
      return absl::StrCat("got \"", text, "\"; allowed: a number of ", unit.name, "s that divides a day");
    }
    *bucket = Bucket{unit.unit, count};
    return "";
  }
  return absl::StrCat("got \"", text, "\"; allowed: ", absl::StrJoin(BucketUnits(), ", "), ", or like 6h, 15m, 30s");
}

std::vector<std::string> BucketUnits() {
  std::vector<std::string> names;
  for (const Unit& unit : kUnits) names.emplace_back(unit.name);
  return names;
}

std::int64_t BucketStart(const Bucket& bucket, std::int64_t seconds) {
  const absl::CivilSecond time = kEpoch + seconds;
  const auto from_epoch = [](const auto& civil) { return absl::CivilSecond(civil) - kEpoch; };
  switch (bucket.unit) {
    case Bucket::Unit::kYear:
      return from_epoch(absl::CivilYear(time));
    case Bucket::Unit::kQuarter:
      return from_epoch(absl::CivilMonth(time.year(), (time.month() - 1) / 3 * 3 + 1));
    case Bucket::Unit::kMonth:
      return from_epoch(absl::CivilMonth(time));
    case Bucket::Unit::kWeek:
      return from_epoch(absl::PrevWeekday(absl::CivilDay(time) + 1, absl::Weekday::monday));
    case Bucket::Unit::kDay:
      return from_epoch(absl::CivilDay(time));
    case Bucket::Unit::kHour:
    case Bucket::Unit::kMinute:
    case Bucket::Unit::kSecond:
      break;
  }
  const std::int64_t unit = bucket.unit == Bucket::Unit::kHour     ? 60 * 60
                            : bucket.unit == Bucket::Unit::kMinute ? 60
                                                                   : 1;
  const std::int64_t width = bucket.count * unit;
  const std::int64_t after = seconds % width;  // of a time before 1970 it is negative
  return seconds - after - (after < 0 ? width : 0);
}

std::string BucketText(const Bucket& bucket, std::int64_t start) {
  const absl::CivilSecond time = kEpoch + start;
  switch (bucket.unit) {
    case Bucket::Unit::kYear:
      return absl::StrFormat("%04d", time.year());
    case Bucket::Unit::kQuarter:
    case Bucket::Unit::kMonth:
      return absl::StrFormat("%04d-%02d", time.year(), time.month());
    case Bucket::Unit::kWeek:
    case Bucket::Unit::kDay:
      return absl::StrFormat("%04d-%02d-%02d", time.year(), time.month(), time.day());
    case Bucket::Unit::kHour:
    case Bucket::Unit::kMinute:
      return absl::StrFormat("%04d-%02d-%02dT%02d:%02d", time.year(), time.month(), time.day(), time.hour(),
                             time.minute());
    case Bucket::Unit::kSecond:
      break;
  }
  return absl::StrFormat("%04d-%02d-%02dT%02d:%02d:%02d", time.year(), time.month(), time.day(), time.hour(),
                         time.minute(), time.second());
}

}  // namespace reduced::client
