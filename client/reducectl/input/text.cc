#include "client/reducectl/input/text.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "kernels/system/status_macros.h"

namespace reduced::client {
namespace {

constexpr char kAll[] = "all";

// For a message: at most 20 names, and of each at most 60 bytes.
template <class Names>
std::string NamesText(const Names& names) {
  constexpr std::size_t kMost = 20;
  std::vector<absl::string_view> shown;
  for (std::size_t i = 0; i < std::min(names.size(), kMost); ++i) {
    shown.push_back(absl::string_view(names[i]).substr(0, 60));
  }
  return absl::StrCat(absl::StrJoin(shown, ", "), names.size() > kMost ? ", ..." : "");
}

std::string QuotedField(absl::string_view field) {
  return absl::StrCat("\"", absl::CHexEscape(field.substr(0, 60)), "\"");
}

std::string ColumnText(const TextReader::Column& column) {
  return absl::StrCat("column \"", column.name.substr(0, 60), "\"");
}

NumberStyle StyleOf(Comma comma, char delimiter) {
  if (comma == Comma::kDecimal) return {',', NumberStyle::Groups::kAny};
  if (comma == Comma::kThousands) return {'.', NumberStyle::Groups::kAny};
  return {'.', delimiter == ',' ? NumberStyle::Groups::kCommas : NumberStyle::Groups::kNone};
}

// Whether this can't be the name of a column: it has neither letters nor digits, or is \N, which databases write.
bool IsNoName(absl::string_view field) {
  return std::none_of(field.begin(), field.end(),
                      [](char c) {
                        return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                               !absl::ascii_isascii(static_cast<unsigned char>(c));
                      }) ||
         field == "\\N";
}

// Whether these fields are whole numbers without a sign, as labels are, no two of which are equal.
bool AreLabels(const std::vector<absl::string_view>& numbers) {
  const auto whole = [](absl::string_view number) {
    return absl::ascii_isdigit(static_cast<unsigned char>(number[0])) && (number[0] != '0' || number.size() == 1) &&
           IsInteger(number);
  };
  return std::all_of(numbers.begin(), numbers.end(), whole) &&
         std::set<absl::string_view>(numbers.begin(), numbers.end()).size() == numbers.size();
}

}  // namespace

bool LooksLikeText(absl::string_view head) {
  if (head.empty()) return false;
  if (absl::StartsWith(head, "\xff\xfe") || absl::StartsWith(head, "\xfe\xff")) return true;  // RowReader says why not
  return std::all_of(head.begin(), head.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 ? byte != 0x7f : c == '\n' || c == '\r' || c == '\t' || c == '\f';
  });
}

TextReader::TextReader(std::shared_ptr<ByteSource> source, const InputOptions& options, bool json)
    : options_(options),
      rows_(json ? std::unique_ptr<RowSource>(std::make_unique<JsonRows>(std::move(source), options.missing_words))
                 : std::make_unique<RowReader>(std::move(source), options)),
      text_(json ? nullptr : static_cast<RowReader*>(rows_.get())),
      json_(json ? static_cast<JsonRows*>(rows_.get()) : nullptr),
      words_(options.missing_words, StyleOf(options.comma, '\0')) {}

absl::StatusOr<std::unique_ptr<TextReader>> TextReader::Open(std::shared_ptr<ByteSource> source,
                                                             const InputOptions& options, bool json) {
  std::unique_ptr<TextReader> reader(new TextReader(std::move(source), options, json));
  RETURN_IF_ERROR(json ? reader->ReadKeys() : reader->ReadHeader());
  return reader;
}

absl::Status TextReader::ReadHeader() {
  ASSIGN_OR_RETURN(const bool any, rows_->Next());
  if (!any) return absl::InvalidArgumentError("got an empty text; allowed: at least one row");
  head_ = std::vector<std::string>(rows_->fields().begin(), rows_->fields().end());
  width_line_ = rows_->line();
  style_ = StyleOf(options_.comma, text_->delimiter());
  for (const std::string& field : head_) {
    if (absl::StrContains(field, '\r')) {
      return rows_->Error("got a carriage return within a line; allowed: lines that all end with LF, CR LF or CR");
    }
  }
  ASSIGN_OR_RETURN(second_, rows_->Next());
  std::vector<std::string> names = head_;
  width_ = names.size();
  if (second_ && width_ == 2 && rows_->fields().size() == 2 && Strip(head_[1]).empty() &&
      Strip(rows_->fields()[1]).empty()) {
    end_ = End::kDelimiter;  // of one column
    names.pop_back();
  }
  ASSIGN_OR_RETURN(header_, IsHeader(names));
  first_ = !header_;
  if (header_ && names.size() == 1 && options_.comma == Comma::kDecimal && options_.delimiter == '\0' &&
      absl::StrContains(names[0], ',')) {
    return absl::InvalidArgumentError(
        absl::StrCat("line ", width_line_, ": header: got ", QuotedField(names[0]),
                     ", with --decimal ,; add --delimiter , if commas delimit the fields, too, else --delimiter ;"));
  }
  if (header_ && second_) {
    RETURN_IF_ERROR(FitHeader(&names));
  }
  const bool both =
      second_ && rows_->fields().size() > 1 && !OneNumber({rows_->fields().begin(), rows_->fields().end()}).empty();
  if (const std::string one = !header_ && names.size() == 2 ? OneNumber(names) : "";
      !one.empty() && (both || !second_)) {
    notes_.push_back(absl::StrCat("line ", width_line_, " is taken as two fields; ", one));
  }
  if (end_ == End::kDelimiter) notes_.push_back("the delimiter at the end of each row is ignored");
  return Select(names, header_);
}

absl::Status TextReader::ReadKeys() {
  for (const std::string& wanted : options_.columns) {
    if (wanted != kAll || options_.part.has_value()) json_->IndexOf(wanted);
  }
  for (const std::string& wanted : options_.fields) json_->IndexOf(wanted);
  ASSIGN_OR_RETURN(const bool any, rows_->Next());
  if (!any) return absl::InvalidArgumentError("got an empty text; allowed: at least one row");
  second_ = true;
  return Select(json_->names(), /*header=*/true);
}

absl::StatusOr<bool> TextReader::IsHeader(const std::vector<std::string>& row) const {
  if (options_.header != Header::kAuto) return options_.header == Header::kYes;
  for (const std::vector<std::string>* const columns : {&options_.columns, &options_.fields}) {
    for (const std::string& wanted : *columns) {
      std::size_t index = 0;
      if (absl::SimpleAtoi(wanted, &index) && index < row.size()) continue;
      if (std::find(row.begin(), row.end(), wanted) != row.end()) return true;
    }
  }
  std::vector<absl::string_view> numbers;
  std::string text, doubtful;
  bool gap = false;           // where a name should be
  bool above_number = false;  // text, which as data would be a bad number
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::string& field = row[i];
    if (IsNumber(field, style_)) {
      numbers.push_back(Strip(field));
    } else if (words_.Has(Strip(field))) {
      // The first column may have no name, as pandas writes its index, and nothing may follow the last delimiter.
      const bool blank_end = i + 1 == row.size() && second_ && Strip(rows_->fields().back()).empty();
      gap = gap || !Strip(field).empty() || (i > 0 && !blank_end && !(second_ && rows_->fields().size() == i));
    } else if (BeginsLikeNumber(field) || IsNoName(field)) {
      doubtful = field;
    } else {
      text = field;
      above_number = above_number || (second_ && rows_->fields().size() > i && IsNumber(rows_->fields()[i], style_));
    }
  }
  const std::string fields = absl::StrCat("(", NamesText(row), ")");
  std::string got;
  if (!doubtful.empty()) {
    const std::string readings = OtherReadings(doubtful);
    got = absl::StrCat(QuotedField(doubtful), ", which can be a bad number",
                       readings.empty() ? "" : absl::StrCat(" (", readings, ")"), ", a missing value or a name");
  } else if (numbers.empty() && !text.empty() && gap && !above_number) {
    got = absl::StrCat("both text and missing values ", fields);
  } else if (numbers.empty()) {
    return !text.empty();
  } else if (!text.empty()) {
    got = absl::StrCat("both text and numbers ", fields);
  } else if (row.size() > 1 && AreLabels(numbers)) {
    got = absl::StrCat("different whole numbers only ", fields);
  } else {
    return false;
  }
  const std::string below =
      second_ ? absl::StrCat("the data begin with line ", rows_->line(), " (", NamesText(rows_->fields()), ")")
              : "there are no data";
  return absl::InvalidArgumentError(absl::StrCat("line ", width_line_, ": header: got ", got,
                                                 "; add --header yes if they are the names of columns, so that ", below,
                                                 ", or --header no if they are data"));
}

// How the first two fields can be one number: 1,5 with a decimal comma, 1 500 with groups; empty: they can't, or the
// delimiter is given.
std::string TextReader::OneNumber(const std::vector<std::string>& fields) const {
  const char delimiter = text_->delimiter();
  if (options_.delimiter != '\0' || (delimiter != ',' && delimiter != ' ')) return "";
  const std::string one = absl::StrCat(Strip(fields[0]), std::string(1, delimiter), fields[1]);
  const std::string readings = OtherReadings(one);
  return readings.empty() ? "" : absl::StrCat("if ", QuotedField(one), " is one number, ", readings);
}

// Gives the fields of the rows their names, where the header has one more or fewer than the first row below it.
absl::Status TextReader::FitHeader(std::vector<std::string>* names) {
  const std::vector<absl::string_view>& fields = rows_->fields();
  if (fields.size() + 1 == width_ && Strip(names->back()).empty()) {
    names->pop_back();
    width_ = fields.size();
  }
  if (fields.size() != width_ + 1) return absl::OkStatus();
  width_ = fields.size();
  if (Strip(fields.back()).empty()) {
    end_ = End::kDelimiter;
    return absl::OkStatus();
  }
  if (const std::string one = OneNumber({fields.begin(), fields.end()}); !one.empty() && !text_->first_quoted()) {
    return rows_->Error(absl::StrCat("got ", fields.size(), " fields; allowed: ", fields.size() - 1, ", as line ",
                                     width_line_, " has; ", one,
                                     "; if the first field is the name of its row, add "
                                     "--delimiter ",
                                     text_->delimiter() == ' ' ? "space" : ","));
  }
  names->insert(names->begin(), "");
  row_names_ = true;
  notes_.push_back(absl::StrCat("line ", width_line_,
                                ", the header, has one field fewer than the rows, whose first field "
                                "is taken as the name of the row"));
  return absl::OkStatus();
}

void TextReader::Add(std::string name, std::size_t index) {
  columns_.emplace_back(std::move(name), index, NumberColumn(options_.dtype, style_, options_.missing_words));
}

absl::Status TextReader::Select(const std::vector<std::string>& names, bool header) {
  const std::size_t count = names.size();
  const auto error = [this](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("line ", width_line_, ": ", what));
  };
  const auto add = [&](std::size_t index) { Add(header ? names[index] : absl::StrCat(index), index); };
  std::vector<std::string> fields = options_.fields;
  if (options_.only_fields && fields.empty() && count == 1) fields = {"0"};
  for (const std::string& each : fields) {
    ASSIGN_OR_RETURN(const std::size_t index, IndexOf(each, names, header));
    fields_.emplace_back(header ? names[index] : absl::StrCat(index), index, json_ != nullptr, style_,
                         options_.missing_words);
  }
  if (options_.only_fields && !fields.empty()) return absl::OkStatus();
  std::vector<std::string> wanted = options_.columns;
  if (wanted.empty()) {
    if (count > 1 && !options_.all_columns && !(row_names_ && count == 2)) {
      return error(absl::StrCat("got ", count, " columns (", NamesText(names), "); choose ",
                                options_.part.has_value() ? "one as FILE:NAME" : "with --column, or --column all"));
    }
    wanted.emplace_back(count != 1 ? kAll : "0");
  }
  for (const std::string& each : wanted) {
    if (each == kAll && !options_.part.has_value()) {
      everything_ = true;
      for (std::size_t i = row_names_ ? 1 : 0; i < count; ++i) add(i);
      continue;
    }
    ASSIGN_OR_RETURN(const std::size_t index, IndexOf(each, names, header));
    add(index);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::size_t> TextReader::IndexOf(const std::string& column, const std::vector<std::string>& names,
                                                bool header) const {
  const auto error = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("line ", width_line_, ": column: got \"", column, "\"", what));
  };
  const std::string most = absl::StrCat("0 to ", names.size() - 1);
  const auto found = header ? std::find(names.begin(), names.end(), column) : names.end();
  if (found != names.end() && std::find(found + 1, names.end(), column) != names.end()) {
    return error(absl::StrCat(", which several columns are called; allowed: ", most));
  }
  std::size_t index = static_cast<std::size_t>(found - names.begin());
  if (found == names.end() && (!absl::SimpleAtoi(column, &index) || index >= names.size())) {
    return error(absl::StrCat("; allowed: ", NamesText(names), ", or ", most));
  }
  return index;
}

// Adds a column for each key that has come for the first time.
void TextReader::AddKeys() {
  const std::vector<std::string>& names = json_->names();
  for (; width_ < names.size(); ++width_) {
    const auto same = [&](const Column& column) { return column.index == width_; };
    if (!everything_ || std::any_of(columns_.begin(), columns_.end(), same)) continue;
    Add(names[width_], width_);
    columns_.back().numbers.AppendMissing(taken_, rows_->line());
  }
}

absl::Status TextReader::BadField(Column& column, absl::string_view field, const char* allowed, std::int64_t line) {
  if ((everything_ || options_.texts) && !column.numbers.has_value()) {
    column.text = true;
    column.first_text = std::string(field.substr(0, 60));
    column.text_line = line;
    TakeText(column, field, line);
    return absl::OkStatus();
  }
  column.status = absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", ColumnText(column), ": got ",
                                                          QuotedField(field), "; allowed: ", allowed,
                                                          "; if it stands for no value, --missing names it"));
  return columns_.size() == 1 ? column.status : absl::OkStatus();
}

// Counts a field of a column of text. Texts of which most are different would take as much memory as there is: of the
// column with which they take too much, only the fields are counted.
void TextReader::TakeWord(Column& column, absl::string_view field) {
  constexpr std::size_t kEntryBytes = 64;  // what a text takes besides its bytes
  ++column.filled;
  if (column.too_many_words || ++column.words[field] > 1) return;
  const std::size_t bytes = field.size() + kEntryBytes;
  column.word_bytes += bytes;
  word_bytes_ += bytes;
  if (word_bytes_ <= options_.most_word_bytes) return;
  column.too_many_words = true;
  word_bytes_ -= column.word_bytes;
  column.words = {};
}

void TextReader::TakeText(Column& column, absl::string_view field, std::int64_t line) {
  field = Strip(field);
  if (options_.texts && !words_.Has(field)) TakeWord(column, field);
  const bool word = !field.empty() && absl::ascii_isalpha(static_cast<unsigned char>(field[0]));  // most are
  if (!word && BeginsLikeNumber(field)) {
    const bool number = IsNumber(field, style_);
    const std::string readings = number ? "" : OtherReadings(field);
    if (number || !readings.empty()) {
      if (column.numerals++ > 0) return;
      const std::string got =
          absl::StrCat("line ", number ? column.text_line : line, ": ", ColumnText(column), ": got ",
                       QuotedField(number ? absl::string_view(column.first_text) : field));
      column.status =
          absl::InvalidArgumentError(number ? absl::StrCat(got, "; allowed: numbers, as line ", line, " has")
                                            : absl::StrCat(got, "; allowed: numbers in the range of f64; ", readings));
      return;
    }
  }
  if (!words_.Has(field) && !IsNoName(field)) ++column.texts;
}

// Decides whether the column is text, which is left out, or has numbers and fields that are none.
void TextReader::EndText(Column& column) {
  if (column.numerals > column.texts) return;
  column.status = absl::OkStatus();
  if (options_.texts) return;
  notes_.push_back(absl::StrCat(ColumnText(column), " isn't numbers, and is left out: line ", column.text_line, " has ",
                                QuotedField(column.first_text),
                                column.numerals > 0 ? absl::StrCat(", though ", column.numerals, " others are") : ""));
}

absl::Status TextReader::TakeRow(const std::vector<absl::string_view>& fields, std::int64_t line) {
  if (json_ != nullptr) {
    AddKeys();
  } else if (fields.size() != width_) {
    return rows_->Error(
        absl::StrCat("got ", fields.size(), " fields; allowed: ", width_,
                     end_ == End::kDelimiter ? " of which the last is blank" : "",
                     row_names_ ? ", as the rows before have" : absl::StrCat(", as line ", width_line_, " has")));
  } else if (end_ == End::kDelimiter && !Strip(fields.back()).empty()) {
    return rows_->Error(absl::StrCat("got ", QuotedField(fields.back()),
                                     " after the delimiter at the end of the row; "
                                     "allowed: nothing, as in the rows before"));
  }
  blank_end_ = blank_end_ && Strip(fields.back()).empty();
  for (Column& column : columns_) {
    const absl::string_view field = fields[column.index];
    if (column.text) {
      TakeText(column, field, line);
    } else if (column.status.ok()) {
      if (const char* const allowed = column.numbers.Append(field, line); allowed != nullptr) {
        RETURN_IF_ERROR(BadField(column, field, allowed, line));
      }
    }
  }
  for (FieldColumn& column : fields_) {
    const absl::string_view field = fields[column.index()];
    RETURN_IF_ERROR(column.Append(field, words_.Has(Strip(field)), line));
  }
  ++taken_;
  return absl::OkStatus();
}

absl::StatusOr<bool> TextReader::Read(std::size_t rows) {
  bool more = true;
  blocks_ += taken_ > 0 ? 1 : 0;
  for (std::size_t i = 0; i < rows; ++i) {
    if (std::exchange(first_, false)) {
      RETURN_IF_ERROR(TakeRow({head_.begin(), head_.end()}, width_line_));
      continue;
    }
    if (!std::exchange(second_, false)) {
      ASSIGN_OR_RETURN(more, rows_->Next());
      if (!more) break;
    }
    RETURN_IF_ERROR(TakeRow(rows_->fields(), rows_->line()));
  }
  if (more) return true;
  if (taken_ == 0) {
    notes_.push_back(
        absl::StrCat("line ", width_line_, " (", NamesText(head_), ") is taken as the header, and no row follows it"));
  }
  const auto seen = [&](const std::string& name, std::size_t index) {
    if (json_ == nullptr || json_->Seen(index)) return absl::OkStatus();
    std::vector<std::string> names;
    for (std::size_t i = 0; i < json_->names().size(); ++i) {
      if (json_->Seen(i)) names.push_back(json_->names()[i]);
    }
    return absl::InvalidArgumentError(absl::StrCat("column: got \"", name, "\"; allowed: ", NamesText(names)));
  };
  for (Column& column : columns_) {
    RETURN_IF_ERROR(seen(column.name, column.index));
    if (column.text) EndText(column);
  }
  for (FieldColumn& column : fields_) {
    RETURN_IF_ERROR(seen(column.name(), column.index()));
    column.End();
  }
  // What is behind the last delimiter of each row, if that has none behind it.
  Column* const last = columns_.empty() ? nullptr : &columns_.back();
  if (blank_end_ && blocks_ == 0 && json_ == nullptr && everything_ && taken_ > 0 && last->index > 0 &&
      last->index + 1 == width_ && (!header_ || Strip(last->name).empty()) && !last->left_out() &&
      !last->numbers.has_value()) {
    last->text = true;
    notes_.push_back("the delimiter at the end of each row is ignored");
  }
  const auto left_out = [](const Column& column) { return column.text && column.status.ok(); };
  if (!options_.texts && !columns_.empty() && std::all_of(columns_.begin(), columns_.end(), left_out)) {
    return absl::InvalidArgumentError("no column has numbers");
  }
  return false;
}

Words TextReader::WordsOf(const Column& column) const {
  Words words{.count = column.filled,
              .missing = static_cast<std::int64_t>(taken_) - column.filled,
              .known = !column.too_many_words,
              .distinct = static_cast<std::int64_t>(column.words.size())};
  for (const auto& [word, count] : column.words) {
    if (count < words.frequency || (count == words.frequency && word > words.most_frequent)) continue;
    words.most_frequent = word;
    words.frequency = count;
  }
  return words;
}

std::vector<std::string> TextReader::notes() const {
  std::vector<std::string> notes = rows_->notes();
  notes.insert(notes.end(), notes_.begin(), notes_.end());
  if (json_ == nullptr && width_ == 1 && text_->blank_lines() > 0) {
    notes.push_back(absl::StrCat("blank lines between the rows are skipped: ", text_->blank_lines(),
                                 ", the first is line ", text_->first_blank_line()));
  }
  return notes;
}

std::vector<std::string> TextReader::notes(const Column& column) const {
  std::vector<std::string> notes;
  if (column.too_many_words && column.text && column.status.ok()) {
    notes.push_back(absl::StrCat(ColumnText(column), ": how many different texts there are, and which is the most ",
                                 "frequent, is not known: they take more than ", options_.most_word_bytes >> 20,
                                 " MiB"));
  }
  if (const std::int64_t line = column.numbers.groups_line(); line > 0) {
    notes.push_back(absl::StrCat(ColumnText(column), ": commas separate thousands, first in line ", line,
                                 "; if they are decimal points, add --decimal ,"));
  }
  // Semicolons delimit fields where commas are decimal points.
  const bool doubtful = json_ == nullptr && text_->delimiter() == ';' && options_.comma == Comma::kDefault;
  if (const std::int64_t line = column.numbers.points_line(); doubtful && line > 0) {
    notes.push_back(absl::StrCat(ColumnText(column), ": points are decimal points, first in line ", line,
                                 "; if they separate thousands, add --decimal ,"));
  }
  if (const std::int64_t line = column.numbers.bool_line(); line > 0) {
    notes.push_back(absl::StrCat(ColumnText(column), ": True counts as 1, False as 0, first in line ", line));
  }
  return notes;
}

}  // namespace reduced::client
