// Where quantiles lie among n ordered elements, and what is between two of these: NumPy's formulas, in f64. A median
// is the double nearest to the mean of two elements, as numpy.median has it where these are doubles.
#ifndef REDUCED_KERNELS_FOLDS_QUANTILE_POINTS_H_
#define REDUCED_KERNELS_FOLDS_QUANTILE_POINTS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/algebra/arithmetic.h"
#include "kernels/algebra/op_call.h"
#include "kernels/algebra/portable.h"

namespace reduced {

struct QuantilePoint {
  std::int64_t lower = 0;  // ranks of the neighbours, from 0; equal: the element itself
  std::int64_t higher = 0;
  double weight = 0;  // of the higher one
};

// Quantile `q`, from 0 to 1, of `count` >= 1 elements.
REDUCED_HD QuantilePoint PointOf(double q, std::int64_t count, QuantileMethod method) {
  const double at = static_cast<double>(count - 1) * q;
  // Of 2^53 elements and more the product may be one too many.
  const auto rank = [&](double whole) {
    return whole >= static_cast<double>(count - 1) ? count - 1 : static_cast<std::int64_t>(whole);
  };
  const double floor = std::floor(at);
  QuantilePoint point{rank(floor), rank(std::ceil(at)), at - floor};
  switch (method) {
    case QuantileMethod::kLinear:
      break;
    case QuantileMethod::kLower:
      point.higher = point.lower;
      break;
    case QuantileMethod::kHigher:
      point.lower = point.higher;
      break;
    case QuantileMethod::kNearest:
      point.lower = point.higher = rank(std::nearbyint(at));  // ties to even
      break;
    case QuantileMethod::kMidpoint:
      point.weight = 0.5;
      break;
  }
  return point;
}

// What is between two neighbours: numpy's _lerp. Unlike there, neighbours that are equal answer with their value, be it
// an infinity.
REDUCED_HD double Between(double lower, double higher, double weight) {
  if (lower == higher) return lower;
  const double difference = higher - lower;
  return weight >= 0.5 ? higher - difference * (1 - weight) : lower + difference * weight;
}

// Halfway between two elements, rounded once.
template <class T>
REDUCED_HD double Halfway(T lower, T higher) {
  if constexpr (kIsFloat<T>) {
    const double a = ToDouble(lower), b = ToDouble(higher), sum = a + b;
    return std::isfinite(sum) || !std::isfinite(a) || !std::isfinite(b) ? sum / 2 : a / 2 + b / 2;
  } else {
    return static_cast<double>(Int128{ToInteger(lower)} + Int128{ToInteger(higher)}) / 2;
  }
}

// Whether the method answers in f64, and not with one of the elements.
REDUCED_HD constexpr bool AnswersInF64(QuantileMethod method) {
  return method == QuantileMethod::kLinear || method == QuantileMethod::kMidpoint;
}

// The answer in f64 from two neighbours.
template <class T>
REDUCED_HD double BetweenElements(T lower, T higher, double weight, bool is_median) {
  if (is_median) return Halfway(lower, higher);  // rounds once, as numpy.median does
  if constexpr (kIsFloat<T>) {
    return Between(ToDouble(lower), ToDouble(higher), weight);
  } else {
    return Between(static_cast<double>(ToInteger(lower)), static_cast<double>(ToInteger(higher)), weight);
  }
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_FOLDS_QUANTILE_POINTS_H_
