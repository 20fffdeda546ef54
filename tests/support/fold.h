// The accumulators of kernels/algebra/accumulator.h, one element after the other.
#ifndef REDUCED_TESTS_SUPPORT_FOLD_H_
#define REDUCED_TESTS_SUPPORT_FOLD_H_

#include <cstdint>

#include "kernels/algebra/partial.h"
#include "kernels/algebra/spec.h"

namespace reduced::test {

// The partial of elements [begin, end) of the array at `data`: the accumulators of spec, each in one Local.
Partial Fold(const ReduceSpec& spec, const void* data, std::int64_t begin, std::int64_t end);

}  // namespace reduced::test

#endif  // REDUCED_TESTS_SUPPORT_FOLD_H_
