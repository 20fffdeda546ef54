// The answer of mode from the counts of all sort keys of 8 or 16 bits.
#ifndef REDUCED_KERNELS_FOLDS_MODE_H_
#define REDUCED_KERNELS_FOLDS_MODE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/algebra/sort_key.h"
#include "kernels/folds/elements.h"

namespace reduced {

// As DistributionFold::Finish of mode. `counts`: of keys by OfValue, those of NaNs included; it is changed.
template <class T>
absl::Status FinishMode(const OpCall& call, const ReduceSpec& spec, std::span<std::uint64_t> counts,
                        std::byte* answers) {
  using Key = SortKey<T>;
  if (kIsFloat<T>) {
    if (counts[Key::kNan] > 0 && spec.nan_policy == NanPolicy::kPropagate) {
      StoreAt(Key::Element(Key::kNan), 0, answers);
      return absl::OkStatus();
    }
    counts[Key::kNan] = 0;
  }
  const auto most = std::max_element(counts.begin(), counts.end());
  if (*most > 0) {
    StoreAt(Key::Element(static_cast<typename Key::Type>(most - counts.begin())), 0, answers);
  } else if (spec.empty_policy == EmptyPolicy::kError) {
    return TooFew(spec, call, 0);
  } else {
    StoreAt(kIsFloat<T> ? Key::Element(Key::kNan) : T{}, 0, answers);
  }
  return absl::OkStatus();
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_FOLDS_MODE_H_
