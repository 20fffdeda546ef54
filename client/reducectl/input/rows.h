// The rows of delimited text: CSV, TSV, fields with spaces between them.
#ifndef REDUCED_CLIENT_REDUCECTL_INPUT_ROWS_H_
#define REDUCED_CLIENT_REDUCECTL_INPUT_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/reducectl/input/bytes.h"
#include "client/reducectl/input/input.h"

namespace reduced::client {

// Rows of fields, as they are read. Thread-compatible.
class RowSource {
 public:
  RowSource() = default;
  virtual ~RowSource() = default;
  RowSource(const RowSource&) = delete;
  RowSource& operator=(const RowSource&) = delete;

  // Reads the next row that has fields. Returns false at the end.
  virtual absl::StatusOr<bool> Next() = 0;
  // Those of that row, until the next call.
  const std::vector<absl::string_view>& fields() const { return fields_; }
  std::int64_t line() const { return line_; }  // on which it begins, from 1
  absl::Status Error(absl::string_view what) const;
  // What was skipped so far, for people.
  virtual std::vector<std::string> notes() const { return {}; }

 protected:
  std::int64_t line_ = 1;
  std::vector<absl::string_view> fields_;
};

// Lines end with LF, CR LF, or all with CR. Fields may be quoted with ", which "" is within. Blank lines are skipped,
// and so are lines that begin with InputOptions.comment. Without that, lines before the first row that begin with # are
// skipped, unless they can be the header because they have as many delimiters as the first row; with one more or fewer
// that is an error.
class RowReader final : public RowSource {
 public:
  // Uses the delimiter, the comment and the comma of the options. A delimiter of 0 is found in the first lines, and is
  // no comma if that is the decimal point.
  RowReader(std::shared_ptr<ByteSource> source, const InputOptions& options)
      : source_(std::move(source)),
        delimiter_(options.delimiter),
        decimal_comma_(options.comma == Comma::kDecimal),
        comment_(options.comment),
        header_told_(options.header != Header::kAuto) {}

  absl::StatusOr<bool> Next() override;
  std::vector<std::string> notes() const override;
  char delimiter() const { return delimiter_; }
  bool first_quoted() const { return first_quoted_; }  // the first field of the row
  // Lines without anything between two rows: how many, and the first of them.
  std::int64_t blank_lines() const { return blank_lines_; }
  std::int64_t first_blank_line() const { return first_blank_line_; }

 private:
  enum class Step { kRow, kSkipped, kMore, kEnd, kBad };

  Step TryRow();
  Step Bad(absl::string_view what);
  // Sets *close to the quote that ends the field that begins at `from`.
  Step FindClosingQuote(const char* from, const char** close, bool* escaped);
  absl::Status Fill();
  absl::Status Begin();               // looks at the first lines
  const char* Special();              // the next delimiter, line end or quote; end_ if there is none
  void GoTo(const char* from);        // where Special() continues
  void Skip(absl::string_view line);  // which is a comment

  const std::shared_ptr<ByteSource> source_;
  char delimiter_;
  const bool decimal_comma_;
  const std::string comment_;
  const bool header_told_;
  char line_end_ = '\n';
  std::string buffer_;
  const char* begin_ = nullptr;  // of what has not been taken
  const char* end_ = nullptr;
  bool last_ = false;            // nothing follows end_
  const char* block_ = nullptr;  // 64 bytes
  std::uint64_t specials_ = 0;   // which of them are special and have not been returned
  std::int64_t next_line_ = 1;
  bool first_quoted_ = false;
  bool any_ = false;  // a row was read
  std::int64_t blank_lines_ = 0, first_blank_line_ = 0;
  std::int64_t blank_since_row_ = 0, blank_line_ = 0;  // blank lines after the last row, the first of them
  std::int64_t comments_ = 0;                          // that were skipped
  std::string first_comment_{};                        // with its line
  std::deque<std::string> unescaped_{};                // fields with "" in them
  absl::Status error_;
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_INPUT_ROWS_H_
