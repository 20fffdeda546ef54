#include "kernels/exact/digits.h"

#include <cstddef>

namespace reduced {
namespace {

template <std::size_t kDigits, class Number>
void AddDigits(const unsigned long long (&digits)[kDigits], Number* into) {
  for (std::size_t i = 0; i < kDigits; ++i) {
    if (digits[i] != 0) into->Add(static_cast<std::int64_t>(digits[i]), Number::kLow + 32 * static_cast<int>(i));
  }
}

}  // namespace

void Merge(const ExactDigits& digits, ExactSums* into) {
  AddDigits(digits.sum, &into->sum);
  AddDigits(digits.abs_sum, &into->abs_sum);
  AddDigits(digits.sum_squares, &into->sum_squares);
  into->nans += static_cast<std::int64_t>(digits.nans);
  into->positive_infinities += static_cast<std::int64_t>(digits.positive_infinities);
  into->negative_infinities += static_cast<std::int64_t>(digits.negative_infinities);
  into->not_only_negative_zeros = into->not_only_negative_zeros || digits.not_only_negative_zeros != 0;
}

}  // namespace reduced
