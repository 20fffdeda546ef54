// The columns of keys as the encoder reads them: numbers as integers that ascend as the numbers do, text as its bytes.
#ifndef REDUCED_CLIENT_LIB_KEY_ROWS_H_
#define REDUCED_CLIENT_LIB_KEY_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "reduced/group_keys.h"

namespace reduced::client {

// Key: std::uint64_t or std::string_view. Thread-safe.
template <class Key>
class KeyRows {
 public:
  explicit KeyRows(std::int64_t count, bool ucs4 = false) : count_(count), ucs4_(ucs4) {}
  virtual ~KeyRows() = default;

  std::int64_t count() const { return count_; }
  bool ucs4() const { return ucs4_; }  // of text: a character has 4 bytes

  // Reads the keys of rows [begin, end). False: some are missing, and `there` has a byte for each row that says which
  // are not.
  virtual bool Read(std::int64_t begin, std::int64_t end, Key* keys, std::uint8_t* there) const = 0;

  Key At(std::int64_t row) const {
    Key key;
    std::uint8_t there;
    Read(row, row + 1, &key, &there);
    return key;
  }

 private:
  const std::int64_t count_;
  const bool ucs4_;
};

using NumberRows = std::unique_ptr<KeyRows<std::uint64_t>>;
using TextRows = std::unique_ptr<KeyRows<std::string_view>>;

// INVALID_ARGUMENT: as EncodeKeys says of one column, which `name` names.
absl::StatusOr<std::variant<NumberRows, TextRows>> RowsOf(const KeyColumn& column, const std::string& name);

// The codes of several columns as one number, whose order is that of the columns one after the other. Code -1 in any of
// them is a missing key. The product of the groups must be less than 2^64. The columns must outlive it.
NumberRows CombinedRows(std::vector<const KeyCodes*> columns);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_KEY_ROWS_H_
