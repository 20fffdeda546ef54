// The reference for answers that are rounded once: big integers by the schoolbook, and roundings found by bisection
// over all doubles, each compared exactly with the true value. Slow, and shares no code with the kernels beyond the
// tables of dtypes and ops.
#ifndef REDUCED_TESTS_SUPPORT_EXACT_ORACLE_H_
#define REDUCED_TESTS_SUPPORT_EXACT_ORACLE_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/algebra/spec.h"

namespace reduced::test {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A float op that IsExactOp(), of these elements, rounded once to the nearest double, ties to even.
double ExactlyBySchoolbook(Op op, const std::vector<double>& elements, NanPolicy nan_policy, std::int64_t ddof);

// What integers sum to.
struct IntegerSums {
  std::uint64_t count = 0;
  Int128 sum = 0;
  UInt128 squares_low = 0;         // the sum of squares modulo 2^128 ...
  std::uint64_t squares_high = 0;  // ... and over 2^128
};

// mean, var, std or l2 of the integers that sum to that, rounded once in the same way.
double IntegersBySchoolbook(Op op, const IntegerSums& sums, std::int64_t ddof);

}  // namespace reduced::test

#endif  // REDUCED_TESTS_SUPPORT_EXACT_ORACLE_H_
