// Random arrays and their correct results, which are computed here: the tested server must not verify itself.
#ifndef REDUCED_CLIENT_REDUCECTL_LOADTEST_REFERENCE_H_
#define REDUCED_CLIENT_REDUCECTL_LOADTEST_REFERENCE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "reduced/types.h"

namespace reduced::client {

// Fills `bytes` bytes with random elements of `dtype`. Floats have a random sign and a magnitude in [0.5, 2), so that
// sums lose no digits. Integers are odd, so that no product is zero, and below 2^16, so that no sum of squares
// overflows; signed ones have a random sign. The first bool is true, the others are random. The same seed gives the
// same elements. INVALID_ARGUMENT: there is no such dtype.
absl::Status FillRandom(const std::string& dtype, std::uint64_t seed, void* data, std::int64_t bytes);

using Scalar = std::variant<double, std::int64_t, std::uint64_t, bool>;

// The correct result of one op, and how far a result may differ from it.
struct RightAnswer {
  Scalar value{};
  // For the rounding of float sums and products: see reference.cc; of an estimate. 0: the result must be equal.
  double tolerance = 0;
  // Instead of `value`, of an op whose answer is an array: its elements.
  std::optional<std::vector<Scalar>> array{};
};

// The results of an array of `count` elements without NaNs, with overflow policy "wrap". UNIMPLEMENTED: this doesn't
// know the op, or the op isn't defined for the dtype. INVALID_ARGUMENT: there is no such dtype; an op of the
// distribution has wrong parameters, is not defined for the dtype or asks for more elements than there are.
absl::StatusOr<std::vector<RightAnswer>> Expected(const std::vector<std::string>& ops, const std::string& dtype,
                                                  const void* data, std::int64_t count);

bool Matches(const RightAnswer& expected, const Value& got);

// Describes the first result that isn't as expected. Empty if there is none. `ops`: that were asked for.
std::string Mismatch(const std::vector<std::string>& ops, const std::vector<RightAnswer>& expected, const Reply& reply);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_LOADTEST_REFERENCE_H_
