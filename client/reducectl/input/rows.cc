// Our own state machine, because no packaged library does it: Debian's libcsv calls back for each field through a
// pointer, handles each byte, and knows neither whitespace nor comments nor lines. Here the bytes that matter are found
// 64 at a time, as in simdjson, and only the fields that are asked for are parsed.
#include "client/reducectl/input/rows.h"

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
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "kernels/system/status_macros.h"

namespace reduced::client {
namespace {

constexpr std::size_t kBlock = 64;
constexpr std::size_t kRead = std::size_t{1} << 20;
constexpr std::size_t kMaxRow = std::size_t{64} << 20;

// Bit i is set if p[i] is a delimiter, the end of a line or a quote. `other`: a second delimiter, or the same.
std::uint64_t SpecialsOf(const char* p, char delimiter, char other, char line_end) {
  std::uint64_t specials = 0;
#ifdef __SSE2__  // Debian's Highway has no vectors for it
  for (int i = 0; i < 4; ++i) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p) + i);
    const auto is = [v](char c) { return _mm_cmpeq_epi8(v, _mm_set1_epi8(c)); };
    const __m128i special = _mm_or_si128(_mm_or_si128(is(delimiter), is(other)), _mm_or_si128(is(line_end), is('"')));
    specials |= static_cast<std::uint64_t>(_mm_movemask_epi8(special)) << (16 * i);
  }
#else
  for (std::size_t i = 0; i < kBlock; ++i) {
    const bool special = p[i] == delimiter || p[i] == other || p[i] == line_end || p[i] == '"';
    specials |= static_cast<std::uint64_t>(special) << i;
  }
#endif
  return specials;
}

absl::string_view Between(const char* from, const char* to) { return {from, static_cast<std::size_t>(to - from)}; }

bool IsBlank(absl::string_view text) { return text.find_first_not_of(" \t\r") == absl::string_view::npos; }

constexpr absl::string_view kMissing = "#N/A";

// Whether a line that begins so is a comment. `comment`: what they begin with; empty: there are none.
bool IsComment(absl::string_view line, absl::string_view comment) {
  return !comment.empty() && absl::StartsWith(line, comment) && !absl::StartsWith(line, kMissing);
}

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

// Removes the next line from *text, and returns it without its end.
absl::string_view TakeLine(absl::string_view* text, char line_end) {
  const std::size_t end = text->find(line_end);
  const absl::string_view line = text->substr(0, end);
  text->remove_prefix(end == absl::string_view::npos ? text->size() : end + 1);
  return absl::StripSuffix(line, "\r");
}

// The first lines of a text that are neither blank nor comments. `last`: the text
// ends here, else its last line may be a part of one.
std::vector<absl::string_view> FirstLines(absl::string_view text, char line_end, bool last, absl::string_view comment) {
  constexpr std::size_t kLines = 10;
  std::vector<absl::string_view> lines;
  while (!text.empty() && lines.size() < kLines) {
    if (!last && !lines.empty() && !absl::StrContains(text, line_end)) break;
    const absl::string_view line = TakeLine(&text, line_end);
    if (!IsBlank(line) && !IsComment(line, comment)) lines.push_back(line);
  }
  return lines;
}

// The delimiter that is equally often in each of the lines; else one that the first has once more or less often than
// all others, as headers without a name for the first column do; else one that is in the first; else a comma. Tabs and
// semicolons come before commas, which may be decimal points, and spaces, which may be in names, last. Absent: the
// first line has none, and the others have several once.
std::optional<char> FindDelimiter(std::vector<absl::string_view> lines, bool decimal_comma) {
  const std::string delimiters = decimal_comma ? "\t;| " : "\t;|, ";
  if (lines.empty()) lines.emplace_back();
  std::string once;
  for (const int difference : {0, 1}) {
    for (const char delimiter : delimiters) {
      const int first = Count(lines[0], delimiter);
      const int count = Count(lines.back(), delimiter);
      const auto same = [&](absl::string_view line) { return Count(line, delimiter) == count; };
      if (count == 0 || std::abs(first - count) != difference || !std::all_of(lines.begin() + 1, lines.end(), same)) {
        continue;
      }
      if (first > 0) return delimiter;
      once += delimiter;
    }
  }
  for (const char delimiter : delimiters) {
    if (delimiter != ' ' && Count(lines[0], delimiter) > 0) return delimiter;
  }
  if (once.size() > 1) return std::nullopt;
  return !once.empty() ? once[0] : decimal_comma ? ';' : ',';
}

}  // namespace

absl::Status RowSource::Error(absl::string_view what) const {
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
        RETURN_IF_ERROR(Fill());
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
  specials_ = from < end_ ? SpecialsOf(from, delimiter_, delimiter_ == ' ' ? '\t' : delimiter_, line_end_) : 0;
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
  ASSIGN_OR_RETURN(const std::size_t got, source_->Read(buffer_.data() + left, wanted));
  begin_ = buffer_.data();
  end_ = begin_ + left + got;
  last_ = got < wanted;
  std::fill_n(buffer_.data() + left + got, kBlock, '\0');
  if (first) {
    RETURN_IF_ERROR(Begin());
  }
  if (got > 0 && std::memchr(end_ - got, '\0', got) != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("isn't text: it has a NUL byte after line ", line_, "; allowed: text in UTF-8"));
  }
  GoTo(begin_);
  return absl::OkStatus();
}

absl::Status RowReader::Begin() {
  absl::string_view text = Between(begin_, end_);
  if (absl::StartsWith(text, "\xff\xfe") || absl::StartsWith(text, "\xfe\xff")) {
    return absl::InvalidArgumentError(
        "encoding: got UTF-16; allowed: UTF-8 (convert it with iconv -f UTF-16 -t UTF-8)");
  }
  absl::ConsumePrefix(&text, "\xEF\xBB\xBF");
  if (!absl::StrContains(text, '\n') && absl::StrContains(text, '\r')) line_end_ = '\r';
  begin_ = text.data();
  std::vector<absl::string_view> lines = FirstLines(text, line_end_, last_, comment_.empty() ? "#" : comment_);
  const bool only_comments = lines.empty();
  if (only_comments) lines = FirstLines(text, line_end_, last_, /*comment=*/"");
  if (delimiter_ == '\0') {
    const std::optional<char> delimiter = FindDelimiter(lines, decimal_comma_);
    if (!delimiter.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("delimiter: got lines like \"", absl::CHexEscape(lines[1].substr(0, 60)),
                       "\" below a header that has none; allowed: one that --delimiter says"));
    }
    delimiter_ = *delimiter;
  }
  if (!comment_.empty()) return absl::OkStatus();
  const int count = lines.empty() ? 0 : Count(lines[0], delimiter_);
  while (!text.empty()) {
    absl::string_view rest = text;
    const absl::string_view line = TakeLine(&rest, line_end_);
    if (!IsBlank(line)) {
      const int delimiters = Count(line, delimiter_);
      if (!IsComment(line, "#")) break;
      if (delimiters > 0 && (only_comments || delimiters == count)) break;
      // A header may have a delimiter fewer than the rows, or one more behind its last name.
      if (count > 0 && (delimiters == count - 1 || (delimiters == count + 1 && line.back() == delimiter_)) &&
          delimiters > 0) {
        if (header_told_) break;
        return absl::InvalidArgumentError(absl::StrCat("line ", next_line_, ": got (",
                                                       absl::CHexEscape(line.substr(0, 60)),
                                                       "), which can be a comment or the header; add --comment '#' or "
                                                       "--header yes"));
      }
      if (rest.empty() && !last_) {
        return absl::InvalidArgumentError(absl::StrCat("the first ", next_line_,
                                                       " lines begin with #; allowed: fewer, or "
                                                       "--comment '#'"));
      }
      line_ = next_line_;
      Skip(line);
    }
    ++next_line_;
    text = rest;
    begin_ = text.data();
  }
  return absl::OkStatus();
}

void RowReader::Skip(absl::string_view line) {
  if (++comments_ == 1) {
    first_comment_ = absl::StrCat("line ", line_, " (", absl::CHexEscape(line.substr(0, 60)), ")");
  }
}

std::vector<std::string> RowReader::notes() const {
  if (comments_ == 0) return {};
  return {comments_ == 1 ? absl::StrCat(first_comment_, " is skipped as a comment")
                         : absl::StrCat(comments_, " lines are skipped as comments, the first is ", first_comment_)};
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
  if (!comment_.empty()) {
    const absl::string_view rest = Between(begin_, end_);
    if (rest.size() < std::max(comment_.size(), kMissing.size()) && !last_) return Step::kMore;
    if (IsComment(rest, comment_)) {
      const auto* const line_end =
          static_cast<const char*>(std::memchr(begin_, line_end_, static_cast<std::size_t>(end_ - begin_)));
      if (line_end == nullptr && !last_) return Step::kMore;
      Skip(absl::StripSuffix(Between(begin_, line_end == nullptr ? end_ : line_end), "\r"));
      begin_ = line_end == nullptr ? end_ : line_end + 1;
      ++next_line_;
      GoTo(begin_);
      return Step::kSkipped;
    }
  }
  std::int64_t lines = 0;
  bool quoted = false;
  first_quoted_ = false;
  for (const char* field = begin_;;) {
    const char* special = Special();
    if (special == end_ && !last_) return Step::kMore;
    if (special < end_ && *special == '"') {
      if (!IsBlank(Between(field, special))) continue;  // a quote within a field is a character as any other
      const char* close = nullptr;
      bool escaped = false;
      if (const Step step = FindClosingQuote(special + 1, &close, &escaped); step != Step::kRow) return step;
      absl::string_view value = Between(special + 1, close);
      lines += std::count(value.begin(), value.end(), line_end_);
      if (escaped) value = unescaped_.emplace_back(absl::StrReplaceAll(value, {{"\"\"", "\""}}));
      GoTo(close + 1);
      special = Special();
      if (special == end_ && !last_) return Step::kMore;
      if (!IsBlank(Between(close + 1, special)) || (special < end_ && *special == '"')) {
        return Bad("bad CSV: text follows a quoted field");
      }
      first_quoted_ = first_quoted_ || fields_.empty();
      fields_.push_back(value);
      quoted = true;
    } else {
      const char* end = special;
      if ((special == end_ || *special == line_end_) && end > field && end[-1] == '\r') --end;
      if (delimiter_ != ' ' || end > field) fields_.push_back(Between(field, end));
    }
    if (special == end_ || *special == line_end_) {
      begin_ = special == end_ ? end_ : special + 1;
      next_line_ = line_ + lines + 1;
      if (fields_.empty() || (fields_.size() == 1 && !quoted && IsBlank(fields_[0]))) {
        if (any_ && blank_since_row_++ == 0) blank_line_ = line_;
        return Step::kSkipped;
      }
      any_ = true;
      if (blank_since_row_ > 0) {
        if (blank_lines_ == 0) first_blank_line_ = blank_line_;
        blank_lines_ += std::exchange(blank_since_row_, 0);
      }
      return Step::kRow;
    }
    field = special + 1;
  }
}

}  // namespace reduced::client
