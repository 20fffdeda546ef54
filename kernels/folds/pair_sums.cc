// The folds of ops about pairs of elements, and of skew and kurtosis: exact sums of terms, of which an answer is a
// rational number or its root, rounded once. The largest distance has a fold of its own.
#include "kernels/folds/pair_sums.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

#include "kernels/algebra/finalize.h"
#include "kernels/exact/scaled.h"
#include "kernels/exact/terms.h"
#include "kernels/folds/distances.h"
#include "kernels/folds/elements.h"
#include "kernels/folds/folds.h"

namespace reduced {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

// What formulas are of.
struct Sums {
  const TermSums& terms;
  std::int64_t ddof;

  Scaled operator()(SumTerm term) const { return terms.sum(term); }
  Scaled n() const { return Scaled::Of(terms.count(TermCount::kElements)); }
  Scaled minus_ddof(const Scaled& count) const { return count - Scaled::Of(ddof); }
};

// n sum(a b) - sum(a) sum(b): n^2 times a variance or covariance.
Scaled Spread(const Sums& s, SumTerm a, SumTerm b, SumTerm product) { return s.n() * s(product) - s(a) * s(b); }
Scaled SpreadOfX(const Sums& s) { return Spread(s, SumTerm::kX, SumTerm::kX, SumTerm::kXX); }

double Ratio(const Scaled& a, const Scaled& b) { return b.sign() == 0 ? kUndefined : RoundedQuotient(a, b); }
// a over the root of b, which is not negative if the sums are those of elements.
double OverRoot(const Scaled& a, const Scaled& b) {
  return b.sign() <= 0 ? kUndefined : a.sign() * RoundedRootOfQuotient(a * a, b);
}

double SumAnswer(const Sums& s) { return Rounded(s(SumTerm::kXY)); }
double MeanAnswer(const Sums& s) { return Ratio(s(SumTerm::kXY), s(SumTerm::kY)); }

// sum(w (x - mean)^2) / (sum(w) - ddof), as a / b. False: there is none.
bool WeightedVariance(const Sums& s, Scaled* a, Scaled* b) {
  const Scaled weights = s(SumTerm::kY), left = s.minus_ddof(weights);
  if (weights.sign() <= 0 || left.sign() <= 0) return false;
  *a = weights * s(SumTerm::kXXY) - s(SumTerm::kXY) * s(SumTerm::kXY);
  *b = weights * left;
  return true;
}
double WeightedVarAnswer(const Sums& s) {
  Scaled a, b;
  return WeightedVariance(s, &a, &b) ? RoundedQuotient(a, b) : kUndefined;
}
double WeightedStdAnswer(const Sums& s) {
  Scaled a, b;
  return WeightedVariance(s, &a, &b) && a.sign() >= 0 ? RoundedRootOfQuotient(a, b) : kUndefined;
}

double CovAnswer(const Sums& s) {
  const Scaled left = s.minus_ddof(s.n());
  return left.sign() <= 0 ? kUndefined
                          : RoundedQuotient(Spread(s, SumTerm::kX, SumTerm::kY, SumTerm::kXY), s.n() * left);
}
double CorrAnswer(const Sums& s) {
  const Scaled of_x = SpreadOfX(s), of_y = Spread(s, SumTerm::kY, SumTerm::kY, SumTerm::kYY);
  if (of_x.sign() <= 0 || of_y.sign() <= 0) return kUndefined;
  return OverRoot(Spread(s, SumTerm::kX, SumTerm::kY, SumTerm::kXY), of_x * of_y);
}
double SlopeAnswer(const Sums& s) { return Ratio(Spread(s, SumTerm::kX, SumTerm::kY, SumTerm::kXY), SpreadOfX(s)); }
double InterceptAnswer(const Sums& s) {
  return Ratio(s(SumTerm::kY) * s(SumTerm::kXX) - s(SumTerm::kX) * s(SumTerm::kXY), SpreadOfX(s));
}
double CosineAnswer(const Sums& s) {
  const Scaled of_x = s(SumTerm::kXX), of_y = s(SumTerm::kYY);
  if (of_x.sign() <= 0 || of_y.sign() <= 0) return kUndefined;
  return OverRoot(s(SumTerm::kXY), of_x * of_y);
}
double DistanceL1Answer(const Sums& s) { return Rounded(s(SumTerm::kDistance)); }
double DistanceL2Answer(const Sums& s) { return RoundedRootOfQuotient(s(SumTerm::kSquaredDistance), Scaled::Of(1)); }

// With central moments times powers of n, of which quotients have none.
double SkewAnswer(const Sums& s) {
  const Scaled n = s.n(), x = s(SumTerm::kX), spread = SpreadOfX(s);
  const Scaled third = n * n * s(SumTerm::kXXX) - Scaled::Of(3) * n * x * s(SumTerm::kXX) + Scaled::Of(2) * x * x * x;
  return OverRoot(third, spread * spread * spread);
}
double KurtosisAnswer(const Sums& s) {
  const Scaled n = s.n(), x = s(SumTerm::kX), spread = SpreadOfX(s);
  const Scaled fourth = n * n * n * s(SumTerm::kXXXX) - Scaled::Of(4) * n * n * x * s(SumTerm::kXXX) +
                        Scaled::Of(6) * n * x * x * s(SumTerm::kXX) - Scaled::Of(3) * x * x * x * x;
  const Scaled square = spread * spread;
  return Ratio(fourth - Scaled::Of(3) * square, square);
}

struct Formula {
  Op op;
  double (*answer)(const Sums& sums);
};
constexpr Formula kFormulas[] = {
    {Op::kDot, &SumAnswer},
    {Op::kWeightedSum, &SumAnswer},
    {Op::kWeightedMean, &MeanAnswer},
    {Op::kWeightedVar, &WeightedVarAnswer},
    {Op::kWeightedStd, &WeightedStdAnswer},
    {Op::kCov, &CovAnswer},
    {Op::kCorr, &CorrAnswer},
    {Op::kCovMatrix, &CovAnswer},
    {Op::kCorrMatrix, &CorrAnswer},
    {Op::kSlope, &SlopeAnswer},
    {Op::kIntercept, &InterceptAnswer},
    {Op::kDistanceL1, &DistanceL1Answer},
    {Op::kDistanceL2, &DistanceL2Answer},
    {Op::kCosine, &CosineAnswer},
    {Op::kSkew, &SkewAnswer},
    {Op::kKurtosis, &KurtosisAnswer},
};

class TermSumsFold final : public FoldOf<TermSumsFold> {
 public:
  TermSumsFold(const OpCall& call, const ReduceSpec& spec, const FoldLimits& limits)
      : FoldOf(call, spec, limits), sums_(call, spec) {}

  absl::Status Begin(std::int64_t /*count*/) override {
    sums_.Clear();
    return absl::OkStatus();
  }
  absl::Status Add(const void* elements, const void* others, std::int64_t /*first*/, std::int64_t count) override {
    sums_.Add(elements, others, count);
    return absl::OkStatus();
  }
  absl::Status Merge(DistributionFold& part) override {
    sums_.Merge(static_cast<TermSumsFold&>(part).sums_);
    return absl::OkStatus();
  }

  absl::Status Finish(IndexOf /*index_of*/, std::byte* answers) override {
    if (ResultDType(call_, spec_.dtype) != DType::kF64) return FinishInteger(answers);
    StoreAt(PairSumsAnswer(call_.op, sums_, spec_.ddof), 0, answers);
    return absl::OkStatus();
  }

  absl::Status Save(IndexOf /*index_of*/, Entries* to) override {
    sums_.Save(to);
    return absl::OkStatus();
  }
  absl::Status Load(const Entries& from) override { return sums_.Load(from); }

 private:
  absl::Status FinishInteger(std::byte* answers) const {
    const Scaled sum = sums_.sum(SumTerm::kXY);
    const Natural magnitude = sum.magnitude.ShiftedLeft(sum.exponent);
    ExactInteger exact{.negative = sum.negative, .beyond = magnitude.bits() > 128};
    exact.magnitude = static_cast<UInt128>(magnitude.Bits(64, 64)) << 64 | magnitude.Bits(0, 64);
    exact.wrapped = sum.negative ? -magnitude.Bits(0, 64) : magnitude.Bits(0, 64);
    const absl::StatusOr<Value> value = FitInteger(spec_, call_, exact);
    if (value.ok()) StoreValue(*value, answers);
    return value.status();
  }

  TermSums sums_;
};

// The largest distance so far, as the bits of a double, which compare as distances do; those of NaN are the largest.
class LargestDistanceFold final : public FoldOf<LargestDistanceFold> {
 public:
  using FoldOf::FoldOf;

  absl::Status Begin(std::int64_t /*count*/) override {
    largest_ = 0;
    return absl::OkStatus();
  }
  absl::Status Add(const void* elements, const void* others, std::int64_t /*first*/, std::int64_t count) override {
    VisitPair(spec_.dtype, call_.given().other.value_or(spec_.dtype), [&]<class X, class Y>(X, Y) {
      for (std::int64_t i = 0; i < count; ++i) {
        const X x = ElementAt<X>(elements, i);
        const Y y = ElementAt<Y>(others, i);
        if ((IsNan(x) || IsNan(y)) && omits_nans()) continue;
        largest_ = std::max(largest_, BitsOfDistance(Distance(x, y)));
      }
    });
    return absl::OkStatus();
  }
  absl::Status Merge(DistributionFold& part) override {
    largest_ = std::max(largest_, static_cast<LargestDistanceFold&>(part).largest_);
    return absl::OkStatus();
  }
  absl::Status Finish(IndexOf /*index_of*/, std::byte* answers) override {
    StoreAt(largest_, 0, answers);
    return absl::OkStatus();
  }
  absl::Status Save(IndexOf /*index_of*/, Entries* to) override {
    if (largest_ != 0) to->Add(0, largest_);
    return absl::OkStatus();
  }
  absl::Status Load(const Entries& from) override {
    largest_ = from.values.empty() ? 0 : from.values.front();
    return absl::OkStatus();
  }

 private:
  std::uint64_t largest_ = 0;
};

}  // namespace

double PairSumsAnswer(Op op, const TermSums& sums, std::int64_t ddof) {
  const std::optional<double> special = sums.special();
  if (!special.has_value()) return std::ranges::find(kFormulas, op, &Formula::op)->answer({sums, ddof});
  if (op != Op::kWeightedMean) return *special;  // of a sum; a mean has the sign of the weights, too
  const int sign = sums.sum(SumTerm::kY).sign();
  return sign == 0 ? kUndefined : *special * sign;
}

std::unique_ptr<DistributionFold> MakeTermSumsFold(const OpCall& call, const ReduceSpec& spec,
                                                   const FoldLimits& limits) {
  return std::make_unique<TermSumsFold>(call, spec, limits);
}

std::unique_ptr<DistributionFold> MakeLargestDistanceFold(const OpCall& call, const ReduceSpec& spec,
                                                          const FoldLimits& limits) {
  return std::make_unique<LargestDistanceFold>(call, spec, limits);
}

}  // namespace reduced
