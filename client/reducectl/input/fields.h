// Columns of a text whose fields are kept as they are: keys, and what conditions look at.
#ifndef REDUCED_CLIENT_REDUCECTL_INPUT_FIELDS_H_
#define REDUCED_CLIENT_REDUCECTL_INPUT_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/reducectl/input/memory.h"
#include "client/reducectl/input/number.h"
#include "client/reducectl/input/number_column.h"

namespace reduced::client {

// One column. Its fields are numbers if each that is not missing is one, else text. True and False are of a type of
// their own: beside other numbers they are text.
class FieldColumn {
 public:
  FieldColumn(std::string name, std::size_t index, bool json, NumberStyle style,
              std::vector<std::string> missing_words);

  const std::string& name() const { return name_; }  // in the header, else its index
  std::size_t index() const { return index_; }       // of the field

  // Appends a field, as a RowSource has it. `missing`: whether it is a missing value. INVALID_ARGUMENT: it is JSON that
  // is neither text nor a number nor a bool.
  absl::Status Append(absl::string_view field, bool missing, std::int64_t line);
  // After the last field.
  void End();

  std::int64_t rows() const { return static_cast<std::int64_t>(lines_.size()); }
  absl::string_view text(std::int64_t row) const {
    const std::int64_t begin = offsets_[static_cast<std::size_t>(row)];
    return {data_.data() + begin, static_cast<std::size_t>(offsets_[static_cast<std::size_t>(row) + 1] - begin)};
  }
  bool missing(std::int64_t row) const { return valid_[static_cast<std::size_t>(row)] == 0; }
  std::int64_t line(std::int64_t row) const { return lines_[static_cast<std::size_t>(row)]; }

  // For EncodeKeys.
  const std::vector<std::int64_t>& offsets() const { return offsets_; }
  const std::string& data() const { return data_; }
  const std::vector<std::uint8_t>& valid() const { return valid_; }

  // Of numbers: i64, u64, f64 or bool, and an element for each row, of any value where it is missing. Empty: text, or
  // all are missing.
  const std::string& dtype() const { return dtype_; }
  const Memory& numbers() const { return elements_; }
  // Of text: the first row whose field is no number while others are. -1: none are, or all.
  std::int64_t first_text() const;
  // What was inferred, for people.
  std::vector<std::string> notes() const;

 private:
  std::string name_;
  std::size_t index_;
  bool json_;
  std::vector<std::int64_t> offsets_{0};
  std::string data_;
  std::vector<std::uint8_t> valid_;
  std::vector<std::int64_t> lines_;
  NumberColumn reader_;
  bool text_ = false;        // some field is no number
  bool any_number_ = false;  // some field is one
  std::int64_t first_text_ = -1;
  std::int64_t zero_line_ = 0;  // of the first number that begins with 0 and goes on with digits
  std::string dtype_;
  Memory elements_;
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_INPUT_FIELDS_H_
