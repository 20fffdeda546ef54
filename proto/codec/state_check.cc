#include "proto/codec/state_check.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/algebra/order_key.h"
#include "kernels/exact/answers.h"
#include "kernels/exact/natural.h"

namespace reduced {
namespace {

bool Has(AccumulatorSet set, Accumulator accumulator) { return (set & SetOf(accumulator)) != 0; }

// The least and the largest key of dtype.
std::pair<std::int64_t, std::int64_t> KeysOf(DType dtype) {
  return VisitDType(dtype, []<class T>(std::type_identity<T>) -> std::pair<std::int64_t, std::int64_t> {
    using Limits = std::numeric_limits<typename OrderKey<T>::Type>;
    if constexpr (std::is_same_v<T, Bool>) return {0, 1};
    if constexpr (kIsFloat<T>) {
      return {FloatFormat<T>::kSigned ? ~std::int64_t{kInfinityKey<T>} : 0, std::int64_t{kInfinityKey<T>}};
    }
    return {WidenKey(Limits::min()), WidenKey(Limits::max())};
  });
}

absl::Status CheckExtrema(const ReduceSpec& spec, const ExtremaState& extrema) {
  const bool has_min = extrema.min_index != kNoIndex;
  if (has_min != (extrema.max_index != kNoIndex)) {
    return absl::InvalidArgumentError("extrema: got only one of min_index and max_index; allowed: both or none");
  }
  const bool may_have_none =
      RowOf(spec.dtype).is_float && (extrema.nan_index != kNoIndex || spec.nan_policy == NanPolicy::kOmit);
  if (!has_min) {
    if (spec.count == 0 || may_have_none) return absl::OkStatus();
    return absl::InvalidArgumentError("extrema: got no min_index; allowed: none only if all elements are NaN");
  }
  const auto [least, most] = KeysOf(spec.dtype);
  if (extrema.min_key < least || extrema.max_key > most || extrema.min_key > extrema.max_key) {
    return absl::InvalidArgumentError(absl::StrFormat("extrema: got keys %d to %d of %s; allowed: %d to %d",
                                                      extrema.min_key, extrema.max_key, RowOf(spec.dtype).name, least,
                                                      most));
  }
  if ((extrema.min_key == extrema.max_key) != (extrema.min_index == extrema.max_index)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("extrema: got keys %d and %d at indexes %d and %d; allowed: equal keys at one index",
                        extrema.min_key, extrema.max_key, extrema.min_index, extrema.max_index));
  }
  if (extrema.nan_index == extrema.min_index || extrema.nan_index == extrema.max_index) {
    return absl::InvalidArgumentError(
        absl::StrFormat("extrema.nan_index: got %d; allowed: none of min_index and max_index", extrema.nan_index));
  }
  return absl::OkStatus();
}

absl::Status CheckNonFinite(const ReduceSpec& spec, const ExactSums& sums) {
  absl::Status status = CheckCount("non_finite.positive_infinity", sums.positive_infinities, spec.count - sums.nans);
  if (!status.ok()) return status;
  return CheckCount("non_finite.negative_infinity", sums.negative_infinities,
                    spec.count - sums.nans - sums.positive_infinities);
}

// A sum of magnitudes or of squares is not negative. It may be NaN.
absl::Status CheckNotNegative(absl::string_view field, double value) {
  if (!(value < 0)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s: got %g; allowed: 0 or more", field, value));
}

absl::Status CheckMoments(const MomentsState& moments) {
  if (moments.count == 0 && (moments.offset != 0 || moments.m2 != 0)) {
    return absl::InvalidArgumentError("moments: got values of no element; allowed: none");
  }
  return CheckNotNegative("moments.m2", moments.m2);
}

absl::Status CheckProduct(const ReduceSpec& spec, const Partial& partial) {
  if (RowOf(spec.dtype).is_float) {
    const double magnitude = std::fabs(partial.float_product.mantissa);
    if ((magnitude >= 1 && magnitude < 2) || magnitude == 0 || !std::isfinite(magnitude)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrFormat("product.mantissa: got %g; allowed: a magnitude from 1 to less than 2, 0, inf, nan",
                        partial.float_product.mantissa));
  }
  const IntProduct& product = partial.int_product;
  if (!product.overflowed && product.magnitude == 0) {
    return absl::InvalidArgumentError("product.magnitude: got 0; allowed: 1 or more, as zeros are left out");
  }
  const std::uint64_t true_value = product.negative ? -product.magnitude : product.magnitude;
  if (product.zero ? product.wrapped != 0 : !product.overflowed && product.wrapped != true_value) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "product.wrapped: got %d; allowed: the product of the other fields modulo 2^64", product.wrapped));
  }
  return absl::OkStatus();
}

absl::Status CheckBits(const Partial& partial) {
  const bool none = partial.count == 0;
  const std::uint64_t beyond = (partial.bits_xor | (none ? 0 : partial.bits_and)) & ~partial.bits_or;
  if (beyond == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "bits: got bits in bit_and or bit_xor that bit_or lacks; allowed: a part of bit_or");
}

// The sums of an array as magnitudes. The unit of `squares` is the square of the unit of the others.
struct Sums {
  std::int64_t count = 0;  // of the elements that are in them
  Natural sum, abs_sum, squares;
};

Sums SumsOf(const Partial& partial) {
  Sums sums;
  sums.count = partial.count;
  std::array<std::uint64_t, 2> words;
  std::memcpy(words.data(), &partial.int_sum, sizeof(words));
  sums.sum = Natural::MagnitudeOf(words);
  std::array<std::uint64_t, 3> wide{};
  std::memcpy(wide.data(), &partial.int_abs_sum, sizeof(partial.int_abs_sum));
  sums.abs_sum = Natural::MagnitudeOf(wide);
  std::array<std::uint64_t, 4> wider{};
  std::memcpy(wider.data(), &partial.int_sum_squares, sizeof(partial.int_sum_squares));
  sums.squares = Natural::MagnitudeOf(wider);
  return sums;
}

Sums SumsOf(std::int64_t count, const ExactSums& exact) {
  return {.count = count - exact.nans - exact.positive_infinities - exact.negative_infinities,
          .sum = Natural::MagnitudeOf(exact.sum.word),
          .abs_sum = Natural::MagnitudeOf(exact.abs_sum.word),
          .squares = Natural::MagnitudeOf(exact.sum_squares.word)};
}

// |sum| <= abs_sum, and the inequality of Cauchy and Schwarz: sum^2 <= count x sum_squares.
absl::Status CheckSums(AccumulatorSet set, const Sums& sums) {
  const Natural most = sums.squares.Times(Natural(static_cast<std::uint64_t>(sums.count)));
  if (Has(set, Accumulator::kSumSquares)) {
    for (const auto& [accumulator, name, sum] : {std::tuple(Accumulator::kSum, "sum", &sums.sum),
                                                 std::tuple(Accumulator::kAbsSum, "abs_sum", &sums.abs_sum)}) {
      if (Has(set, accumulator) && most.LessThan(sum->Times(*sum))) {
        return absl::InvalidArgumentError(
            absl::StrCat("sum_squares: got less than the square of ", name, " over the count; allowed: at least that"));
      }
    }
  }
  if (Has(set, Accumulator::kSum) && Has(set, Accumulator::kAbsSum) && sums.abs_sum.LessThan(sums.sum)) {
    return absl::InvalidArgumentError("abs_sum: got less than the magnitude of sum; allowed: at least that");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckCount(absl::string_view field, std::int64_t value, std::int64_t most) {
  if (value >= 0 && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s: got %d; allowed: 0 to %d", field, value, most));
}

absl::Status CheckState(const ReduceSpec& spec, const State& state) {
  const AccumulatorSet set = AccumulatorsFor(spec);
  const Partial& partial = state.partial;
  absl::Status status;
  if (state.exact != nullptr) {
    status = CheckNonFinite(spec, *state.exact);
    if (status.ok()) status = CheckSums(ExactAccumulatorsFor(spec), SumsOf(spec.count, *state.exact));
  }
  if (!RowOf(spec.dtype).is_float) {
    status.Update(CheckSums(set, SumsOf(partial)));
  } else if (Has(set, Accumulator::kAbsSum)) {
    status.Update(CheckNotNegative("abs_sum.f64", partial.float_abs_sum));
  }
  if (RowOf(spec.dtype).is_float && Has(set, Accumulator::kSumSquares)) {
    status.Update(CheckNotNegative("sum_squares.f64", partial.float_sum_squares));
  }
  if (Has(set, Accumulator::kMoments)) status.Update(CheckMoments(partial.moments));
  if (Has(set, Accumulator::kProduct)) status.Update(CheckProduct(spec, partial));
  if (Has(set, Accumulator::kExtrema)) status.Update(CheckExtrema(spec, partial.extrema));
  if (Has(set, Accumulator::kBits)) status.Update(CheckBits(partial));
  if (Has(set, Accumulator::kCounts)) status.Update(CheckCount("counts.nan", partial.nan, partial.nonzero));
  return status;
}

}  // namespace reduced
