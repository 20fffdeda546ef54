#include "client/reducectl/input/fields.h"

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace reduced::client {
namespace {

// Whether a whole number is written as codes of a width are, which are other texts of the same number.
bool HasLeadingZero(absl::string_view number) {
  if (!absl::ConsumePrefix(&number, "-")) absl::ConsumePrefix(&number, "+");
  return number.size() > 1 && number[0] == '0' && absl::ascii_isdigit(static_cast<unsigned char>(number[1]));
}

}  // namespace

FieldColumn::FieldColumn(std::string name, std::size_t index, bool json, NumberStyle style,
                         std::vector<std::string> missing_words)
    : name_(std::move(name)), index_(index), json_(json), reader_("", style, std::move(missing_words)) {}

absl::Status FieldColumn::Append(absl::string_view field, bool missing, std::int64_t line) {
  const auto take = [&](absl::string_view text) {
    data_.append(text.data(), text.size());
    offsets_.push_back(static_cast<std::int64_t>(data_.size()));
    valid_.push_back(missing ? 0 : 1);
    lines_.push_back(line);
  };
  if (!text_ && reader_.Append(field, line) != nullptr) text_ = true;
  any_number_ = any_number_ || (!text_ && !missing);
  if (text_ && !missing && first_text_ < 0) first_text_ = rows();
  if (missing) {
    take("");
    return absl::OkStatus();
  }
  if (!text_ && zero_line_ == 0 && HasLeadingZero(Strip(field))) zero_line_ = line;
  if (!json_ || field[0] != '"') {
    if (json_ && (field[0] == '{' || field[0] == '[')) {
      return absl::InvalidArgumentError(absl::StrCat("line ", line, ": column \"", name_.substr(0, 60), "\": got ",
                                                     field[0] == '{' ? "an object" : "a list",
                                                     "; allowed: text, a number, true, false or null"));
    }
    take(field);
    return absl::OkStatus();
  }
  if (field.find('\\') == absl::string_view::npos) {
    take(field.substr(1, field.size() - 2));
    return absl::OkStatus();
  }
  const nlohmann::json string = nlohmann::json::parse(field, nullptr, /*allow_exceptions=*/false);
  if (!string.is_string()) {
    return absl::InvalidArgumentError(absl::StrCat("line ", line, ": column \"", name_.substr(0, 60), "\": got ",
                                                   absl::CHexEscape(field.substr(0, 60)), "; allowed: text in JSON"));
  }
  take(string.get_ref<const std::string&>());
  return absl::OkStatus();
}

void FieldColumn::End() {
  // True and False beside numbers would count as 1 and 0.
  if (text_ || !any_number_ || reader_.bool_line() > 0) return;
  dtype_ = reader_.dtype();
  std::vector<std::uint64_t> missing;
  elements_ = reader_.Take(/*zeros=*/true, &missing);
  // Also numbers can stand for a missing value.
  for (const std::uint64_t row : missing) valid_[row] = 0;
  if (dtype_ != "f64") return;
  for (std::size_t row = 0; row < valid_.size(); ++row) {
    double number;
    std::memcpy(&number, elements_.bytes().data() + row * sizeof(number), sizeof(number));
    if (std::isnan(number)) valid_[row] = 0;
  }
}

std::int64_t FieldColumn::first_text() const { return any_number_ ? first_text_ : -1; }

std::vector<std::string> FieldColumn::notes() const {
  const std::string column = absl::StrCat("column \"", name_.substr(0, 60), "\"");
  std::vector<std::string> notes;
  if (const std::int64_t row = first_text(); row >= 0) {
    notes.push_back(absl::StrCat(column, " is text, since line ", line(row), " has \"",
                                 absl::CHexEscape(text(row).substr(0, 60)), "\", though others are numbers"));
  }
  if (!text_ && reader_.bool_line() > 0) {
    notes.push_back(
        absl::StrCat(column, " is text: it has True or False beside numbers, first in line ", reader_.bool_line()));
  }
  if (dtype_.empty()) return notes;
  if (zero_line_ > 0) {
    notes.push_back(
        absl::StrCat(column, " is numbers, of which zeros in front are no part, first in line ", zero_line_));
  }
  if (const std::int64_t line = reader_.groups_line(); line > 0) {
    notes.push_back(absl::StrCat(column, ": commas separate thousands, first in line ", line,
                                 "; if they are decimal points, add --decimal ,"));
  }
  return notes;
}

}  // namespace reduced::client
