#include "client/reducectl/input/number.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>
#include <type_traits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "kernels/algebra/dtype.h"
#include "kernels/algebra/float_format.h"

namespace reduced::client {
namespace {

constexpr char kNumbers[] = "numbers in the range of f64";
constexpr char kIntegers[] =
    "whole numbers from -2^63 to 2^63 - 1; for larger ones add --dtype u64 or --dtype f64, which rounds them";

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

absl::string_view Strip(absl::string_view field) {
  while (!field.empty() && IsBlank(field.front())) field.remove_prefix(1);
  while (!field.empty() && IsBlank(field.back())) field.remove_suffix(1);
  return field;
}

std::optional<bool> ParseBool(absl::string_view field) {
  if (absl::EqualsIgnoreCase(field, "true")) return true;
  if (absl::EqualsIgnoreCase(field, "false")) return false;
  return std::nullopt;
}

constexpr char kOfDType[] = "numbers that --dtype can hold";

// Whether `field` is a whole number, in digits with a sign or not.
bool IsInteger(absl::string_view field) {
  if (!field.empty() && (field[0] == '-' || field[0] == '+')) field.remove_prefix(1);
  return !field.empty() && std::all_of(field.begin(), field.end(), absl::ascii_isdigit);
}

// Removes the commas of 1,234,567 or -1,234.5; returns false if they aren't where thousands have them.
bool RemoveThousands(std::string* field) {
  const std::size_t first = field->find_first_of("0123456789");
  const std::size_t comma = field->find(',');
  if (first == std::string::npos || comma == std::string::npos || comma <= first || comma - first > 3) return false;
  const std::size_t end = std::min(field->find_first_not_of("0123456789,", comma), field->size());
  if (end < field->size() && (*field)[end] != '.') return false;
  if ((end - comma) % 4 != 0 || field->find(',', end) != std::string::npos) return false;
  for (std::size_t i = comma; i < end; ++i) {
    if (((*field)[i] == ',') != ((i - comma) % 4 == 0)) return false;
  }
  field->erase(std::remove(field->begin(), field->end(), ','), field->end());
  return true;
}

// `field` as std::from_chars takes it. `copy`: where it is if it had to change.
absl::string_view Plain(absl::string_view field, Comma comma, std::string* copy) {
  if (field.size() > 1 && field[0] == '+' && field[1] != '-') field.remove_prefix(1);
  if (comma == Comma::kDefault || !absl::StrContains(field, ',')) return field;
  copy->assign(field.data(), field.size());
  if (comma == Comma::kDecimal) {
    if (std::count(copy->begin(), copy->end(), ',') == 1 && !absl::StrContains(*copy, '.')) {
      std::replace(copy->begin(), copy->end(), ',', '.');
    }
  } else {
    RemoveThousands(copy);
  }
  return *copy;
}

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

template <class T>
std::optional<T> ParseInteger(absl::string_view field) {
  T value = 0;
  const char* const last = field.data() + field.size();
  const auto [end, error] = std::from_chars(field.data(), last, value);
  if (end != last || field.empty() || error != std::errc()) return std::nullopt;
  return value;
}

// One element of type T.
template <class T>
std::optional<T> ParseElement(absl::string_view field) {
  if constexpr (std::is_same_v<T, Bool>) {
    if (const std::optional<bool> truth = ParseBool(field)) return Bool{static_cast<std::uint8_t>(*truth)};
    if (field == "0" || field == "1") return Bool{static_cast<std::uint8_t>(field == "1")};
    return std::nullopt;
  } else if constexpr (kIsFloat<T>) {
    if (IsMissing(field)) return FromDouble<T>(std::numeric_limits<double>::quiet_NaN());
    if (const std::optional<bool> truth = ParseBool(field)) return FromDouble<T>(*truth ? 1 : 0);
    if constexpr (std::is_floating_point_v<T>) {
      return ParseFloat<T>(field);
    } else {
      const std::optional<double> value = ParseFloat<double>(field);
      if (!value.has_value()) return std::nullopt;
      const T element = FromDouble<T>(*value);
      if (std::isinf(ToDouble(element)) && !std::isinf(*value)) return std::nullopt;
      return element;
    }
  } else {
    if (const std::optional<bool> truth = ParseBool(field)) return static_cast<T>(*truth ? 1 : 0);
    return ParseInteger<T>(field);
  }
}

// Most numbers: digits, at most 18 of them, with a minus or not.
struct ShortNumber {
  bool negative = false;
  std::int64_t digits = 0;  // as a whole number
  int decimals = -1;        // how many of them are after the point; -1: there is no point
};

inline bool ParseShort(absl::string_view field, ShortNumber* number) {
  const char* at = field.data();
  const char* const end = at + field.size();
  number->negative = at != end && *at == '-';
  at += number->negative ? 1 : 0;
  if (at == end || end - at > 18) return false;
  const char* point = nullptr;
  std::int64_t digits = 0;
  for (; at != end; ++at) {
    const unsigned digit = static_cast<unsigned char>(*at) - unsigned{'0'};
    if (digit <= 9) {
      digits = digits * 10 + static_cast<std::int64_t>(digit);
    } else if (*at == '.' && point == nullptr && at + 1 != end) {
      point = at;
    } else {
      return false;
    }
  }
  number->digits = digits;
  number->decimals = point == nullptr ? -1 : static_cast<int>(end - point) - 1;
  return true;
}

// The nearest f64 of a number with a point. Both operands are exact, so that dividing rounds once: W. D. Clinger, "How
// to Read Floating Point Numbers Accurately", 1990.
inline std::optional<double> ShortDecimal(const ShortNumber& number) {
  constexpr double kPowers[] = {1e0, 1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,
                                1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17};
  if (number.digits > std::int64_t{1} << 53) return std::nullopt;
  const double value = static_cast<double>(number.digits) / kPowers[number.decimals];
  return number.negative ? -value : value;
}

}  // namespace

bool IsMissing(absl::string_view field) {
  field = Strip(field);
  if (field.empty()) return true;
  if (field.size() > 4) return false;
  for (const absl::string_view word : {"na", "n/a", "nan", "-nan", "null", "none", "<na>", "#n/a"}) {
    if (absl::EqualsIgnoreCase(field, word)) return true;
  }
  return false;
}

bool IsNumber(absl::string_view field, Comma comma) {
  std::string copy;
  field = Plain(Strip(field), comma, &copy);
  return IsInteger(field) || ParseBool(field).has_value() ||
         (!IsMissing(field) && ParseFloat<double>(field).has_value());
}

const char* NumberColumn::Append(absl::string_view field) {
  field = Strip(field);
  if (!given_.empty()) return AppendGiven(field);
  if (ShortNumber number; ParseShort(field, &number)) {
    if (number.decimals < 0) {
      Put(Kind::kInteger, static_cast<std::uint64_t>(number.negative ? -number.digits : number.digits));
      return nullptr;
    }
    if (const std::optional<double> value = ShortDecimal(number)) {
      Put(Kind::kFloat, std::bit_cast<std::uint64_t>(*value));
      return nullptr;
    }
  }
  double value = 0;
  const char* const last = field.data() + field.size();
  const auto [end, error] = std::from_chars(field.data(), last, value);
  if (end != last || error != std::errc() || field.empty() || IsInteger(field)) return AppendSlowly(field);
  Put(Kind::kFloat, std::bit_cast<std::uint64_t>(value));
  return nullptr;
}

// What is neither a short integer nor an ordinary float.
const char* NumberColumn::AppendSlowly(absl::string_view field) {
  if (IsMissing(field)) {
    Put(Kind::kMissing, std::bit_cast<std::uint64_t>(std::numeric_limits<double>::quiet_NaN()));
    return nullptr;
  }
  if (const std::optional<bool> truth = ParseBool(field)) {
    Put(Kind::kBool, *truth ? 1 : 0);
    return nullptr;
  }
  std::string copy;
  field = Plain(field, comma_, &copy);
  if (IsInteger(field)) {
    const std::optional<std::int64_t> integer = ParseInteger<std::int64_t>(field);
    if (!integer.has_value()) return kIntegers;
    Put(Kind::kInteger, static_cast<std::uint64_t>(*integer));
    return nullptr;
  }
  const std::optional<double> value = ParseFloat<double>(field);
  if (!value.has_value()) {
    return comma_ == Comma::kDefault && absl::StrContains(field, ',')
               ? "numbers in the range of f64; add --decimal , if the comma is the decimal point, --decimal . if it "
                 "separates thousands"
               : kNumbers;
  }
  Put(Kind::kFloat, std::bit_cast<std::uint64_t>(*value));
  return nullptr;
}

const char* NumberColumn::AppendGiven(absl::string_view field) {
  std::string copy;
  const absl::string_view plain = Plain(field, comma_, &copy);
  const DType dtype = *DTypeFromName(given_);
  const bool taken = VisitDType(dtype, [&]<class T>(std::type_identity<T>) {
    const std::optional<T> element = ParseElement<T>(plain);
    if (!element.has_value()) return false;
    bytes_.append(reinterpret_cast<const char*>(&*element), sizeof(T));
    return true;
  });
  if (!taken) return kOfDType;
  values_ = values_ || !IsMissing(plain);
  ++count_;
  return nullptr;
}

// All elements so far are of the type `kind`, too.
void NumberColumn::Become(Kind kind) {
  changed_ = changed_ || taken_;
  if (kind == Kind::kFloat && kind_ != Kind::kMissing) {  // missing ones are NaN already
    for (std::uint64_t& bits : bits_) {
      bits = std::bit_cast<std::uint64_t>(static_cast<double>(static_cast<std::int64_t>(bits)));
    }
  }
  kind_ = kind;
}

void NumberColumn::Put(Kind kind, std::uint64_t bits) {
  if (kind != kind_) {
    if (kind_ != Kind::kFloat) Become(kind_ == Kind::kMissing && count_ == 0 ? kind : Kind::kFloat);
    if (kind_ == Kind::kFloat && (kind == Kind::kInteger || kind == Kind::kBool)) {
      bits = std::bit_cast<std::uint64_t>(static_cast<double>(static_cast<std::int64_t>(bits)));  // True is 1
    }
  }
  values_ = values_ || kind != Kind::kMissing;
  bits_.push_back(bits);
  ++count_;
}

std::string NumberColumn::dtype() const {
  if (!given_.empty()) return given_;
  return kind_ == Kind::kBool ? "bool" : kind_ == Kind::kInteger ? "i64" : "f64";
}

Memory NumberColumn::Take() {
  if (given_.empty() && kind_ == Kind::kMissing) Become(Kind::kFloat);
  taken_ = true;
  count_ = 0;
  if (!given_.empty()) return Memory(std::exchange(bytes_, std::string()));
  if (kind_ == Kind::kBool) {
    std::string bools(bits_.begin(), bits_.end());
    bits_.clear();
    return Memory(std::move(bools));
  }
  return Memory(std::exchange(bits_, {}));
}

void NumberColumn::Start() {
  taken_ = changed_ = false;
  count_ = 0;
  bits_.clear();
  bytes_.clear();
}

}  // namespace reduced::client
