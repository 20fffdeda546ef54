// The reference that engines are tested against: every op by its definition, in plain loops over decoded elements, with
// 128-bit integers and 113-bit floats. It shares no code with the kernels beyond the tables of dtypes and ops.
//
// Exact answers (integers, counts, indexes, extrema, bits) are one value. Floating-point answers are an interval: the
// kernels accumulate in f64, in any order, and an answer is right if that could have given it. With u = 2^-53, n
// elements and A = sum |x|:
//
//   sum, l1       n u A: each of n additions rounds a partial sum, which is at most A, once
//   sum_squares   (n + 1) u sum x^2 + n 2^-1074: as above, and each square is rounded, or underflows
//   mean          that of sum over n, and two more roundings
//   prod          n u |product|: n multiplications, exponents apart
//   var           2 n u (var + d^2) + n 2^-1074, d being the largest deviation from the mean: accumulator.h adds up
//                 squared deviations from an element, whose sum over n is var + (the deviation of that element)^2 <=
//                 var + d^2, with n roundings, and takes away the excess; doubled for the merging
//   std, l2       square roots of the ends
//
// mean, var, std and l2 of integers are one value too: exact sums, rounded once (exact_oracle.h).
//
// Where an intermediate of that computation can be beyond f64 with either sign, any answer is right, NaN included.
#ifndef REDUCED_TESTS_SUPPORT_ORACLE_H_
#define REDUCED_TESTS_SUPPORT_ORACLE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/algebra/spec.h"

namespace reduced::test {

// IEEE 754 binary128.
#ifdef __SIZEOF_FLOAT128__
__extension__ typedef __float128 Real;
#else
using Real = long double;
#endif

// What an answer has to be.
struct Expected {
  absl::StatusCode code = absl::StatusCode::kOk;
  DType dtype = DType::kF64;
  bool exact = true;
  Value value;               // exact: this, to the bit; any NaN for a NaN
  double low = 0, high = 0;  // otherwise: a double between these, ...
  bool may_be_nan = false;   // ... or NaN, if this is set
};

// An array as the definitions see it. Everything but count and the NaN fields leaves NaNs out.
struct Facts {
  DType dtype = DType::kF32;
  std::int64_t count = 0;
  std::int64_t nans = 0;
  std::int64_t first_nan = -1;
  std::int64_t nonzero = 0;
  std::int64_t lowest = -1, highest = -1;  // indexes, -1 for none
  Value lowest_value, highest_value;
  Real variance_sum = 0;       // of (x - mean)^2
  Real largest_deviation = 0;  // of an element from the mean
  // Integers
  Int128 sum = 0;
  UInt128 abs_sum = 0;
  UInt128 sum_squares = 0;             // modulo 2^128 ...
  std::uint64_t sum_squares_high = 0;  // ... and over 2^128
  UInt128 product = 1;                 // of |x|, the zeros left out; once at least 2^64 it stays as it is
  std::uint64_t wrapped_product = 1;
  bool negative_product = false;
  std::uint64_t bits_and = ~std::uint64_t{0}, bits_or = 0, bits_xor = 0;
  // Floats
  Real real_sum = 0, real_abs_sum = 0, real_sum_squares = 0;
  Real finite_abs_sum = 0;
  bool positives = false, negatives = false;  // infinities included
  std::int64_t infinities = 0;
  Real mantissa = 1;  // |product| without zeros and infinities = mantissa x 2^exponent
  std::int64_t exponent = 0;
  bool negative_sign = false;  // an odd number of sign bits
};

Facts Study(DType dtype, const void* data, std::int64_t count);

// What `op` answers under spec's policies and ddof for the array that was studied.
Expected Expect(const Facts& facts, const ReduceSpec& spec, Op op);

// Empty if `got` is as expected; otherwise what was expected and what came.
std::string Mismatch(const Expected& expected, const absl::StatusOr<Value>& got);

std::string ToString(const Value& value);

// True if both are the same to the bit, or both NaN.
bool SameBits(const Value& a, const Value& b);

}  // namespace reduced::test

#endif  // REDUCED_TESTS_SUPPORT_ORACLE_H_
