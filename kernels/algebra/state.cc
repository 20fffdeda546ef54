#include "kernels/algebra/state.h"

#include <cstddef>

#include "kernels/algebra/accumulator.h"

namespace reduced {

void Combine(const State& later, State* into) {
  Combine(later.partial, &into->partial);
  if (into->entries.empty()) {
    into->entries = later.entries;
  } else {
    for (std::size_t i = 0; i < later.entries.size(); ++i) Merge(later.entries[i], &into->entries[i]);
  }
  if (later.exact == nullptr) return;
  if (into->exact == nullptr) {
    into->exact = std::make_unique<ExactSums>(*later.exact);
  } else {
    Merge(*later.exact, into->exact.get());
  }
}

void Shift(std::int64_t begin, State* state) {
  ForIndexes(state, [begin](std::int64_t index) { return begin + index; });
}

}  // namespace reduced
