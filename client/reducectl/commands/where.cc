#include "client/reducectl/commands/where.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/reducectl/input/number.h"

namespace reduced::client {
namespace {

// Those of two characters first: < begins <=, too.
struct Op {
  absl::string_view text;
  bool less, equal, greater;  // what it says of fields that are so beside the value
};
constexpr Op kOps[] = {{"<=", true, true, false}, {">=", false, true, true}, {"==", false, true, false},
                       {"!=", true, false, true}, {"<", true, false, false}, {">", false, false, true}};

const Op& OpOf(absl::string_view text) {
  for (const Op& op : kOps) {
    if (op.text == text) return op;
  }
  return kOps[0];
}

template <class T>
bool Holds(const Op& op, const T& field, const T& value) {
  return field < value ? op.less : value < field ? op.greater : op.equal;
}

absl::Status BadField(const FieldColumn& column, std::int64_t row, absl::string_view allowed) {
  return absl::InvalidArgumentError(absl::StrCat("line ", column.line(row), ": column \"", column.name().substr(0, 60),
                                                 "\": got \"", absl::CHexEscape(column.text(row).substr(0, 60)),
                                                 "\"; allowed: ", allowed));
}

// A number that holds all i64, u64 and f64 as they are.
using Number = long double;
static_assert(std::numeric_limits<Number>::digits >= 64);

std::optional<Number> NumberOf(absl::string_view text, bool bools) {
  if (const std::optional<bool> truth = ParseBool(text); bools && truth.has_value()) return *truth ? 1 : 0;
  if (const auto whole = ParseInteger<std::int64_t>(text); whole.has_value()) return *whole;
  if (const auto whole = ParseInteger<std::uint64_t>(text); whole.has_value()) return *whole;
  return ParseFloat<double>(text);
}

Number NumberAt(const FieldColumn& column, std::int64_t row) {
  const char* const elements = column.numbers().bytes().data();
  const auto at = [&]<class T>(T element) {
    std::memcpy(&element, elements + row * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    return static_cast<Number>(element);
  };
  if (column.dtype() == "f64") return at(double{});
  if (column.dtype() == "u64") return at(std::uint64_t{});
  return column.dtype() == "bool" ? at(std::uint8_t{}) : at(std::int64_t{});
}

// The first field that is not missing; the number of rows: there is none.
std::int64_t FirstOf(const FieldColumn& column) {
  std::int64_t row = 0;
  while (row < column.rows() && column.missing(row)) ++row;
  return row;
}

}  // namespace

absl::StatusOr<std::optional<ColumnComparison>> ParseComparison(absl::string_view text) {
  const std::size_t at = text.find_first_of("<>=!");
  if (at == absl::string_view::npos) return std::nullopt;
  const auto bad = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat("got \"", absl::CHexEscape(text.substr(0, 60)),
                     "\"; allowed: a column, one of < <= > >= == !=, and a number or text, such as 'price > 0'"));
  };
  ColumnComparison comparison{.column = std::string(Strip(text.substr(0, at)))};
  for (const Op& op : kOps) {
    if (comparison.op.empty() && text.substr(at, op.text.size()) == op.text) comparison.op = std::string(op.text);
  }
  if (comparison.op.empty() || comparison.column.empty()) return bad();
  absl::string_view value = Strip(text.substr(at + comparison.op.size()));
  comparison.quoted = value.size() > 1 && (value[0] == '\'' || value[0] == '"') && value.back() == value[0];
  if (comparison.quoted) value = value.substr(1, value.size() - 2);
  // Another comparison, or = after >, is none of these.
  if (!comparison.quoted && (value.empty() || value.find_first_of("<>=!&|") != absl::string_view::npos)) return bad();
  comparison.value = std::string(value);
  if (IsMissing(value)) {
    return absl::InvalidArgumentError(absl::StrCat("got the value \"", absl::CHexEscape(value),
                                                   "\", which is a missing one; allowed: others, as a missing field "
                                                   "compares with nothing"));
  }
  return comparison;
}

absl::StatusOr<std::string> MaskOf(const FieldColumn& column, const std::optional<ColumnComparison>& comparison) {
  std::string mask(static_cast<std::size_t>(column.rows()), '\0');
  const std::int64_t first = FirstOf(column);
  if (!comparison.has_value()) {
    for (std::int64_t row = first; row < column.rows(); ++row) {
      if (column.missing(row)) continue;
      const absl::string_view text = Strip(column.text(row));
      const std::optional<Number> number = NumberOf(text, /*bools=*/true);
      if (number != Number{0} && number != Number{1}) return BadField(column, row, "0 and 1, or true and false");
      mask[static_cast<std::size_t>(row)] = number == Number{1} ? 1 : 0;
    }
    return mask;
  }
  const Op& op = OpOf(comparison->op);
  std::optional<Number> number;
  if (!comparison->quoted) number = NumberOf(comparison->value, column.dtype() == "bool");
  if (number.has_value() && column.dtype().empty() && first < column.rows()) {
    return BadField(
        column, column.first_text() < 0 ? first : column.first_text(),
        absl::StrCat("numbers, beside ", comparison->value, "; or '", comparison->value, "' in quotes as text"));
  }
  if (!number.has_value() && !column.dtype().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "got ", comparison->quoted ? "text, " : "", "\"", absl::CHexEscape(comparison->value), "\", beside column \"",
        column.name().substr(0, 60), "\" of numbers; allowed: a number", comparison->quoted ? " without quotes" : ""));
  }
  for (std::int64_t row = first; row < column.rows(); ++row) {
    if (column.missing(row)) continue;
    mask[static_cast<std::size_t>(row)] = number.has_value()
                                              ? Holds(op, NumberAt(column, row), *number)
                                              : Holds(op, column.text(row), absl::string_view(comparison->value));
  }
  return mask;
}

}  // namespace reduced::client
