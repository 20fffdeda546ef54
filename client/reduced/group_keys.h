// GROUP BY keys of any kind: numbers, text and several columns at once become codes, which are the keys that a
// reduction takes.
//
//   const std::string names = "northsouthnorth";
//   const std::vector<std::int32_t> ends = {0, 5, 10, 15};
//   auto codes = EncodeKeys({{KeyColumn::Utf8(ends, names)}});
//   auto totals = client->ReduceArray(ArrayView::Of(prices), {"sum"}, {.keys = codes->AsKeys()});
//   for (std::int64_t row : codes->first) ...;  // the label of each total is the name in that row
//
// Nothing is sent: the codes are computed here, on all threads of the machine.
#ifndef REDUCED_GROUP_KEYS_H_
#define REDUCED_GROUP_KEYS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "reduced/array.h"
#include "reduced/result_array.h"

namespace reduced::client {

// Strings of one width, one after the other, as NumPy has them: NULs at the end of a string are no part of it.
struct FixedWidthText {
  const void* data = nullptr;  // at any alignment
  std::int64_t rows = 0;
  std::int64_t width = 0;  // characters of each string
  bool ucs4 = false;       // a character has 4 bytes, in the byte order of this machine (NumPy's U); else one (S)
};

// Strings of any length, as Arrow has them: string i is the bytes offsets[i] to offsets[i + 1] - 1 of the data. They
// should be UTF-8, but any bytes will do.
struct VariableWidthText {
  std::variant<std::span<const std::int32_t>, std::span<const std::int64_t>> offsets{};  // one more than rows
  std::string_view data{};
};

// Which rows of a column have a key; the others have a missing one.
struct KeyValidity {
  const std::uint8_t* data = nullptr;  // null: all rows have one
  bool bits = false;                   // a bit for each row, the least significant one of a byte first; else a byte
  std::int64_t first_bit = 0;          // of `bits`: that of the first row
};

// One key for each row. It does not own the memory, which must outlive the call that it is given to.
struct KeyColumn {
  // Numbers: bool, integers, f32 or f64 of one dimension. NaN is a missing key; -0 and 0 are one key.
  std::variant<ArrayView, FixedWidthText, VariableWidthText> keys{};
  KeyValidity validity{};

  static KeyColumn Numbers(ArrayView numbers, KeyValidity validity = {}) { return {std::move(numbers), validity}; }
  static KeyColumn Bytes(const void* data, std::int64_t rows, std::int64_t width, KeyValidity validity = {}) {
    return {FixedWidthText{data, rows, width, false}, validity};
  }
  static KeyColumn Ucs4(const void* data, std::int64_t rows, std::int64_t width, KeyValidity validity = {}) {
    return {FixedWidthText{data, rows, width, true}, validity};
  }
  static KeyColumn Utf8(std::span<const std::int32_t> offsets, std::string_view data, KeyValidity validity = {}) {
    return {VariableWidthText{offsets, data}, validity};
  }
  static KeyColumn Utf8(std::span<const std::int64_t> offsets, std::string_view data, KeyValidity validity = {}) {
    return {VariableWidthText{offsets, data}, validity};
  }
};

struct EncodeOptions {
  // Groups ascend by key: by the first column, then by the next; numbers as numbers, text by code points, which is the
  // order of the bytes of UTF-8; a missing key comes last. False: in the order of their first rows.
  bool sort = true;
  // What a row is in which any column has a missing key: one of MissingKeyNames(). "drop": in no group, its code is -1.
  // "group": a missing key is a key as any other.
  std::string missing = "drop";
};

// The group of each row.
class KeyCodes {
 public:
  KeyCodes() = default;
  KeyCodes(std::unique_ptr<std::int32_t[]> codes, std::int64_t rows, std::vector<std::int64_t> first)
      : first(std::move(first)), rows_(rows), codes_(std::move(codes)) {}
  KeyCodes(std::unique_ptr<std::int64_t[]> codes, std::int64_t rows, std::vector<std::int64_t> first)
      : first(std::move(first)), rows_(rows), codes_(std::move(codes)) {}

  // The first row of each group, in the order of the groups: column[first[g]] is the key of group g in any column.
  std::vector<std::int64_t> first{};

  std::int64_t groups() const { return static_cast<std::int64_t>(first.size()); }
  std::int64_t rows() const { return rows_; }
  // Returns function(codes), with a pointer to the codes of all rows, from 0 to groups() - 1, or -1: of std::int32_t if
  // there are less than 2^31 rows, else of std::int64_t. They are valid as long as this is.
  template <class Function>
  auto Visit(const Function& function) const {
    return std::visit([&](const auto& codes) { return function(codes.get()); }, codes_);
  }
  // The same as an array.
  ArrayView View() const {
    return Visit([&](const auto* codes) { return ArrayView::Of(codes, rows_); });
  }
  // For PartitionOptions.keys, while there is a group: rows of code -1 are in no output. With 0 groups it would ask the
  // server to find the keys.
  Keys AsKeys() const { return {.keys = View(), .groups = groups(), .drop_outside = true}; }

  // Gives the codes away: `rows` of them.
  using Codes = std::variant<std::unique_ptr<std::int32_t[]>, std::unique_ptr<std::int64_t[]>>;
  Codes Release() && { return std::move(codes_); }

 private:
  std::int64_t rows_ = 0;
  Codes codes_{};
};

// Encodes the keys of one column or more of as many rows each. The result depends on nothing but keys and options. The
// columns are not copied; it takes 4 bytes for each row, up to 14 while it works, some 100 for each group, and 4 more
// for each row and column if there are several. Hashes text with a secret of this process, so that nobody can choose
// keys that collide. Thread-safe.
//
// INVALID_ARGUMENT: there is no column; columns have different numbers of rows; keys are of another dtype or of several
// dimensions; a width is negative; offsets descend or leave the data; no such `missing`. The message names the column,
// as keys[i]. RESOURCE_EXHAUSTED: there is no memory.
REDUCED_EXPORT absl::StatusOr<KeyCodes> EncodeKeys(std::span<const KeyColumn> columns,
                                                   const EncodeOptions& options = {});

// The names that EncodeOptions.missing can have.
REDUCED_EXPORT std::vector<std::string> MissingKeyNames();

}  // namespace reduced::client

#endif  // REDUCED_GROUP_KEYS_H_
