// The answer of a quantile from its two neighbours, on the device.
//
// Compiled without contraction of operations: what is between two elements is rounded operation by operation.
#ifndef REDUCED_KERNELS_CUDA_QUANTILE_ANSWER_CUH_
#define REDUCED_KERNELS_CUDA_QUANTILE_ANSWER_CUH_

#include <cstdint>
#include <type_traits>

#include "kernels/algebra/sort_key.h"
#include "kernels/cuda/quantiles.h"
#include "kernels/folds/quantile_points.h"

namespace reduced {

// Answer `i` of the launch from the keys of both neighbours: FinishQuantiles of folds/quantile_answers.h.
template <class Word>
__device__ void Answer(const QuantilesLaunch& launch, std::int64_t i, bool is_known, Word lower, Word higher,
                       double weight) {
  VisitDType(launch.dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (sizeof(T) == sizeof(Word)) {
      using Key = SortKey<T>;
      if (!AnswersInF64(launch.method)) {
        const T none = kIsFloat<T> ? Key::Element(Key::kNan) : T{};
        reinterpret_cast<T*>(launch.answers)[i] = is_known ? Key::Element(lower) : none;
        return;
      }
      reinterpret_cast<double*>(launch.answers)[i] =
          is_known ? BetweenElements(Key::Element(lower), Key::Element(higher), weight, launch.is_median)
                   : __longlong_as_double(0x7ff8'0000'0000'0000);
    }
  });
}

__device__ inline std::uint8_t LeftOf(const QuantilesLaunch& launch, unsigned ranked, unsigned nans) {
  return ranked > 0 || (nans > 0 && !launch.omit_nan) ? kAnswered : kNotKnown;
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_QUANTILE_ANSWER_CUH_
