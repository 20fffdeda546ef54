// The state of a reduction: everything that is known of a set of elements, exact sums or not. Whatever cuts an array
// and puts the answers together (chunks, lanes, the parts of an upload, devices, processes) uses these operations only:
//
//   State whole;                     // the identity: no element yet
//   Shift(begin, &part);             // the part's indexes now count from the start of the whole array
//   Combine(part, &whole);           // in array order
//   Finalize(spec, whole);           // the answers (finalize.h)
#ifndef REDUCED_KERNELS_ALGEBRA_STATE_H_
#define REDUCED_KERNELS_ALGEBRA_STATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/algebra/entries.h"
#include "kernels/algebra/partial.h"
#include "kernels/exact/sums.h"

namespace reduced {

// A value: copies are independent of each other. Not thread-safe.
struct State {
  State() = default;
  // Of a reduction without exact sums.
  State(const Partial& accumulators) : partial(accumulators) {}  // NOLINT(google-explicit-constructor)
  State(const State& other) : partial(other.partial), exact(Copy(other.exact)), entries(other.entries) {}
  State(State&&) = default;
  State& operator=(const State& other) {
    if (this != &other) *this = State(other);
    return *this;
  }
  State& operator=(State&&) = default;

  // The accumulators of AccumulatorsFor(spec), and how many elements there are.
  Partial partial;
  // The sums of ExactAccumulatorsFor(spec), on the heap because they take a kilobyte. Null if spec has none, and in the
  // identity.
  std::unique_ptr<ExactSums> exact;
  // Of each op of the distribution, in the order of spec's ops. Empty if spec has none, and in the identity.
  std::vector<Entries> entries{};

 private:
  static std::unique_ptr<ExactSums> Copy(const std::unique_ptr<ExactSums>& from) {
    return from == nullptr ? nullptr : std::make_unique<ExactSums>(*from);
  }
};

// Adds the elements of `later`, which follow those of `into`. Both are states of the same ops and policies, or the
// identity.
void Combine(const State& later, State* into);

// Calls change(index) for each index that a state has; changed indexes must be in the same order.
template <class Change>
void ForIndexes(State* state, const Change& change) {
  ExtremaState& extrema = state->partial.extrema;
  for (std::int64_t* const index : {&extrema.min_index, &extrema.max_index, &extrema.nan_index}) {
    if (*index != kNoIndex) *index = change(*index);
  }
  for (Entries& entries : state->entries) {
    for (std::size_t i = 0; i < entries.values.size(); ++i) {
      if (entries.rule != EntriesRule::kFirst &&
          (entries.rule != EntriesRule::kIntegers || !IsRecordIndex(entries.keys[i]))) {
        continue;
      }
      std::uint64_t& index = entries.values[i];
      index = static_cast<std::uint64_t>(change(static_cast<std::int64_t>(index)));
    }
  }
}

// Adds `begin` to every index in a state whose indexes count from the start of its own elements.
void Shift(std::int64_t begin, State* state);

}  // namespace reduced

#endif  // REDUCED_KERNELS_ALGEBRA_STATE_H_
