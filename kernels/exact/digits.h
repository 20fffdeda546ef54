// Exact sums as a CUDA device adds them up: digits that need no carry while they are added to.
#ifndef REDUCED_KERNELS_EXACT_DIGITS_H_
#define REDUCED_KERNELS_EXACT_DIGITS_H_

#include <cstdint>

#include "kernels/exact/sums.h"

namespace reduced {

// Each sum is sum of digit[i] x 2^(kLow + 32 i), of ExactSum and ExactSquares; digits are signed. 2^31 additions of 32
// bits don't overflow one. Words only, so that it can be added and copied word by word; the default is 0.
struct ExactDigits {
  static constexpr int kSumDigits = 2 * ExactSum::kWords;
  static constexpr int kSquaresDigits = 2 * ExactSquares::kWords;

  unsigned long long sum[kSumDigits] = {};
  unsigned long long abs_sum[kSumDigits] = {};
  unsigned long long sum_squares[kSquaresDigits] = {};
  unsigned long long nans = 0;
  unsigned long long positive_infinities = 0;
  unsigned long long negative_infinities = 0;
  unsigned long long not_only_negative_zeros = 0;  // or a number of those who have seen that
};
inline constexpr int kExactDigitWords = sizeof(ExactDigits) / sizeof(unsigned long long);

// Adds what the digits are to `into`.
void Merge(const ExactDigits& digits, ExactSums* into);

}  // namespace reduced

#endif  // REDUCED_KERNELS_EXACT_DIGITS_H_
