// The numbers of one column of a text.
#ifndef REDUCED_CLIENT_REDUCECTL_INPUT_NUMBER_H_
#define REDUCED_CLIENT_REDUCECTL_INPUT_NUMBER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/reducectl/input/input.h"

namespace reduced::client {

// Whether `field` says that there is no value: it is empty, or NA, N/A, NaN, null, None, <NA> or #N/A in any case.
bool IsMissing(absl::string_view field);
// Whether `field` is a number, True or False.
bool IsNumber(absl::string_view field, Comma comma);

// Parses fields into elements of one type. Without a given dtype that is found out: bool if all fields are True or
// False, i64 if all are whole numbers, else f64, with missing ones as NaN. Thread-compatible.
class NumberColumn {
 public:
  // `dtype`: one of DTypeNames(); empty: found out. `comma`: kDefault: there is none
  // in a number.
  NumberColumn(std::string dtype, Comma comma) : given_(std::move(dtype)), comma_(comma) {}

  // Returns what the field should be, or null if it was taken.
  const char* Append(absl::string_view field);

  std::size_t count() const { return count_; }
  // Whether any field had a value.
  bool has_value() const { return values_; }
  bool taken() const { return taken_; }
  // Of the elements, now.
  std::string dtype() const;
  // The elements; none are left. What follows is of this dtype, too, or changed() becomes true.
  Memory Take();
  // Fields after a Take() had another type: elements that were taken should be of it. Start() makes everything that
  // follows of that type.
  bool changed() const { return changed_; }
  void Start();

 private:
  enum class Kind { kMissing, kBool, kInteger, kFloat };

  const char* AppendGiven(absl::string_view field);
  const char* AppendSlowly(absl::string_view field);
  void Become(Kind kind);
  void Put(Kind kind, std::uint64_t bits);

  std::string given_;
  Comma comma_ = Comma::kDefault;
  Kind kind_ = Kind::kMissing;
  bool values_ = false;
  bool taken_ = false;
  bool changed_ = false;
  std::size_t count_ = 0;
  std::vector<std::uint64_t> bits_;  // of i64, of f64, or a bool
  std::string bytes_;                // of a given dtype
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_INPUT_NUMBER_H_
