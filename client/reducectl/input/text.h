// Numbers in delimited text: CSV, TSV, columns with spaces between them.
//
// The rows of a file have equally many fields. Fields may be quoted with ", which "" is within. Blank lines and lines
// that begin with # are skipped (but #N/A is a missing value).
#ifndef REDUCED_CLIENT_REDUCECTL_INPUT_TEXT_H_
#define REDUCED_CLIENT_REDUCECTL_INPUT_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/reducectl/input/bytes.h"
#include "client/reducectl/input/input.h"
#include "client/reducectl/input/number.h"

namespace reduced::client {

// Whether these bytes, the first of a file, look like text rather than like something else.
bool LooksLikeText(absl::string_view head);

// Splits text into rows of fields, as it is read. Thread-compatible.
class RowReader {
 public:
  // `delimiter`: between fields; ' ': any number of spaces and tabs; 0: found in the first lines. `decimal_comma`: it
  // is no comma then.
  RowReader(std::shared_ptr<ByteSource> source, char delimiter, bool decimal_comma)
      : source_(std::move(source)), delimiter_(delimiter), decimal_comma_(decimal_comma) {}

  // Reads the next row that has fields. Returns false at the end.
  absl::StatusOr<bool> Next();
  // Those of that row, without quotes, until the next call.
  const std::vector<absl::string_view>& fields() const { return fields_; }
  std::int64_t line() const { return line_; }  // on which it begins, from 1
  char delimiter() const { return delimiter_; }
  absl::Status Error(absl::string_view what) const;

 private:
  enum class Step { kRow, kSkipped, kMore, kEnd, kBad };

  Step TryRow();
  Step Bad(absl::string_view what);
  // Sets *close to the quote that ends the field that begins at `from`.
  Step FindClosingQuote(const char* from, const char** close, bool* escaped);
  absl::Status Fill();
  const char* Special();        // the next delimiter, line feed or quote; end_ if there is none
  void GoTo(const char* from);  // where Special() continues

  const std::shared_ptr<ByteSource> source_;
  char delimiter_;
  const bool decimal_comma_;
  std::string buffer_;
  const char* begin_ = nullptr;  // of what has not been taken
  const char* end_ = nullptr;
  bool last_ = false;            // nothing follows end_
  const char* block_ = nullptr;  // 64 bytes
  std::uint64_t specials_ = 0;   // which of them are special and have not been returned
  std::int64_t line_ = 1, next_line_ = 1;
  std::vector<absl::string_view> fields_;
  std::deque<std::string> unescaped_;  // fields with "" in them
  absl::Status error_;
};

// The columns of a text that are asked for, in blocks of rows. Thread-compatible.
class TextReader {
 public:
  struct Column {
    std::string name;  // in the header, else its index
    std::size_t index;
    NumberColumn numbers;
    bool text = false;  // it has no numbers, and is left out
  };

  // Reads the header, if there is one.
  static absl::StatusOr<std::unique_ptr<TextReader>> Open(std::shared_ptr<ByteSource> source,
                                                          const InputOptions& options);

  // Reads up to `rows` more rows. Returns false at the end of the text.
  absl::StatusOr<bool> Read(std::size_t rows);
  std::vector<Column>& columns() { return columns_; }
  // Of the row that was read last.
  std::int64_t line() const { return rows_.line(); }
  // What was left out or assumed, for people.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  TextReader(std::shared_ptr<ByteSource> source, const InputOptions& options)
      : options_(options), rows_(std::move(source), options.delimiter, options.comma == Comma::kDecimal) {}

  absl::Status ReadHeader();
  Comma CommaOf() const;
  absl::StatusOr<bool> IsHeader(const std::vector<std::string>& row);
  absl::Status Select(const std::vector<std::string>& names, bool header);
  absl::Status TakeRow();
  absl::Status BadField(Column& column, absl::string_view field, const char* allowed);

  const InputOptions options_;
  RowReader rows_;
  std::size_t width_ = 0;  // fields of each row
  std::int64_t width_line_ = 1;
  bool everything_ = false;  // all columns that have numbers are asked for
  bool first_ = false;       // the first row is data that has not been taken
  bool any_ = false;         // a row of data was read
  std::vector<Column> columns_;
  std::vector<std::string> notes_;
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_INPUT_TEXT_H_
