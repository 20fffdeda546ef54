#include "client/reducectl/input/number_column.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <system_error>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "kernels/algebra/dtype.h"
#include "kernels/algebra/float_format.h"

namespace reduced::client {
namespace {

constexpr std::int64_t kExact = std::int64_t{1} << 53;  // f64 holds all whole numbers up to it
constexpr std::uint64_t kNan = std::bit_cast<std::uint64_t>(std::numeric_limits<double>::quiet_NaN());

// One element of type T.
template <class T>
std::optional<T> ParseElement(absl::string_view field) {
  if constexpr (std::is_same_v<T, Bool>) {
    if (const std::optional<bool> truth = ParseBool(field)) return Bool{static_cast<std::uint8_t>(*truth)};
    if (field == "0" || field == "1") return Bool{static_cast<std::uint8_t>(field == "1")};
    return std::nullopt;
  } else if constexpr (kIsFloat<T>) {
    if (const std::optional<bool> truth = ParseBool(field)) return FromNumber<T>(*truth ? 1 : 0);
    if constexpr (std::is_floating_point_v<T>) {
      return ParseFloat<T>(field);
    } else {
      const std::optional<double> value = ParseFloat<double>(field);
      if (!value.has_value()) return std::nullopt;
      return FromNumber<T>(*value);
    }
  } else {
    if (const std::optional<bool> truth = ParseBool(field)) return static_cast<T>(*truth ? 1 : 0);
    // 3.0, as programs write whole numbers of a column with gaps.
    const std::size_t point = field.find('.');
    const bool whole = point != absl::string_view::npos && point > 0 &&
                       field.find_first_not_of('0', point + 1) == absl::string_view::npos;
    return ParseInteger<T>(whole ? field.substr(0, point) : field);
  }
}

// Most numbers: digits, at most 18 of them, with a minus or not.
struct ShortNumber {
  bool negative = false;
  std::int64_t digits = 0;  // as a whole number
  int decimals = -1;        // how many of them are after the point; -1: there is no point
};

inline bool ParseShort(absl::string_view field, char decimal, ShortNumber* number) {
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
    } else if (*at == decimal && point == nullptr && at + 1 != end) {
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
  if (number.digits > kExact) return std::nullopt;
  const double value = static_cast<double>(number.digits) / kPowers[number.decimals];
  return number.negative ? -value : value;
}

// Whether f64 holds the magnitude: no more than 53 bits are between its highest and its lowest one.
bool IsExact(std::uint64_t magnitude) {
  return magnitude == 0 || std::bit_width(magnitude) - std::countr_zero(magnitude) <= 53;
}

constexpr char kToRound[] = "; to round such numbers, add --dtype f64";

}  // namespace

const char* NumberColumn::Append(absl::string_view field, std::int64_t line) {
  line_ = line;
  field = Strip(field);
  if (!given_.empty()) return AppendGiven(field);
  if (ShortNumber number; ParseShort(field, style_.decimal, &number)) {
    if (number.decimals < 0) {
      const std::int64_t value = number.negative ? -number.digits : number.digits;
      return PutInteger(static_cast<std::uint64_t>(value), value < 0, field);
    }
    if (points_line_ >= 0) LookForGroups(field, number.decimals);
    if (const std::optional<double> value = ShortDecimal(number)) return PutFloat(*value, field);
  }
  if (style_.decimal == '.') {
    double value = 0;
    const char* const last = field.data() + field.size();
    const auto [end, error] = std::from_chars(field.data(), last, value);
    if (end == last && error == std::errc() && !field.empty() && !std::isnan(value) && !IsInteger(field)) {
      points_line_ = -1;
      return PutFloat(value, field);
    }
  }
  return AppendSlowly(field);
}

// Whether the point may separate thousands, as in 1.234.
void NumberColumn::LookForGroups(absl::string_view field, int decimals) {
  const std::size_t sign = field[0] == '-' ? 1 : 0;
  const std::size_t digits = field.size() - sign - static_cast<std::size_t>(decimals) - 1;
  const bool group = decimals == 3 && digits >= 1 && digits <= 3 && field[sign] != '0';
  points_line_ = !group ? -1 : points_line_ == 0 ? line_ : points_line_;
}

// What is neither a short integer nor an ordinary float.
const char* NumberColumn::AppendSlowly(absl::string_view field) {
  if (words_.Has(field)) {
    PutMissing();
    return nullptr;
  }
  if (const std::optional<bool> truth = ParseBool(field)) {
    PutBool(*truth);
    return nullptr;
  }
  std::string copy;
  const absl::string_view plain = Plain(field, style_, &copy);
  const bool groups = !copy.empty() && style_.groups == NumberStyle::Groups::kCommas;
  if (groups && groups_line_ == 0) groups_line_ = line_;
  if (IsInteger(plain)) {
    if (const std::optional<std::int64_t> integer = ParseInteger<std::int64_t>(plain)) {
      return PutInteger(static_cast<std::uint64_t>(*integer), *integer < 0, field);
    }
    if (const std::optional<std::uint64_t> integer = ParseInteger<std::uint64_t>(plain)) {
      return PutInteger(*integer, false, field);
    }
    return Refuse(absl::StrCat("whole numbers from -2^63 to 2^64 - 1", kToRound));
  }
  const std::optional<double> value = ParseFloat<double>(plain);
  if (!value.has_value()) {
    const std::string others = OtherReadings(field);
    return Refuse(absl::StrCat("numbers in the range of f64", others.empty() ? "" : "; ", others));
  }
  if (!std::isnan(*value)) return PutFloat(*value, field);
  PutMissing();
  return nullptr;
}

const char* NumberColumn::AppendGiven(absl::string_view field) {
  std::string copy;
  const absl::string_view plain = Plain(field, style_, &copy);
  if (!copy.empty() && style_.groups == NumberStyle::Groups::kCommas && groups_line_ == 0) groups_line_ = line_;
  bool missing = words_.Has(field);
  if (!missing && words_.has_numbers()) {
    const std::optional<std::int64_t> whole = ParseInteger<std::int64_t>(plain);
    const std::optional<double> real = ParseFloat<double>(plain);
    missing = IsInteger(plain) ? whole.has_value() && words_.Has(*whole) : real.has_value() && words_.Has(*real);
  }
  const bool taken = VisitDType(*DTypeFromName(given_), [&]<class T>(std::type_identity<T>) {
    std::optional<T> element;
    if constexpr (kIsFloat<T>) {
      element = missing ? FromDouble<T>(std::numeric_limits<double>::quiet_NaN()) : ParseElement<T>(plain);
      missing = false;
    } else if (!missing) {
      element = ParseElement<T>(plain);
    }
    if (element.has_value()) bytes_.append(reinterpret_cast<const char*>(&*element), sizeof(T));
    return element.has_value();
  });
  if (!taken && !missing) return Refuse(absl::StrCat("numbers that ", given_, " can hold"));
  if (missing) {
    PutMissing();
  } else {
    values_ = true;
    ++count_;
  }
  return nullptr;
}

void NumberColumn::AppendMissing(std::size_t fields, std::int64_t line) {
  for (std::size_t i = 0; i < fields; ++i) Append("", line);
}

const char* NumberColumn::Refuse(std::string allowed) {
  error_ = std::move(allowed);
  return error_.c_str();
}

void NumberColumn::Push(std::uint64_t bits) {
  bits_.push_back(bits);
  values_ = true;
  ++count_;
}

const char* NumberColumn::PutInteger(std::uint64_t bits, bool negative, absl::string_view field) {
  const std::uint64_t magnitude = negative ? ~bits + 1 : bits;
  const bool large = !negative && bits > std::uint64_t{std::numeric_limits<std::int64_t>::max()};
  if (words_.has_numbers() && !large && words_.Has(static_cast<std::int64_t>(bits))) {
    PutMissing();
    return nullptr;
  }
  if (magnitude <= kExact && kind_ == Kind::kInteger && (!negative || negative_.line > 0)) {  // nothing to be learned
    Push(bits);
    return nullptr;
  }
  if (kind_ == Kind::kFloat && !IsExact(magnitude) && !BecomeWhole()) {
    return Refuse(
        absl::StrCat("numbers that f64 can hold, as line ", fraction_.line, " has ", fraction_.text, kToRound));
  }
  if (kind_ != Kind::kFloat && ((large && negative_.line > 0) || (negative && large_.line > 0))) {
    const Witness& other = large ? negative_ : large_;
    return Refuse(absl::StrCat("whole numbers ", large ? "below 2^63" : "from 0 on", ", as line ", other.line, " has ",
                               other.text, kToRound));
  }
  if (kind_ == Kind::kFloat) {
    const double value = large ? static_cast<double>(bits) : static_cast<double>(static_cast<std::int64_t>(bits));
    Push(std::bit_cast<std::uint64_t>(value));
    return nullptr;
  }
  if (kind_ != Kind::kInteger) Become(Kind::kInteger);
  if (negative && negative_.line == 0) negative_ = WitnessOf(field);
  if (!IsExact(magnitude) && inexact_.line == 0) inexact_ = WitnessOf(field);
  if (large && large_.line == 0) {
    large_ = WitnessOf(field);
    changed_ = changed_ || taken_;
  }
  Push(bits);
  return nullptr;
}

const char* NumberColumn::PutFloat(double value, absl::string_view field) {
  if (words_.has_numbers() && words_.Has(value)) {
    PutMissing();
    return nullptr;
  }
  if (kind_ == Kind::kFloat) {
    Push(std::bit_cast<std::uint64_t>(value));
    return nullptr;
  }
  if (inexact_.line > 0) {
    if (std::trunc(value) == value && std::abs(value) <= static_cast<double>(kExact)) {
      return PutInteger(static_cast<std::uint64_t>(static_cast<std::int64_t>(value)), value < 0, field);
    }
    return Refuse(absl::StrCat("whole numbers, as line ", inexact_.line, " has ", inexact_.text,
                               ", which f64 can't hold", kToRound));
  }
  fraction_ = WitnessOf(field);
  Become(Kind::kFloat);
  Push(std::bit_cast<std::uint64_t>(value));
  return nullptr;
}

void NumberColumn::PutBool(bool value) {
  if (bool_line_ == 0) bool_line_ = line_;
  if (kind_ == Kind::kMissing) Become(Kind::kBool);
  Push(kind_ == Kind::kFloat ? std::bit_cast<std::uint64_t>(value ? 1.0 : 0.0) : std::uint64_t{value});
}

void NumberColumn::PutMissing() {
  if (missing_line_ == 0) missing_line_ = line_;
  if (kind_ == Kind::kFloat) {
    bits_.push_back(kNan);
  } else {
    missing_.push_back(count_);
  }
  ++count_;
}

// All fields so far are of the type `kind`, too.
void NumberColumn::Become(Kind kind) {
  changed_ = changed_ || (taken_ && !(kind_ == Kind::kMissing && kind == Kind::kFloat));  // taken as NaN
  if (kind == Kind::kFloat) {
    std::vector<std::uint64_t> floats;
    floats.reserve(count_);
    auto missing = missing_.begin();
    for (const std::uint64_t bits : bits_) {
      for (; missing != missing_.end() && *missing == floats.size(); ++missing) floats.push_back(kNan);
      const double value =
          large_.line > 0 ? static_cast<double>(bits) : static_cast<double>(static_cast<std::int64_t>(bits));
      floats.push_back(std::bit_cast<std::uint64_t>(value));
    }
    floats.resize(count_, kNan);
    bits_ = std::move(floats);
    missing_.clear();
  }
  kind_ = kind;
}

// Makes f64 whole numbers again, which they must be, because one comes that f64 can't hold.
bool NumberColumn::BecomeWhole() {
  if (taken_) return false;
  std::vector<std::uint64_t> integers, missing;
  bool negative = false;
  for (std::size_t i = 0; i < bits_.size(); ++i) {
    const auto value = std::bit_cast<double>(bits_[i]);
    if (std::isnan(value)) {
      missing.push_back(i);
      continue;
    }
    if (std::trunc(value) != value || std::abs(value) > static_cast<double>(kExact)) return false;
    negative = negative || value < 0;
    integers.push_back(static_cast<std::uint64_t>(static_cast<std::int64_t>(value)));
  }
  bits_ = std::move(integers);
  missing_ = std::move(missing);
  if (negative && negative_.line == 0) negative_ = fraction_;
  kind_ = Kind::kInteger;
  return true;
}

std::string NumberColumn::dtype() const {
  if (!given_.empty()) return given_;
  if (kind_ == Kind::kInteger) return large_.line > 0 ? "u64" : "i64";
  return kind_ == Kind::kBool ? "bool" : "f64";
}

Memory NumberColumn::Take(bool zeros, std::vector<std::uint64_t>* missing) {
  if (given_.empty() && kind_ == Kind::kMissing) {
    bits_.assign(count_, kNan);
    missing_.clear();
  }
  const std::size_t width = static_cast<std::size_t>(RowOf(*DTypeFromName(dtype())).bytes);
  if (zeros && !missing_.empty()) {
    const auto expand = [&](auto& elements, std::size_t size) {
      std::remove_reference_t<decltype(elements)> all;
      all.reserve(count_ * size);
      std::size_t from = 0;
      for (std::size_t i = 0, gap = 0; i < count_; ++i) {
        if (gap < missing_.size() && missing_[gap] == i) {
          all.resize(all.size() + size);
          ++gap;
        } else {
          all.insert(all.end(), elements.begin() + static_cast<std::ptrdiff_t>(from),
                     elements.begin() + static_cast<std::ptrdiff_t>(from + size));
          from += size;
        }
      }
      elements = std::move(all);
    };
    if (given_.empty()) {
      expand(bits_, 1);
    } else {
      expand(bytes_, width);
    }
  }
  taken_ = true;
  count_ = 0;
  *missing = std::exchange(missing_, {});
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
  missing_.clear();
}

}  // namespace reduced::client
