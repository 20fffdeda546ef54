#include "client/lib/key_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace reduced::client {
namespace {

template <class T>
T LoadAt(const void* data, std::int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

// Fills in which rows [begin, end) have a key. True: all.
bool ReadValidity(const KeyValidity& validity, std::int64_t begin, std::int64_t end, std::uint8_t* there) {
  if (validity.data == nullptr) return true;
  unsigned all = 1;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t bit = validity.first_bit + row;
    const bool valid = validity.bits ? (validity.data[bit / 8] >> (bit % 8) & 1) != 0 : validity.data[row] != 0;
    there[row - begin] = static_cast<std::uint8_t>(valid);
    all &= static_cast<unsigned>(valid);
  }
  return all != 0;
}

// Maps numbers to integers in the same order.
template <class T>
std::uint64_t OrderOf(T number) {
  constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
  if constexpr (std::is_same_v<T, bool>) {
    return number ? 1 : 0;
  } else if constexpr (std::is_floating_point_v<T>) {
    const auto bits = std::bit_cast<std::uint64_t>(static_cast<double>(number) + 0.0);  // -0 + 0 is 0
    return (bits & kSign) != 0 ? ~bits : bits | kSign;
  } else {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(number)) + (std::is_signed_v<T> ? kSign : 0);
  }
}

template <class T>
class Numbers final : public KeyRows<std::uint64_t> {
 public:
  Numbers(const ArrayView& numbers, const KeyValidity& validity)
      : KeyRows(numbers.shape[0]), data_(numbers.data), validity_(validity) {}

  bool Read(std::int64_t begin, std::int64_t end, std::uint64_t* keys, std::uint8_t* there) const override {
    bool all = ReadValidity(validity_, begin, end, there);
    // A bool is read as a byte: other bytes than 0 and 1 are no bool of C++.
    using Stored = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;
    unsigned nan = 0;
    for (std::int64_t row = begin; row < end; ++row) {
      const auto number = LoadAt<Stored>(data_, row);
      if constexpr (std::is_floating_point_v<T>) nan |= static_cast<unsigned>(number != number);
      keys[row - begin] = OrderOf(static_cast<T>(number));
    }
    if (nan == 0) return all;
    for (std::int64_t row = begin; row < end; ++row) {
      const auto number = LoadAt<Stored>(data_, row);
      there[row - begin] = static_cast<std::uint8_t>(number == number && (all || there[row - begin] != 0));
    }
    return false;
  }

 private:
  const void* const data_;
  const KeyValidity validity_;
};

class FixedWidth final : public KeyRows<std::string_view> {
 public:
  FixedWidth(const FixedWidthText& text, const KeyValidity& validity)
      : KeyRows(text.rows, text.ucs4),
        data_(static_cast<const char*>(text.data)),
        validity_(validity),
        bytes_(text.width * (text.ucs4 ? 4 : 1)) {}

  bool Read(std::int64_t begin, std::int64_t end, std::string_view* keys, std::uint8_t* there) const override {
    const bool all = ReadValidity(validity_, begin, end, there);
    for (std::int64_t row = begin; row < end; ++row) {
      const char* const text = data_ + row * bytes_;
      std::int64_t bytes = bytes_;
      while (bytes > 0 && text[bytes - 1] == 0) --bytes;
      if (ucs4()) bytes = (bytes + 3) / 4 * 4;
      keys[row - begin] = {text, static_cast<std::size_t>(bytes)};
    }
    return all;
  }

 private:
  const char* const data_;
  const KeyValidity validity_;
  const std::int64_t bytes_;  // of a string
};

template <class Offset>
class VariableWidth final : public KeyRows<std::string_view> {
 public:
  VariableWidth(std::span<const Offset> offsets, const char* data, const KeyValidity& validity)
      : KeyRows(std::ssize(offsets) - 1), offsets_(offsets.data()), data_(data), validity_(validity) {}

  bool Read(std::int64_t begin, std::int64_t end, std::string_view* keys, std::uint8_t* there) const override {
    const bool all = ReadValidity(validity_, begin, end, there);
    for (std::int64_t row = begin; row < end; ++row) {
      keys[row - begin] = {data_ + offsets_[row], static_cast<std::size_t>(offsets_[row + 1] - offsets_[row])};
    }
    return all;
  }

 private:
  const Offset* const offsets_;
  const char* const data_;
  const KeyValidity validity_;
};

class Combined final : public KeyRows<std::uint64_t> {
 public:
  explicit Combined(std::vector<const KeyCodes*> columns) : KeyRows(columns[0]->rows()), columns_(std::move(columns)) {}

  bool Read(std::int64_t begin, std::int64_t end, std::uint64_t* keys, std::uint8_t* there) const override {
    std::fill_n(keys, end - begin, 0);
    std::fill_n(there, end - begin, 1);
    unsigned missing = 0;
    for (const KeyCodes* const column : columns_) {
      const auto groups = static_cast<std::uint64_t>(column->groups());
      column->Visit([&](const auto* codes) {
        for (std::int64_t row = begin; row < end; ++row) {
          const auto here = static_cast<std::uint8_t>(codes[row] >= 0);
          keys[row - begin] = keys[row - begin] * groups + static_cast<std::uint64_t>(codes[row]);
          there[row - begin] &= here;
          missing |= 1U - here;
        }
      });
    }
    return missing == 0;
  }

 private:
  const std::vector<const KeyCodes*> columns_;
};

absl::StatusOr<std::variant<NumberRows, TextRows>> RowsOfNumbers(const ArrayView& numbers, const KeyValidity& validity,
                                                                 const std::string& name) {
  if (numbers.shape.size() != 1 || numbers.shape[0] < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": got shape [", absl::StrJoin(numbers.shape, ", "), "]; allowed: one dimension"));
  }
  if (numbers.count.has_value() && *numbers.count != numbers.shape[0]) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": got ", numbers.shape[0], " elements; allowed: the ", *numbers.count, " of the view"));
  }
  NumberRows rows;
  const auto take_if = [&]<class T>(std::type_identity<T>, const char* dtype) {
    if (rows == nullptr && numbers.dtype == dtype) rows = std::make_unique<Numbers<T>>(numbers, validity);
  };
  take_if(std::type_identity<bool>(), "bool");
  take_if(std::type_identity<std::int8_t>(), "i8");
  take_if(std::type_identity<std::int16_t>(), "i16");
  take_if(std::type_identity<std::int32_t>(), "i32");
  take_if(std::type_identity<std::int64_t>(), "i64");
  take_if(std::type_identity<std::uint8_t>(), "u8");
  take_if(std::type_identity<std::uint16_t>(), "u16");
  take_if(std::type_identity<std::uint32_t>(), "u32");
  take_if(std::type_identity<std::uint64_t>(), "u64");
  take_if(std::type_identity<float>(), "f32");
  take_if(std::type_identity<double>(), "f64");
  if (rows != nullptr) return rows;
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": got dtype ", numbers.dtype, "; allowed: bool, i8 to i64, u8 to u64, f32, f64"));
}

template <class Offset>
absl::StatusOr<std::variant<NumberRows, TextRows>> RowsOfText(std::span<const Offset> offsets, std::string_view data,
                                                              const KeyValidity& validity, const std::string& name) {
  if (offsets.empty()) return absl::InvalidArgumentError(absl::StrCat(name, ": got no offsets; allowed: rows + 1"));
  // Offsets that ascend from 0 or more to the end of the data or less are all within it.
  const bool ascend = std::is_sorted(offsets.begin(), offsets.end());
  if (!ascend || offsets.front() < 0 || static_cast<std::uint64_t>(offsets.back()) > data.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": got offsets from ", offsets.front(), " to ", offsets.back(), ascend ? "" : " that descend in between",
        "; allowed: ascending offsets from 0 to the ", data.size(), " bytes of the data"));
  }
  return std::make_unique<VariableWidth<Offset>>(offsets, data.data(), validity);
}

}  // namespace

absl::StatusOr<std::variant<NumberRows, TextRows>> RowsOf(const KeyColumn& column, const std::string& name) {
  if (const auto* const numbers = std::get_if<ArrayView>(&column.keys)) {
    return RowsOfNumbers(*numbers, column.validity, name);
  }
  if (const auto* const text = std::get_if<VariableWidthText>(&column.keys)) {
    return std::visit([&](const auto& offsets) { return RowsOfText(offsets, text->data, column.validity, name); },
                      text->offsets);
  }
  const auto& text = std::get<FixedWidthText>(column.keys);
  if (text.rows < 0 || text.width < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": got ", text.rows, " rows of width ", text.width, "; allowed: 0 or more"));
  }
  return std::make_unique<FixedWidth>(text, column.validity);
}

NumberRows CombinedRows(std::vector<const KeyCodes*> columns) { return std::make_unique<Combined>(std::move(columns)); }

}  // namespace reduced::client
