#include <csv.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/reducectl/input/input.h"

namespace reduced::client {
namespace {

// Collects the numbers of one column from libcsv's callbacks. Ignores everything after an error.
class Column {
 public:
  explicit Column(std::string wanted) : wanted_(std::move(wanted)) {}

  void EndField(absl::string_view field) { row_.emplace_back(field); }

  void EndRow() {
    if (status_.ok()) status_ = index_.has_value() ? TakeValue() : TakeFirstRow();
    row_.clear();
  }

  // Lines count from 1; a row is on the line where it ends.
  void set_line(std::int64_t line) { line_ = line; }
  const absl::Status& status() const { return status_; }
  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("line ", line_, ": ", what));
  }

  // Returns the numbers, or an error if there was no row.
  absl::StatusOr<std::vector<double>> Finish() && {
    if (!status_.ok()) return status_;
    if (!index_.has_value()) return absl::InvalidArgumentError("got an empty CSV file; allowed: at least one row");
    return std::move(values_);
  }

 private:
  // Returns nothing if `field` isn't a number.
  static std::optional<double> ParseNumber(absl::string_view field) {
    if (field.empty()) return std::numeric_limits<double>::quiet_NaN();
    absl::ConsumePrefix(&field, "+");
    double value = 0;
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (error != std::errc() || end != field.data() + field.size()) return std::nullopt;
    return value;
  }

  // Finds the column, by the header if there is one.
  absl::Status TakeFirstRow() {
    name_ = wanted_;
    std::size_t index = 0;
    if (wanted_.empty() && row_.size() > 1) {
      return Error(absl::StrCat("got ", row_.size(), " columns (", Names(), "); choose one with --column"));
    }
    const bool by_name = !wanted_.empty() && !absl::SimpleAtoi(wanted_, &index);
    while (by_name && index < row_.size() && row_[index] != wanted_) ++index;
    if (index >= row_.size()) {
      return Error(absl::StrCat("column: got \"", wanted_, "\"; allowed: ", Names(), ", or 0 to ", row_.size() - 1));
    }
    index_ = index;
    if (by_name) return absl::OkStatus();
    if (ParseNumber(row_[index]).has_value()) {
      name_ = absl::StrCat(index);
      return TakeValue();
    }
    name_ = row_[index];
    return absl::OkStatus();
  }

  // The names in the first row, for a message: at most 20, and of each at most 60 bytes.
  std::string Names() const {
    constexpr std::size_t kMost = 20;
    std::vector<absl::string_view> names;
    for (std::size_t i = 0; i < std::min(row_.size(), kMost); ++i) {
      names.push_back(absl::string_view(row_[i]).substr(0, 60));
    }
    return absl::StrCat(absl::StrJoin(names, ", "), row_.size() > kMost ? ", ..." : "");
  }

  absl::Status TakeValue() {
    if (*index_ >= row_.size()) {
      return Error(absl::StrCat("column \"", name_, "\" is missing: got ", row_.size(), " fields; allowed: at least ",
                                *index_ + 1));
    }
    const std::string& field = row_[*index_];
    const std::optional<double> value = ParseNumber(field);
    if (!value.has_value()) {
      return Error(absl::StrCat("column \"", name_, "\": got \"", absl::CHexEscape(field.substr(0, 60)),
                                "\"; allowed: numbers in the range of f64"));
    }
    values_.push_back(*value);
    return absl::OkStatus();
  }

  const std::string wanted_;
  std::int64_t line_ = 0;
  std::vector<std::string> row_;
  std::optional<std::size_t> index_;  // known after the first row
  std::string name_;                  // of the column, for people
  std::vector<double> values_;
  absl::Status status_;
};

void OnField(void* field, std::size_t size, void* column) {
  static_cast<Column*>(column)->EndField({static_cast<const char*>(field), field == nullptr ? 0 : size});
}
void OnRow(int, void* column) { static_cast<Column*>(column)->EndRow(); }

}  // namespace

absl::StatusOr<std::vector<double>> ParseCsv(absl::string_view text, const std::string& column) {
  csv_parser parser;
  if (csv_init(&parser, CSV_STRICT | CSV_STRICT_FINI) != 0) return absl::InternalError("libcsv can't be initialized");
  const std::unique_ptr<csv_parser, void (*)(csv_parser*)> owner(&parser, csv_free);

  Column numbers(column);
  absl::ConsumePrefix(&text, "\xEF\xBB\xBF");  // byte order mark
  // Line by line, because libcsv doesn't count them.
  for (std::int64_t line = 1; !text.empty() && numbers.status().ok(); ++line) {
    const absl::string_view piece = text.substr(0, text.find('\n') + 1);  // npos + 1 is 0: no line feed
    const absl::string_view current = piece.empty() ? text : piece;
    numbers.set_line(line);
    if (csv_parse(&parser, current.data(), current.size(), OnField, OnRow, &numbers) != current.size()) {
      return numbers.Error(absl::StrCat("bad CSV: ", csv_strerror(csv_error(&parser))));
    }
    text.remove_prefix(current.size());
  }
  if (numbers.status().ok() && csv_fini(&parser, OnField, OnRow, &numbers) != 0) {
    return numbers.Error("bad CSV: a quoted field isn't closed");
  }
  return std::move(numbers).Finish();
}

}  // namespace reduced::client
