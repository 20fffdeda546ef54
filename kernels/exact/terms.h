// Exact sums of powers and products of elements: what they add up, and how wide an integer has each of them.
#ifndef REDUCED_KERNELS_EXACT_TERMS_H_
#define REDUCED_KERNELS_EXACT_TERMS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/float_format.h"
#include "kernels/algebra/op.h"

namespace reduced {

// What a sum adds up, of each element x, or of each pair of elements x and y.
enum class SumTerm : std::uint8_t { kX, kY, kXX, kXY, kYY, kXXY, kXXX, kXXXX, kDistance, kSquaredDistance };
inline constexpr int kSumTerms = 10;

// How often x and y are factors of a term. A distance is no product: |x - y|, to the power `distance`.
struct TermPowers {
  int x = 0, y = 0;
  int distance = 0;
};
inline constexpr TermPowers kTermPowers[kSumTerms] = {
    {1, 0}, {0, 1}, {2, 0}, {1, 1}, {0, 2}, {2, 1}, {3, 0}, {4, 0}, {.distance = 1}, {.distance = 2},
};
constexpr TermPowers PowersIn(SumTerm term) { return kTermPowers[static_cast<int>(term)]; }

// Of elements of either sign.
constexpr bool MayBeNegative(SumTerm term) { return PowersIn(term).x % 2 != 0 || PowersIn(term).y % 2 != 0; }

// Some numbers: each is less than 2^top in magnitude, a multiple of 2^unit, and has at most `digits` significant bits.
// The default is that of zeros.
struct Magnitudes {
  int top = 0;
  int unit = 0;
  int digits = 0;
  bool any = false;  // whether any number is not zero
};

template <class T>
constexpr Magnitudes MagnitudesOfType() {
  if constexpr (kIsFloat<T>) {
    using Format = FloatFormat<T>;
    return {Format::kTop, Format::kUnit, Format::kSignificant, true};
  } else {
    return {8 * sizeof(T), 0, 8 * sizeof(T), true};
  }
}
// A table, not a visit, since .cu files visit fewer dtypes.
#define REDUCED_X(enumerator, number, name, type) MagnitudesOfType<type>(),
inline constexpr Magnitudes kMagnitudes[] = {REDUCED_DTYPES(REDUCED_X)};
#undef REDUCED_X
constexpr Magnitudes MagnitudesOf(DType dtype) { return kMagnitudes[static_cast<int>(dtype) - 1]; }

// Those of a term, of elements with these magnitudes. `digits` is not set.
constexpr Magnitudes MagnitudesOf(SumTerm term, const Magnitudes& x, const Magnitudes& y) {
  const TermPowers powers = PowersIn(term);
  if (powers.distance == 0) {
    return {.top = powers.x * x.top + powers.y * y.top,
            .unit = powers.x * x.unit + powers.y * y.unit,
            .any = (powers.x == 0 || x.any) && (powers.y == 0 || y.any)};
  }
  const Magnitudes& a = x.any ? x : y;
  const Magnitudes& b = y.any ? y : x;
  return {.top = powers.distance * (std::max(a.top, b.top) + 1),
          .unit = powers.distance * std::min(a.unit, b.unit),
          .any = x.any || y.any};
}

// Which sums answer an op.
inline constexpr SumTerm kOfDot[] = {SumTerm::kXY};
inline constexpr SumTerm kOfWeightedMean[] = {SumTerm::kY, SumTerm::kXY};
inline constexpr SumTerm kOfWeightedVar[] = {SumTerm::kY, SumTerm::kXY, SumTerm::kXXY};
inline constexpr SumTerm kOfCov[] = {SumTerm::kX, SumTerm::kY, SumTerm::kXY};
inline constexpr SumTerm kOfLine[] = {SumTerm::kX, SumTerm::kY, SumTerm::kXY, SumTerm::kXX};
inline constexpr SumTerm kOfCorr[] = {SumTerm::kX, SumTerm::kY, SumTerm::kXY, SumTerm::kXX, SumTerm::kYY};
inline constexpr SumTerm kOfCosine[] = {SumTerm::kXY, SumTerm::kXX, SumTerm::kYY};
inline constexpr SumTerm kOfDistance[] = {SumTerm::kDistance};
inline constexpr SumTerm kOfSquaredDistance[] = {SumTerm::kSquaredDistance};
inline constexpr SumTerm kOfSkew[] = {SumTerm::kX, SumTerm::kXX, SumTerm::kXXX};
inline constexpr SumTerm kOfKurtosis[] = {SumTerm::kX, SumTerm::kXX, SumTerm::kXXX, SumTerm::kXXXX};

struct OpTerms {
  Op op;
  std::span<const SumTerm> terms;
};
inline constexpr OpTerms kOpTerms[] = {
    {Op::kDot, kOfDot},
    {Op::kWeightedSum, kOfDot},
    {Op::kWeightedMean, kOfWeightedMean},
    {Op::kWeightedVar, kOfWeightedVar},
    {Op::kWeightedStd, kOfWeightedVar},
    {Op::kCov, kOfCov},
    {Op::kCorr, kOfCorr},
    {Op::kCovMatrix, kOfCov},    // of each two columns
    {Op::kCorrMatrix, kOfCorr},  // likewise
    {Op::kSlope, kOfLine},
    {Op::kIntercept, kOfLine},
    {Op::kDistanceL1, kOfDistance},
    {Op::kDistanceL2, kOfSquaredDistance},
    {Op::kCosine, kOfCosine},
    {Op::kCompare, kOfSquaredDistance},
    {Op::kSkew, kOfSkew},
    {Op::kKurtosis, kOfKurtosis},
};

// None, if the op is not answered by such sums.
constexpr std::span<const SumTerm> TermsOf(Op op) {
  for (const OpTerms& row : kOpTerms) {
    if (row.op == op) return row.terms;
  }
  return {};
}

// What is counted beside the sums. They are the first integers of a state; the sums follow in the order of TermsOf.
enum class TermCount : std::uint8_t {
  kElements,   // or pairs, without those that are left out
  kUndefined,  // of these: those that make the answer NaN, ...
  kPositive,   // ... infinite, ...
  kNegative,   // ... and infinite and negative
};
inline constexpr std::size_t kTermCounts = 4;

// The integers that have the sums of some terms of elements x, and y, of these dtypes: of so many words each, in two's
// complement, with room for 2^60 elements.
struct TermWords {
  std::span<const SumTerm> terms;
  Magnitudes x, y;
  int words = 0;

  constexpr TermWords(std::span<const SumTerm> terms, DType dtype, DType other)
      : terms(terms), x(MagnitudesOf(dtype)), y(MagnitudesOf(other)) {
    constexpr int kCountAndSign = 64;
    for (const SumTerm term : terms) {
      const Magnitudes each = MagnitudesOf(term, x, y);
      words = std::max(words, (each.top - each.unit + kCountAndSign + 63) / 64);
    }
  }

  constexpr std::size_t integers() const { return kTermCounts + terms.size(); }
  // The unit of a sum is 2^low.
  constexpr int low(SumTerm term) const { return MagnitudesOf(term, x, y).unit; }
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_EXACT_TERMS_H_
