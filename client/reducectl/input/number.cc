#include "client/reducectl/input/number.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace reduced::client {
namespace {

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }

// A space, one that doesn't break, a narrow one that doesn't, a thin one; an apostrophe, and a typographer's.
constexpr absl::string_view kSeparators[] = {" ", "\u00a0", "\u202f", "\u2009", "'", "\u2019"};

// Removes the separator that `text` begins with, which must be the one before, if there was any.
bool TakeSeparator(absl::string_view* text, NumberStyle style, absl::string_view* before) {
  const auto take = [&](absl::string_view separator) {
    if ((!before->empty() && *before != separator) || !absl::ConsumePrefix(text, separator)) return false;
    *before = separator;
    return true;
  };
  if (style.groups == NumberStyle::Groups::kNone) return false;
  if (take(style.decimal == ',' ? "." : ",")) return true;
  return style.groups == NumberStyle::Groups::kAny && std::any_of(std::begin(kSeparators), std::end(kSeparators), take);
}

std::size_t Digits(absl::string_view text) {
  return static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), IsDigit) - text.begin());
}

// Writes -1,234,567.8 without its groups: three digits each but the first, which has at least one and is no 0. Returns
// false if `text` isn't a number with groups.
bool RemoveGroups(absl::string_view text, NumberStyle style, std::string* plain) {
  plain->clear();
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    if (text[0] == '-') plain->push_back('-');
    text.remove_prefix(1);
  }
  std::size_t digits = Digits(text);
  if (digits == 0 || digits > 3 || text[0] == '0') return false;
  absl::string_view separator;
  for (;;) {
    absl::StrAppend(plain, text.substr(0, digits));
    text.remove_prefix(digits);
    if (!TakeSeparator(&text, style, &separator)) break;
    digits = 3;
    if (Digits(text) != digits) return false;
  }
  if (separator.empty()) return false;
  if (!text.empty() && text[0] == style.decimal) {
    digits = Digits(text.substr(1));
    absl::StrAppend(plain, ".", text.substr(1, digits));
    text.remove_prefix(1 + digits);
  }
  return text.empty();
}

}  // namespace

absl::string_view Strip(absl::string_view field) {
  while (!field.empty() && IsBlank(field.front())) field.remove_prefix(1);
  while (!field.empty() && IsBlank(field.back())) field.remove_suffix(1);
  return field;
}

bool IsMissing(absl::string_view field) {
  field = Strip(field);
  if (field.empty()) return true;
  if (field.size() > 9 || (field.size() > 4 && field.size() < 8)) return false;
  if (!absl::StrContains("nN-<#", field[0])) return false;  // most words, quickly
  for (const absl::string_view word :
       {"na", "n/a", "nan", "-nan", "null", "none", "<na>", "#n/a", "nan(ind)", "-nan(ind)"}) {
    if (absl::EqualsIgnoreCase(field, word)) return true;
  }
  return false;
}

std::optional<bool> ParseBool(absl::string_view field) {
  if (absl::EqualsIgnoreCase(field, "true")) return true;
  if (absl::EqualsIgnoreCase(field, "false")) return false;
  return std::nullopt;
}

bool IsInteger(absl::string_view field) {
  if (!field.empty() && (field[0] == '-' || field[0] == '+')) field.remove_prefix(1);
  return !field.empty() && Digits(field) == field.size();
}

absl::string_view Plain(absl::string_view field, NumberStyle style, std::string* copy) {
  if (style.groups != NumberStyle::Groups::kNone && RemoveGroups(field, style, copy)) return *copy;
  copy->clear();
  if (field.size() > 1 && field[0] == '+' && field[1] != '-') field.remove_prefix(1);
  if (style.decimal == '.') return field;
  if (absl::StrContains(field, '.')) return {};  // which isn't where groups end
  copy->assign(field.data(), field.size());
  std::replace(copy->begin(), copy->end(), ',', '.');
  return *copy;
}

bool IsNumber(absl::string_view field, NumberStyle style) {
  std::string copy;
  field = Strip(field);
  if (IsMissing(field)) return false;
  if (ParseBool(field).has_value()) return true;
  field = Plain(field, style, &copy);
  const std::optional<double> number = ParseFloat<double>(field);
  return IsInteger(field) || (number.has_value() && !std::isnan(*number));
}

bool BeginsLikeNumber(absl::string_view field) {
  field = Strip(field);
  for (bool more = true; more;) {
    more = false;
    for (const absl::string_view sign : {"+", "-", "(", "$", ".", ",", " ", "\u2212", "\u20ac", "\u00a3", "\u00a5"}) {
      more = absl::ConsumePrefix(&field, sign) || more;
    }
  }
  return !field.empty() && IsDigit(field[0]);
}

std::string OtherReadings(absl::string_view field) {
  std::vector<std::string> readings;
  field = Strip(field);
  // Dates and the like, quickly.
  if (field.find_first_of("/:", 0) != absl::string_view::npos) return "";
  if (field.find('-', 1) != absl::string_view::npos && field.find_first_of("eE") == absl::string_view::npos) return "";
  for (const char decimal : {',', '.'}) {
    std::string copy;
    const absl::string_view plain = Plain(field, {decimal, NumberStyle::Groups::kAny}, &copy);
    if (IsMissing(plain) || !ParseFloat<double>(plain).has_value()) continue;
    readings.push_back(absl::StrCat("--decimal ", std::string(1, decimal), " reads it as ", plain.substr(0, 60)));
  }
  return absl::StrJoin(readings, ", ");
}

MissingWords::MissingWords(std::vector<std::string> words, NumberStyle style) : words_(std::move(words)) {
  for (const std::string& word : words_) {
    std::string copy;
    const absl::string_view plain = Plain(Strip(word), style, &copy);
    if (const std::optional<double> real = ParseFloat<double>(plain); real.has_value() && !std::isnan(*real)) {
      std::optional<std::int64_t> whole = ParseInteger<std::int64_t>(plain);
      constexpr double kExact = 9007199254740992.0;
      if (!IsInteger(plain) && std::trunc(*real) == *real && std::abs(*real) <= kExact) {
        whole = static_cast<std::int64_t>(*real);
      }
      numbers_.push_back({*real, whole});
    }
  }
}

bool MissingWords::Has(absl::string_view field) const {
  return IsMissing(field) || std::find(words_.begin(), words_.end(), field) != words_.end();
}

bool MissingWords::Has(std::int64_t number) const {
  return std::any_of(numbers_.begin(), numbers_.end(), [number](const Number& each) { return each.whole == number; });
}

bool MissingWords::Has(double number) const {
  return std::any_of(numbers_.begin(), numbers_.end(), [number](const Number& each) { return each.real == number; });
}

}  // namespace reduced::client
