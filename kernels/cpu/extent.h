// How large floats are: what exact sums of a tile choose their bins by.
#ifndef REDUCED_KERNELS_CPU_EXTENT_H_
#define REDUCED_KERNELS_CPU_EXTENT_H_

#include <algorithm>
#include <optional>

#include "kernels/algebra/float_format.h"

namespace reduced {

// All magnitudes are below 2^top and multiples of 2^unit. The default is that of zeros.
struct Extent {
  int top = 0;
  int unit = 0;
  bool any = false;  // whether any element is not a zero
};

// Of floats T. `largest`: the largest of 2 x (bits without the sign). `smallest`: the least of 2 x (bits without the
// sign) - 1, of which that of a zero is the largest Word there is. None if there is a NaN or an infinity.
template <class T>
std::optional<Extent> ExtentOf(typename FloatFormat<T>::Word largest, typename FloatFormat<T>::Word smallest) {
  using Format = FloatFormat<T>;
  using Word = typename Format::Word;
  const auto exponent_of = [](Word pattern) { return static_cast<int>(pattern >> (Format::kFraction + 1)); };
  const int most = exponent_of(largest);
  const auto least = static_cast<Word>(smallest + 1);
  if (most == 2 * Format::kBias + 1) return std::nullopt;
  if (least == 0) return Extent();
  return Extent{.top = most - Format::kBias + 1,
                .unit = std::max(exponent_of(least), 1) - Format::kBias - Format::kFraction,
                .any = true};
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_EXTENT_H_
