// Fields of texts as numbers: how they are written, and which of them are missing values.
#ifndef REDUCED_CLIENT_REDUCECTL_INPUT_NUMBER_H_
#define REDUCED_CLIENT_REDUCECTL_INPUT_NUMBER_H_

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <system_error>
#include <type_traits>
#include <vector>

#include "absl/strings/string_view.h"

namespace reduced::client {

// How numbers are written.
struct NumberStyle {
  // What may be between groups of three digits. kAny: the one of point and comma that is not the decimal point, an
  // apostrophe or a space, also one that doesn't break or is thin; the same in all of a number.
  enum class Groups { kNone, kCommas, kAny };

  char decimal = '.';  // or ','
  Groups groups = Groups::kNone;
};

// `field` without blanks at its ends.
absl::string_view Strip(absl::string_view field);

// Whether `field` is a missing value: it is empty, or NA, N/A, NaN, null, None, <NA>, #N/A, -NaN or NaN(ind)
// in any case.
bool IsMissing(absl::string_view field);
// True or False in any case.
std::optional<bool> ParseBool(absl::string_view field);
// Whether `field`, without blanks, is a whole number in digits, with a sign or not.
bool IsInteger(absl::string_view field);
// Whether `field` is a number, True or False.
bool IsNumber(absl::string_view field, NumberStyle style);
// Whether `field` begins like a number: with a digit, after signs, a point or a currency.
bool BeginsLikeNumber(absl::string_view field);

// The number without groups and with a decimal point, as std::from_chars takes it. What isn't written in this style is
// returned as it is, if from_chars doesn't take it, or is empty. `copy`: where the result is if `field` had to change.
absl::string_view Plain(absl::string_view field, NumberStyle style, std::string* copy);
// How --decimal would read `field`, for messages; empty: as no number, too.
std::string OtherReadings(absl::string_view field);

// The values that count as missing, beside those that IsMissing() knows: words, of which some may be numbers, which
// then are missing however they are written.
class MissingWords {
 public:
  MissingWords(std::vector<std::string> words, NumberStyle style);

  bool Has(absl::string_view field) const;
  bool has_numbers() const { return !numbers_.empty(); }
  bool Has(std::int64_t number) const;
  bool Has(double number) const;

 private:
  struct Number {
    double real;
    std::optional<std::int64_t> whole;
  };
  std::vector<std::string> words_;
  std::vector<Number> numbers_;
};

// The nearest T. Absent: `field` isn't a number, or is too large for T.
template <class T>
std::optional<T> ParseFloat(absl::string_view field) {
  T value = 0;
  const char* const last = field.data() + field.size();
  const auto [end, error] = std::from_chars(field.data(), last, value);
  if (end != last || field.empty()) return std::nullopt;
  if (error == std::errc()) return value;
  if (error != std::errc::result_out_of_range) return std::nullopt;
  // Too large for T, which is an error, or so small that it is 0 or subnormal.
  const std::string text(field);
  const T nearest = std::is_same_v<T, float> ? std::strtof(text.c_str(), nullptr) : std::strtod(text.c_str(), nullptr);
  return std::isinf(nearest) ? std::nullopt : std::optional<T>(nearest);
}

// Absent: `field` isn't a whole number that T can hold.
template <class T>
std::optional<T> ParseInteger(absl::string_view field) {
  T value = 0;
  const char* const last = field.data() + field.size();
  const auto [end, error] = std::from_chars(field.data(), last, value);
  if (end != last || field.empty() || error != std::errc()) return std::nullopt;
  return value;
}

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_INPUT_NUMBER_H_
