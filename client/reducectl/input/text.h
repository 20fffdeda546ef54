// Texts as tables of numbers: which row is the header, and which columns have numbers.
#ifndef REDUCED_CLIENT_REDUCECTL_INPUT_TEXT_H_
#define REDUCED_CLIENT_REDUCECTL_INPUT_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/reducectl/input/bytes.h"
#include "client/reducectl/input/input.h"
#include "client/reducectl/input/json_rows.h"
#include "client/reducectl/input/number_column.h"
#include "client/reducectl/input/rows.h"

namespace reduced::client {

// Whether these bytes, the first of a file, look like text rather than like something else.
bool LooksLikeText(absl::string_view head);

// The columns of a text that are asked for, in blocks of rows. Thread-compatible.
//
// All rows have as many fields as the first. The header may also have one fewer: then the first field of the others is
// the name of its row, as R writes it, or all others end with a delimiter, as some programs write them.
class TextReader {
 public:
  struct Column {
    Column(std::string column, std::size_t field, NumberColumn elements)
        : name(std::move(column)), index(field), numbers(std::move(elements)) {}

    std::string name;   // in the header, else its index
    std::size_t index;  // of the field
    NumberColumn numbers;
    absl::Status status{};  // a field that is no number, unless none is
    // Of a column without numbers in the beginning: its first field, with the line, and how many fields are text and
    // numbers, also those that --decimal would make numbers. It is left out if no more are numbers than text.
    bool text = false;
    std::string first_text{};
    std::int64_t text_line = 0;
    std::size_t texts = 0, numerals = 0;
    // With InputOptions.texts: how many fields are not missing, and how often each text comes, unless there are too
    // many.
    std::int64_t filled = 0;
    bool too_many_words = false;
    std::size_t word_bytes = 0;
    absl::flat_hash_map<std::string, std::int64_t> words{};

    // Whether it has elements so far: it may be one that has none.
    bool left_out() const { return text || !status.ok(); }
  };

  // Reads the header, if there is one. `json`: the text is JSON lines.
  static absl::StatusOr<std::unique_ptr<TextReader>> Open(std::shared_ptr<ByteSource> source,
                                                          const InputOptions& options, bool json = false);

  // Reads up to `rows` more rows. Returns false at the end of the text. An error is about the text as a whole.
  absl::StatusOr<bool> Read(std::size_t rows);
  std::vector<Column>& columns() { return columns_; }
  // Those whose fields are kept, after the end of the text.
  std::vector<FieldColumn>& fields() { return fields_; }
  // Of a column of text.
  Words WordsOf(const Column& column) const;
  // Of the row that was read last.
  std::int64_t line() const { return rows_->line(); }
  // What was inferred or skipped so far, for people: for all columns, and for one.
  std::vector<std::string> notes() const;
  std::vector<std::string> notes(const Column& column) const;

 private:
  // What every row of data has after the fields of the columns.
  enum class End { kNothing, kDelimiter };

  TextReader(std::shared_ptr<ByteSource> source, const InputOptions& options, bool json);

  absl::Status ReadHeader();
  absl::Status ReadKeys();
  absl::StatusOr<bool> IsHeader(const std::vector<std::string>& row) const;
  std::string OneNumber(const std::vector<std::string>& fields) const;
  absl::Status FitHeader(std::vector<std::string>* names);
  absl::Status Select(const std::vector<std::string>& names, bool header);
  absl::StatusOr<std::size_t> IndexOf(const std::string& column, const std::vector<std::string>& names,
                                      bool header) const;
  void Add(std::string name, std::size_t index);
  void AddKeys();
  absl::Status TakeRow(const std::vector<absl::string_view>& fields, std::int64_t line);
  absl::Status BadField(Column& column, absl::string_view field, const char* allowed, std::int64_t line);
  void TakeWord(Column& column, absl::string_view field);
  void TakeText(Column& column, absl::string_view field, std::int64_t line);
  void EndText(Column& column);

  const InputOptions options_;
  const std::unique_ptr<RowSource> rows_;
  RowReader* const text_;  // what rows_ is, if it isn't JSON
  JsonRows* const json_;   // what rows_ is, if it is
  NumberStyle style_;
  MissingWords words_;
  std::size_t width_ = 0;  // fields of each row
  End end_ = End::kNothing;
  bool row_names_ = false;  // the first field of each row is the name of the row
  std::int64_t width_line_ = 1;
  bool everything_ = false;        // all columns that have numbers are asked for
  std::vector<std::string> head_;  // the first row
  bool header_ = false;            // it is the header
  bool first_ = false;             // it is data that has not been taken
  bool second_ = false;            // the row of rows_ has not been taken
  std::size_t taken_ = 0;          // rows of data
  bool blank_end_ = true;          // the last field of each of them is blank
  int blocks_ = 0;                 // of rows before those that are read
  std::vector<Column> columns_;
  std::vector<FieldColumn> fields_;
  std::size_t word_bytes_ = 0;  // of all columns
  std::vector<std::string> notes_;
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_INPUT_TEXT_H_
