// Our own parser, because numbers must stay as they are written: JSON libraries make doubles of them.
#include "client/reducectl/input/json_rows.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/system/status_macros.h"
#include "nlohmann/json.hpp"

namespace reduced::client {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxLine = std::size_t{64} << 20;

absl::string_view SkipSpace(absl::string_view text) { return absl::StripLeadingAsciiWhitespace(text); }

// The length of the string that `text` begins with, with its quotes; 0: it doesn't end.
std::size_t StringSize(absl::string_view text) {
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      return i + 1;
    }
  }
  return 0;
}

// The length of the value that `text` begins with; 0: it is none, or doesn't end.
std::size_t ValueSize(absl::string_view text) {
  if (text.empty()) return 0;
  if (text[0] == '"') return StringSize(text);
  if (text[0] != '{' && text[0] != '[') return std::min(text.find_first_of(",} \t\r]:\""), text.size());
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {
      const std::size_t size = StringSize(text.substr(i));
      if (size == 0) return 0;
      i += size - 1;
    } else if (text[i] == '{' || text[i] == '[') {
      ++depth;
    } else if ((text[i] == '}' || text[i] == ']') && --depth == 0) {
      return i + 1;
    }
  }
  return 0;
}

}  // namespace

bool LooksLikeJson(absl::string_view head) {
  absl::ConsumePrefix(&head, "\xEF\xBB\xBF");
  head = SkipSpace(head);
  if (!absl::ConsumePrefix(&head, "{")) return false;
  head = SkipSpace(head);
  return absl::StartsWith(head, "\"") || absl::StartsWith(head, "}");
}

absl::StatusOr<bool> JsonRows::TakeLine(absl::string_view* line) {
  for (std::size_t searched = 0;;) {
    const absl::string_view rest = absl::string_view(buffer_).substr(begin_);
    const std::size_t end = rest.find('\n', searched);
    if (end != absl::string_view::npos || last_) {
      if (rest.empty()) return false;
      *line = rest.substr(0, end);
      begin_ += std::min(end == absl::string_view::npos ? rest.size() : end + 1, rest.size());
      return true;
    }
    if (rest.size() > kMaxLine) return Error(absl::StrCat("a line has more than ", kMaxLine, " bytes"));
    searched = rest.size();
    buffer_.erase(0, std::exchange(begin_, 0));
    buffer_.resize(searched + kReadBytes);
    ASSIGN_OR_RETURN(const std::size_t got, source_->Read(buffer_.data() + searched, kReadBytes));
    buffer_.resize(searched + got);
    last_ = got < kReadBytes;
  }
}

std::size_t JsonRows::IndexOf(absl::string_view name) {
  const auto [entry, added] = indexes_.try_emplace(std::string(name), names_.size());
  if (added) {
    names_.emplace_back(name);
    lines_.push_back(0);
  }
  return entry->second;
}

absl::Status JsonRows::Bad(absl::string_view at, absl::string_view what) const {
  return Error(absl::StrCat("bad JSON: got \"", absl::CHexEscape(at.substr(0, 20)), "\"; allowed: ", what));
}

absl::StatusOr<bool> JsonRows::Next() {
  for (;;) {
    line_ = next_line_;
    absl::string_view line;
    const absl::StatusOr<bool> more = TakeLine(&line);
    if (!more.ok() || !*more) return more;
    if (next_line_++ == 1) absl::ConsumePrefix(&line, "\xEF\xBB\xBF");
    line = absl::StripAsciiWhitespace(line);
    if (line.empty()) continue;
    RETURN_IF_ERROR(Parse(line));
    return true;
  }
}

absl::Status JsonRows::Parse(absl::string_view object) {
  constexpr char kObject[] = "one object on each line, as jq -c writes it";
  std::fill(fields_.begin(), fields_.end(), absl::string_view());
  absl::string_view rest = object;
  if (!absl::ConsumePrefix(&rest, "{")) return Bad(rest, kObject);
  rest = SkipSpace(rest);
  for (bool first = true; !absl::ConsumePrefix(&rest, "}"); first = false) {
    if (!first && !absl::ConsumePrefix(&rest, ",")) return Bad(rest, rest.empty() ? kObject : "a comma, or }");
    rest = SkipSpace(rest);
    const std::size_t key_size = absl::StartsWith(rest, "\"") ? StringSize(rest) : 0;
    if (key_size == 0) return Bad(rest, rest.empty() ? kObject : "a key");
    absl::string_view key = rest.substr(1, key_size - 2);
    std::string unescaped;
    if (absl::StrContains(key, '\\')) {
      const nlohmann::json string =
          nlohmann::json::parse(rest.substr(0, key_size), nullptr, /*allow_exceptions=*/false);
      if (!string.is_string()) return Bad(rest, "a key");
      unescaped = string.get<std::string>();
      key = unescaped;
    }
    rest = SkipSpace(rest.substr(key_size));
    if (!absl::ConsumePrefix(&rest, ":")) return Bad(rest, "a colon after a key");
    rest = SkipSpace(rest);
    const std::size_t size = ValueSize(rest);
    if (size == 0) return Bad(rest, rest.empty() ? kObject : "a value");
    absl::string_view value = rest.substr(0, size);
    rest = SkipSpace(rest.substr(size));
    if (value[0] == '{' || value[0] == '[') {
      value = value[0] == '{' ? "{...}" : "[...]";
    } else if (value[0] == '"' && words_.Has(value.substr(1, size - 2))) {
      value = absl::string_view();
    }
    const std::size_t index = IndexOf(key);
    if (std::exchange(lines_[index], line_) == line_) {
      return Error(
          absl::StrCat("bad JSON: got the key \"", absl::CHexEscape(key.substr(0, 60)), "\" twice; allowed: once"));
    }
    if (index >= fields_.size()) fields_.resize(index + 1);
    fields_[index] = value;
  }
  if (!SkipSpace(rest).empty()) return Bad(rest, kObject);
  fields_.resize(names_.size());
  return absl::OkStatus();
}

}  // namespace reduced::client
