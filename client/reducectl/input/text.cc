// Our own state machine, because no packaged library does it: Debian's libcsv calls back for each field through a
// pointer, handles each byte, and knows neither whitespace nor comments nor lines. Here the bytes that matter are found
// 64 at a time, as in simdjson, and only the fields that are asked for are parsed.
#include "client/reducectl/input/text.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace reduced::client {
namespace {

constexpr std::size_t kBlock = 64;
constexpr std::size_t kRead = std::size_t{1} << 20;
constexpr std::size_t kMaxRow = std::size_t{64} << 20;
constexpr char kAll[] = "all";

// Bit i is set if p[i] is a delimiter, a line feed or a quote. `other`: a second delimiter, or the same.
std::uint64_t SpecialsOf(const char* p, char delimiter, char other) {
  std::uint64_t specials = 0;
#ifdef __SSE2__  // Debian's Highway has no vectors for it
  for (int i = 0; i < 4; ++i) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p) + i);
    const auto is = [v](char c) { return _mm_cmpeq_epi8(v, _mm_set1_epi8(c)); };
    const __m128i special = _mm_or_si128(_mm_or_si128(is(delimiter), is(other)), _mm_or_si128(is('\n'), is('"')));
    specials |= static_cast<std::uint64_t>(_mm_movemask_epi8(special)) << (16 * i);
  }
#else
  for (std::size_t i = 0; i < kBlock; ++i) {
    const bool special = p[i] == delimiter || p[i] == other || p[i] == '\n' || p[i] == '"';
    specials |= static_cast<std::uint64_t>(special) << i;
  }
#endif
  return specials;
}

absl::string_view Between(const char* from, const char* to) { return {from, static_cast<std::size_t>(to - from)}; }

bool IsBlank(absl::string_view text) { return text.find_first_not_of(" \t\r") == absl::string_view::npos; }

bool IsComment(absl::string_view line) { return line[0] == '#' && !absl::StartsWith(line, "#N/A"); }

// How often `c` is in the line, outside of quotes; runs of spaces within the line count once.
int Count(absl::string_view line, char c) {
  int count = 0;
  bool quoted = false;
  if (c == ' ') line = absl::StripAsciiWhitespace(line);
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') quoted = !quoted;
    if (quoted || line[i] != c) continue;
    if (c != ' ' || (i > 0 && line[i - 1] != ' ')) ++count;
  }
  return count;
}

// The delimiter that is equally often in each of the first lines; else one that is in the first; else a comma. Tabs and
// semicolons come before commas, which may be decimal points, and spaces, which may be in names, last.
char FindDelimiter(absl::string_view text, bool decimal_comma) {
  constexpr std::size_t kLines = 10;
  constexpr char kDelimiters[] = {'\t', ';', '|', ',', ' '};
  std::vector<absl::string_view> lines;
  while (!text.empty() && lines.size() < kLines) {
    const std::size_t end = text.find('\n');
    if (end == absl::string_view::npos && !lines.empty()) break;  // it may go on
    const absl::string_view line = text.substr(0, end);
    if (!IsBlank(line) && !IsComment(line)) lines.push_back(line);
    text.remove_prefix(end == absl::string_view::npos ? text.size() : end + 1);
  }
  if (lines.empty()) lines.emplace_back();
  for (const char delimiter : kDelimiters) {
    if (delimiter == ',' && decimal_comma) continue;
    const int count = Count(lines[0], delimiter);
    const auto same = [&](absl::string_view line) { return Count(line, delimiter) == count; };
    if (count > 0 && std::all_of(lines.begin(), lines.end(), same)) return delimiter;
  }
  for (const char delimiter : kDelimiters) {
    if (delimiter != ' ' && !(delimiter == ',' && decimal_comma) && Count(lines[0], delimiter) > 0) return delimiter;
  }
  return decimal_comma ? ';' : ',';
}

// For a message: at most 20 names, and of each at most 60 bytes.
std::string NamesText(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 20;
  std::vector<absl::string_view> shown;
  for (std::size_t i = 0; i < std::min(names.size(), kMost); ++i)
    shown.push_back(absl::string_view(names[i]).substr(0, 60));
  return absl::StrCat(absl::StrJoin(shown, ", "), names.size() > kMost ? ", ..." : "");
}

// Whether these numbers look like labels: whole numbers, each one more than the one before, from 0 or a year on.
bool AreLabels(const std::vector<std::string>& numbers) {
  std::int64_t first = 0;
  if (numbers.size() < 2 || !absl::SimpleAtoi(numbers[0], &first)) return false;
  if (first != 0 && (first < 1900 || first > 2100)) return false;
  for (std::size_t i = 1; i < numbers.size(); ++i) {
    std::int64_t number = 0;
    if (!absl::SimpleAtoi(numbers[i], &number) || number != first + static_cast<std::int64_t>(i)) return false;
  }
  return true;
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

absl::Status RowReader::Error(absl::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat("line ", line_, ": ", what));
}

RowReader::Step RowReader::Bad(absl::string_view what) {
  error_ = Error(what);
  return Step::kBad;
}

absl::StatusOr<bool> RowReader::Next() {
  for (;;) {
    switch (TryRow()) {
      case Step::kRow:
        return true;
      case Step::kSkipped:
        break;
      case Step::kMore:
        if (const absl::Status status = Fill(); !status.ok()) return status;
        break;
      case Step::kEnd:
        return false;
      case Step::kBad:
        return error_;
    }
  }
}

void RowReader::GoTo(const char* from) {
  block_ = from;
  specials_ = from < end_ ? SpecialsOf(from, delimiter_, delimiter_ == ' ' ? '\t' : delimiter_) : 0;
}

const char* RowReader::Special() {
  while (specials_ == 0) {
    if (end_ - block_ <= static_cast<std::ptrdiff_t>(kBlock)) return end_;
    GoTo(block_ + kBlock);
  }
  const char* const special = block_ + std::countr_zero(specials_);
  specials_ &= specials_ - 1;
  return special;  // the bytes after end_ are not special
}

absl::Status RowReader::Fill() {
  const bool first = begin_ == nullptr;
  const auto left = static_cast<std::size_t>(end_ - begin_);
  if (left > kMaxRow) return Error(absl::StrCat("a row has more than ", kMaxRow, " bytes, or a quote isn't closed"));
  const std::size_t wanted = std::max(kRead, 2 * left);
  if (left > 0) std::memmove(buffer_.data(), begin_, left);
  buffer_.resize(left + wanted + kBlock);
  const absl::StatusOr<std::size_t> got = source_->Read(buffer_.data() + left, wanted);
  if (!got.ok()) return got.status();
  begin_ = buffer_.data();
  end_ = begin_ + left + *got;
  last_ = *got < wanted;
  std::fill_n(buffer_.data() + left + *got, kBlock, '\0');
  if (first) {
    absl::string_view text = Between(begin_, end_);
    if (absl::StartsWith(text, "\xff\xfe") || absl::StartsWith(text, "\xfe\xff")) {
      return absl::InvalidArgumentError(
          "encoding: got UTF-16; allowed: UTF-8 (convert it with iconv -f UTF-16 -t UTF-8)");
    }
    if (absl::ConsumePrefix(&text, "\xEF\xBB\xBF")) begin_ = text.data();
    if (delimiter_ == '\0') delimiter_ = FindDelimiter(text, decimal_comma_);
  }
  if (*got > 0 && std::memchr(end_ - *got, '\0', *got) != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("isn't text: it has a NUL byte after line ", line_, "; allowed: text in UTF-8"));
  }
  GoTo(begin_);
  return absl::OkStatus();
}

RowReader::Step RowReader::FindClosingQuote(const char* from, const char** close, bool* escaped) {
  for (;;) {
    const auto* const quote = static_cast<const char*>(std::memchr(from, '"', static_cast<std::size_t>(end_ - from)));
    if (quote == nullptr) return last_ ? Bad("bad CSV: a quoted field isn't closed") : Step::kMore;
    if (quote + 1 == end_ && !last_) return Step::kMore;
    if (quote + 1 == end_ || quote[1] != '"') {
      *close = quote;
      return Step::kRow;
    }
    *escaped = true;
    from = quote + 2;
  }
}

// Takes one row, or one line that is none. kMore: it doesn't end in the buffer; nothing was taken.
RowReader::Step RowReader::TryRow() {
  fields_.clear();
  unescaped_.clear();
  if (begin_ == end_) return last_ ? Step::kEnd : Step::kMore;
  line_ = next_line_;
  if (*begin_ == '#' && end_ - begin_ < 4 && !last_) return Step::kMore;
  if (IsComment(Between(begin_, end_))) {
    const auto* const feed =
        static_cast<const char*>(std::memchr(begin_, '\n', static_cast<std::size_t>(end_ - begin_)));
    if (feed == nullptr && !last_) return Step::kMore;
    begin_ = feed == nullptr ? end_ : feed + 1;
    ++next_line_;
    GoTo(begin_);
    return Step::kSkipped;
  }
  std::int64_t lines = 0;
  bool quoted = false;
  for (const char* field = begin_;;) {
    const char* special = Special();
    if (special == end_ && !last_) return Step::kMore;
    if (special < end_ && *special == '"') {
      if (!IsBlank(Between(field, special))) continue;  // a quote within a field is a character as any other
      const char* close = nullptr;
      bool escaped = false;
      if (const Step step = FindClosingQuote(special + 1, &close, &escaped); step != Step::kRow) return step;
      absl::string_view value = Between(special + 1, close);
      lines += std::count(value.begin(), value.end(), '\n');
      if (escaped) value = unescaped_.emplace_back(absl::StrReplaceAll(value, {{"\"\"", "\""}}));
      GoTo(close + 1);
      special = Special();
      if (special == end_ && !last_) return Step::kMore;
      if (!IsBlank(Between(close + 1, special)) || (special < end_ && *special == '"')) {
        return Bad("bad CSV: text follows a quoted field");
      }
      fields_.push_back(value);
      quoted = true;
    } else {
      const char* end = special;
      if ((special == end_ || *special == '\n') && end > field && end[-1] == '\r') --end;
      if (delimiter_ != ' ' || end > field) fields_.push_back(Between(field, end));
    }
    if (special == end_ || *special == '\n') {
      begin_ = special == end_ ? end_ : special + 1;
      next_line_ = line_ + lines + 1;
      const bool blank = fields_.empty() || (fields_.size() == 1 && !quoted && IsBlank(fields_[0]));
      return blank ? Step::kSkipped : Step::kRow;
    }
    field = special + 1;
  }
}

absl::StatusOr<std::unique_ptr<TextReader>> TextReader::Open(std::shared_ptr<ByteSource> source,
                                                             const InputOptions& options) {
  std::unique_ptr<TextReader> reader(new TextReader(std::move(source), options));
  const absl::Status status = reader->ReadHeader();
  if (!status.ok()) return status;
  return reader;
}

absl::Status TextReader::ReadHeader() {
  const absl::StatusOr<bool> any = rows_.Next();
  if (!any.ok()) return any.status();
  if (!*any) return absl::InvalidArgumentError("got an empty text; allowed: at least one row");
  const std::vector<std::string> row(rows_.fields().begin(), rows_.fields().end());
  width_ = row.size();
  width_line_ = rows_.line();
  for (const std::string& field : row) {
    if (absl::StrContains(field, '\r')) {
      return rows_.Error("got a carriage return within a line; allowed: lines that end with LF or CR LF");
    }
  }
  const absl::StatusOr<bool> header = IsHeader(row);
  if (!header.ok()) return header.status();
  first_ = !*header;
  return Select(row, *header);
}

Comma TextReader::CommaOf() const {
  if (options_.comma != Comma::kDefault) return options_.comma;
  return rows_.delimiter() == ',' ? Comma::kThousands : Comma::kDefault;
}

absl::StatusOr<bool> TextReader::IsHeader(const std::vector<std::string>& row) {
  if (options_.header != Header::kAuto) return options_.header == Header::kYes;
  for (const std::string& wanted : options_.columns) {
    std::size_t index = 0;
    if (absl::SimpleAtoi(wanted, &index) && index < width_) continue;
    if (std::find(row.begin(), row.end(), wanted) != row.end()) return true;
  }
  const Comma comma = CommaOf();
  std::vector<std::string> numbers;
  std::size_t missing = 0;
  for (const std::string& field : row) {
    if (IsNumber(field, comma)) {
      numbers.push_back(field);
    } else if (IsMissing(field)) {
      ++missing;
    }
  }
  const bool text = numbers.size() + missing < row.size();
  if (numbers.empty()) return text;
  if (AreLabels(numbers)) {
    if (!text && missing == 0) {
      notes_.push_back(absl::StrCat("line ", rows_.line(), " (", NamesText(row),
                                    ") is taken as the header; if it has data, add --header no"));
    }
    return true;
  }
  if (!text) return false;
  return rows_.Error(absl::StrCat("header: got both text and numbers (", NamesText(row),
                                  "); add --header yes if this line has the names of the columns, else --header no"));
}

absl::Status TextReader::Select(const std::vector<std::string>& row, bool header) {
  const auto add = [&](std::size_t index) {
    columns_.push_back({.name = header ? row[index] : absl::StrCat(index),
                        .index = index,
                        .numbers = NumberColumn(options_.dtype, CommaOf())});
  };
  std::vector<std::string> wanted = options_.columns;
  if (wanted.empty()) {
    if (width_ > 1 && !options_.all_columns) {
      return rows_.Error(
          absl::StrCat("got ", width_, " columns (", NamesText(row), "); choose ",
                       options_.part.has_value() ? "one as FILE:NAME" : "with --column, or --column all"));
    }
    wanted.emplace_back(width_ > 1 ? kAll : "0");
  }
  for (const std::string& each : wanted) {
    if (each == kAll && !options_.part.has_value()) {
      everything_ = true;
      for (std::size_t i = 0; i < width_; ++i) add(i);
      continue;
    }
    const auto found = header ? std::find(row.begin(), row.end(), each) : row.end();
    if (found != row.end() && std::find(found + 1, row.end(), each) != row.end()) {
      return rows_.Error(
          absl::StrCat("column: got \"", each, "\", which several columns are called; allowed: 0 to ", width_ - 1));
    }
    std::size_t index = static_cast<std::size_t>(found - row.begin());
    if (found == row.end() && (!absl::SimpleAtoi(each, &index) || index >= width_)) {
      return rows_.Error(
          absl::StrCat("column: got \"", each, "\"; allowed: ", NamesText(row), ", or 0 to ", width_ - 1));
    }
    add(index);
  }
  return absl::OkStatus();
}

absl::Status TextReader::BadField(Column& column, absl::string_view field, const char* allowed) {
  if (everything_ && !column.numbers.has_value() && !column.numbers.taken()) {
    column.text = true;
    return absl::OkStatus();
  }
  return rows_.Error(absl::StrCat(
      "column \"", column.name.substr(0, 60), "\": got \"", absl::CHexEscape(field.substr(0, 60)),
      "\"; allowed: ", options_.dtype.empty() ? allowed : absl::StrCat("numbers that ", options_.dtype, " can hold")));
}

absl::Status TextReader::TakeRow() {
  const std::vector<absl::string_view>& fields = rows_.fields();
  if (fields.size() != width_) {
    return rows_.Error(
        absl::StrCat("got ", fields.size(), " fields; allowed: ", width_, ", as line ", width_line_, " has"));
  }
  for (Column& column : columns_) {
    if (column.text) continue;
    const absl::string_view field = fields[column.index];
    if (const char* const allowed = column.numbers.Append(field); allowed != nullptr) {
      if (absl::Status status = BadField(column, field, allowed); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> TextReader::Read(std::size_t rows) {
  bool more = true;
  for (std::size_t i = 0; i < rows; ++i) {
    if (!std::exchange(first_, false)) {
      const absl::StatusOr<bool> any = rows_.Next();
      if (!any.ok()) return any.status();
      more = *any;
      if (!more) break;
    }
    if (absl::Status status = TakeRow(); !status.ok()) return status;
    any_ = true;
  }
  if (!more && !any_) {
    std::vector<std::string> names;
    for (const Column& column : columns_) names.push_back(column.name);
    notes_.push_back(
        absl::StrCat("line ", width_line_, " (", NamesText(names), ") is taken as the header, and no row follows it"));
  }
  for (const Column& column : columns_) {
    if (column.text)
      notes_.push_back(absl::StrCat("column \"", column.name.substr(0, 60), "\" isn't numbers, and is left out"));
  }
  columns_.erase(std::remove_if(columns_.begin(), columns_.end(), [](const Column& column) { return column.text; }),
                 columns_.end());
  if (columns_.empty()) return absl::InvalidArgumentError("no column has numbers");
  return more;
}

}  // namespace reduced::client
