// The answers of median and quantile, whoever selects the elements: which ranks to select, and what to answer from
// them.
#ifndef REDUCED_KERNELS_FOLDS_QUANTILE_ANSWERS_H_
#define REDUCED_KERNELS_FOLDS_QUANTILE_ANSWERS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "kernels/algebra/sort_key.h"
#include "kernels/folds/elements.h"
#include "kernels/folds/quantile_points.h"

namespace reduced {

inline std::vector<double> QuantilesOf(const OpCall& call) {
  const bool median = call.op == Op::kMedian || call.op == Op::kWeightedMedian;
  return median ? std::vector<double>{0.5} : call.given().quantiles;
}

// The ranks to select among the elements without NaNs, ascending. None: the answers are known without. `count`: of
// elements; `counted`: of those that are not NaN.
inline std::vector<std::int64_t> QuantileRanks(const OpCall& call, const ReduceSpec& spec, std::int64_t count,
                                               std::int64_t counted) {
  std::vector<std::int64_t> ranks;
  if (counted == 0 || (counted < count && spec.nan_policy == NanPolicy::kPropagate)) return ranks;
  for (const double q : QuantilesOf(call)) {
    const QuantilePoint point = PointOf(q, counted, call.given().method);
    ranks.push_back(point.lower);
    ranks.push_back(point.higher);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

// As DistributionFold::Finish. `keys`: the sort keys of those ranks.
template <class T>
absl::Status FinishQuantiles(const OpCall& call, const ReduceSpec& spec, std::int64_t count, std::int64_t counted,
                             const std::vector<std::int64_t>& ranks, const std::vector<typename SortKey<T>::Type>& keys,
                             std::byte* answers) {
  using Key = SortKey<T>;
  const QuantileMethod method = call.given().method;
  const bool in_f64 = AnswersInF64(method);
  const bool nan = counted < count && spec.nan_policy == NanPolicy::kPropagate;
  if (counted == 0 && !nan && !RowOf(ResultDType(call, spec.dtype)).is_float &&
      spec.empty_policy == EmptyPolicy::kError) {
    return TooFew(spec, call, 0);
  }
  const auto element = [&](std::int64_t rank) {
    return Key::Element(
        keys[static_cast<std::size_t>(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin())]);
  };
  std::int64_t at = 0;
  for (const double q : QuantilesOf(call)) {
    if (keys.empty()) {
      in_f64 ? StoreAt(std::numeric_limits<double>::quiet_NaN(), at++, answers)
             : StoreAt(kIsFloat<T> ? Key::Element(Key::kNan) : T{}, at++, answers);
      continue;
    }
    const QuantilePoint point = PointOf(q, counted, method);
    const T lower = element(point.lower), higher = element(point.higher);
    if (!in_f64) {
      StoreAt(lower, at++, answers);
    } else {
      StoreAt(BetweenElements(lower, higher, point.weight, call.op == Op::kMedian), at++, answers);
    }
  }
  return absl::OkStatus();
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_FOLDS_QUANTILE_ANSWERS_H_
