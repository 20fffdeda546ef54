// Text with numbers, also JSON lines. The input is the name of the column, a line feed, and the text.
#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/reducectl/input/text.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/text_source.h"

namespace reduced::fuzz {
namespace {

struct Column {
  std::string dtype{};
  std::string bytes{};
};

// The first column that was asked for.
absl::StatusOr<Column> Read(absl::string_view text, const client::InputOptions& options) {
  auto reader =
      client::TextReader::Open(std::make_shared<client::TextSource>(text), options, client::LooksLikeJson(text));
  if (!reader.ok()) return reader.status();
  const absl::StatusOr<bool> more = (*reader)->Read(std::numeric_limits<std::size_t>::max());
  if (!more.ok()) return more.status();
  client::TextReader::Column& first = (*reader)->columns().front();
  if (!first.status.ok()) return first.status;
  Column column{.dtype = first.numbers.dtype()};
  std::vector<std::uint64_t> missing;
  column.bytes = std::string(first.numbers.Take(/*zeros=*/false, &missing).bytes());
  return column;
}

}  // namespace

FUZZ_TARGET(csv) {
  client::InputOptions options;
  const std::string name(input.TakeUntil('\n'));
  if (!name.empty()) options.columns.push_back(name);
  const absl::string_view file = input.rest();
  const absl::StatusOr<Column> column = Read(file, options);
  RequireGoodError(column.status(), 4096 + name.size());
  if (!column.ok()) return;
  const auto width = static_cast<std::size_t>(*client::DTypeBytes(column->dtype));
  Require(column->bytes.size() / width <= file.size() + 1, "every number is written in the file");
  if (column->bytes.empty() || column->dtype == "bool") return;

  // Numbers survive being written and read.
  std::string written = "x\n";
  bool nan = false;
  for (std::size_t at = 0; at < column->bytes.size(); at += width) {
    if (column->dtype != "f64") {
      std::uint64_t number = 0;
      std::memcpy(&number, column->bytes.data() + at, width);
      absl::StrAppend(&written,
                      column->dtype == "i64" ? absl::StrCat(static_cast<std::int64_t>(number)) : absl::StrCat(number),
                      "\n");
    } else {
      double number = 0;
      std::memcpy(&number, column->bytes.data() + at, width);
      nan = nan || number != number;
      absl::StrAppendFormat(&written, "%.17g\n", number);
    }
  }
  const absl::StatusOr<Column> read = Read(written, {.dtype = column->dtype});
  Require(read.ok() && read->bytes.size() == column->bytes.size(), "as many numbers are read as were written", written);
  Require(nan || read->bytes == column->bytes, "a number is read as it was written", written);
}

}  // namespace reduced::fuzz
