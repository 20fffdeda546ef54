// Arrays at random, and what they reduce to, worked out here: a server is not asked to vouch for itself.
#ifndef REDUCED_CLIENT_REDUCECTL_LOADTEST_REFERENCE_H_
#define REDUCED_CLIENT_REDUCECTL_LOADTEST_REFERENCE_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "reduced/types.h"

namespace reduced::client {

// Fills `bytes` bytes with elements of `dtype`. Floats have either sign and a magnitude from 0.5 on, below 2: no digit
// of a sum gets lost. Integers are odd, so that no product is zero, of either sign if they can be, and below 2^16, so
// that no sum of squares overflows. Of bools the first is true, the others are at random. The same seed, the same
// elements. INVALID_ARGUMENT: no such dtype.
absl::Status FillRandom(const std::string& dtype, std::uint64_t seed, void* data, std::int64_t bytes);

// The right answer of one op, and how far from it an answer may be.
struct Answer {
  std::variant<double, std::int64_t, std::uint64_t, bool> value{};
  // Of floats that are added or multiplied: rounding on the way. See reference.cc. 0: exactly this.
  double tolerance = 0;
};

// Of an array of `count` elements, under OverflowPolicy "wrap", NaNs absent. UNIMPLEMENTED: an op that this doesn't
// know, or that the dtype lacks. INVALID_ARGUMENT: no such dtype.
absl::StatusOr<std::vector<Answer>> Expected(const std::vector<std::string>& ops, const std::string& dtype,
                                             const void* data, std::int64_t count);

bool Matches(const Answer& expected, const Value& got);

// Empty if all results are as expected; else what is wrong with the first that isn't.
std::string Mismatch(const std::vector<Answer>& expected, const std::vector<Result>& results);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_LOADTEST_REFERENCE_H_
