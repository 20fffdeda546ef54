#include "kernels/algebra/state.h"

#include "kernels/algebra/accumulator.h"

namespace reduced {

void Combine(const State& later, State* into) {
  Combine(later.partial, &into->partial);
  if (later.exact == nullptr) return;
  if (into->exact == nullptr) {
    into->exact = std::make_unique<ExactSums>(*later.exact);
  } else {
    Merge(*later.exact, into->exact.get());
  }
}

void Shift(std::int64_t begin, State* state) {
  ExtremaState& extrema = state->partial.extrema;
  for (std::int64_t* const index : {&extrema.min_index, &extrema.max_index, &extrema.nan_index}) {
    if (*index != kNoIndex) *index += begin;
  }
}

}  // namespace reduced
