// The numbers of one column of a text, as elements of one dtype.
#ifndef REDUCED_CLIENT_REDUCECTL_INPUT_NUMBER_COLUMN_H_
#define REDUCED_CLIENT_REDUCECTL_INPUT_NUMBER_COLUMN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/reducectl/input/memory.h"
#include "client/reducectl/input/number.h"

namespace reduced::client {

// Parses fields into elements of one type. Without a given dtype that is found out: bool if all fields are True or
// False; i64 if all are whole numbers, or u64 if some need it and none is negative; else f64. Whole numbers are never
// rounded: one that f64 can't hold is an error in a column of f64, unless f64 is given. Missing fields are NaN in
// floats; other dtypes leave them out. Thread-compatible.
class NumberColumn {
 public:
  // `dtype`: one of DTypeNames(); empty: found out.
  NumberColumn(std::string dtype, NumberStyle style, std::vector<std::string> missing_words)
      : given_(std::move(dtype)), style_(style), words_(std::move(missing_words), style) {}

  // Returns what the field should be, or null if it was taken. Valid until the next call. `line`: of the field.
  const char* Append(absl::string_view field, std::int64_t line);
  // Appends so many missing fields.
  void AppendMissing(std::size_t fields, std::int64_t line);

  std::size_t count() const { return count_; }  // of fields since the last Take(), with the missing ones
  // Whether any field had a value.
  bool has_value() const { return values_; }
  // Of the elements, now.
  std::string dtype() const;
  // The elements; none are left. What follows is of this dtype, too, or changed() becomes true. *missing: the positions
  // of fields that are none of them, or with `zeros` are zeros among them.
  Memory Take(bool zeros, std::vector<std::uint64_t>* missing);
  // Fields after a Take() had another type: elements that were taken should be of it. Start() makes everything that
  // follows of that type.
  bool changed() const { return changed_; }
  void Start();

  // Lines, which are 0 if there was none: of the first missing field, of the first number whose groups were removed,
  // and of the first True or False beside numbers.
  std::int64_t missing_line() const { return missing_line_; }
  std::int64_t groups_line() const { return groups_line_; }
  // The first number with a point, if each such number could have it between groups.
  std::int64_t points_line() const { return std::max<std::int64_t>(points_line_, 0); }
  std::int64_t bool_line() const { return kind_ == Kind::kBool ? 0 : bool_line_; }

 private:
  enum class Kind { kMissing, kBool, kInteger, kFloat };

  // A field that decides about the type.
  struct Witness {
    std::int64_t line = 0;  // 0: there was none
    std::string text{};
  };

  void LookForGroups(absl::string_view field, int decimals);
  const char* AppendGiven(absl::string_view field);
  const char* AppendSlowly(absl::string_view field);
  const char* PutInteger(std::uint64_t bits, bool negative, absl::string_view field);
  const char* PutFloat(double value, absl::string_view field);
  void PutBool(bool value);
  void PutMissing();
  void Push(std::uint64_t bits);
  void Become(Kind kind);
  bool BecomeWhole();
  const char* Refuse(std::string allowed);
  Witness WitnessOf(absl::string_view field) const { return {line_, std::string(field.substr(0, 60))}; }

  std::string given_;
  NumberStyle style_;
  MissingWords words_;
  Kind kind_ = Kind::kMissing;
  bool values_ = false;
  bool taken_ = false;
  bool changed_ = false;
  std::int64_t line_ = 0;  // of the field that is appended
  std::int64_t missing_line_ = 0, groups_line_ = 0, bool_line_ = 0;
  std::int64_t points_line_ = 0;    // -1: some point can't be between groups
  Witness negative_{}, large_{};    // of whole numbers: below 0, above 2^63 - 1
  Witness inexact_{}, fraction_{};  // a whole number that f64 can't hold, the first number with a point or an exponent
  std::size_t count_ = 0;
  std::vector<std::uint64_t> bits_;     // of i64, u64, f64, or a bool
  std::string bytes_;                   // of a given dtype
  std::vector<std::uint64_t> missing_;  // positions of what is in neither
  std::string error_;
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_INPUT_NUMBER_COLUMN_H_
