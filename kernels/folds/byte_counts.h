// What is known of an array of elements of 8 bits from how many of them have each of the 256 values: every answer that
// does not depend on places, with the bits of one that adds element by element; of 16 bits likewise those about
// distributions.
#ifndef REDUCED_KERNELS_FOLDS_BYTE_COUNTS_H_
#define REDUCED_KERNELS_FOLDS_BYTE_COUNTS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/algebra/op_call.h"
#include "kernels/algebra/spec.h"
#include "kernels/algebra/state.h"
#include "kernels/folds/fold.h"

namespace reduced {

inline constexpr int kByteValues = 256;

// Of some elements. A plain struct, which kernels add to; the default is that of no element.
struct ByteCounts {
  unsigned long long counts[kByteValues] = {};  // by the bits of an element
  // The inverse of the index of the first element that is the smallest one, the largest one, or NaN. 0: there is none,
  // or nobody has looked for it.
  unsigned long long inverse_least = 0;
  unsigned long long inverse_greatest = 0;
  unsigned long long inverse_nan = 0;
};

// Whether counts answer an op of elements of a dtype. Those of accumulators are answered from StateOfCounts.
bool AnsweredByCounts(const OpCall& call, DType dtype);

// The state of spec.count elements of 8 bits, which has what the accumulators of `spec` have. Exact sums have the bits
// of the CPU engine's; sums in f64 and products of floats are rounded less often than those. An extremum that nobody
// has looked for is at index 0.
State StateOfCounts(const ReduceSpec& spec, const ByteCounts& counts);

// Answers an op that has no accumulator, as DistributionFold::Finish does. `counts`: by the bits of an element of 8 or
// 16 bits. `limits`: of the fold that answers.
absl::Status AnswerFromCounts(const OpCall& call, const ReduceSpec& spec, std::span<const unsigned long long> counts,
                              const FoldLimits& limits, std::byte* answers);

}  // namespace reduced

#endif  // REDUCED_KERNELS_FOLDS_BYTE_COUNTS_H_
