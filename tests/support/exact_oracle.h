// The reference for exact sums: big integers by the schoolbook, and roundings found by bisection over all doubles, each
// compared exactly with the true value. Slow, and shares no code with the kernels beyond the tables of dtypes and ops.
#ifndef REDUCED_TESTS_SUPPORT_EXACT_ORACLE_H_
#define REDUCED_TESTS_SUPPORT_EXACT_ORACLE_H_

#include <cstdint>
#include <vector>

#include "kernels/algebra/spec.h"

namespace reduced::test {

// A float op that IsExactOp(), of these elements, rounded once to the nearest double, ties to even.
double ExactlyBySchoolbook(Op op, const std::vector<double>& elements, NanPolicy nan_policy, std::int64_t ddof);

}  // namespace reduced::test

#endif  // REDUCED_TESTS_SUPPORT_EXACT_ORACLE_H_
