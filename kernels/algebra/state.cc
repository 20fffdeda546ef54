#include "kernels/algebra/state.h"

#include <cstddef>

#include "kernels/algebra/accumulator.h"
#include "kernels/algebra/polynomial.h"

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
  for (Entries& entries : state->entries) {
    if (entries.rule != EntriesRule::kPolynomial || entries.most == 0 || entries.keys.empty()) continue;
    const Residues power = PowersOfBases(static_cast<std::uint64_t>(begin * entries.most));
    for (std::size_t i = 0; i < entries.keys.size(); ++i) {
      entries.values[i] = ResidueOfProduct(entries.values[i], power[entries.keys[i]]);
    }
  }
}

}  // namespace reduced
