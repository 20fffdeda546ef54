// Whether a question has an answer, before anything is known of the elements.
#ifndef REDUCED_KERNELS_ALGEBRA_VALIDATE_H_
#define REDUCED_KERNELS_ALGEBRA_VALIDATE_H_

#include "absl/status/status.h"
#include "kernels/algebra/spec.h"

namespace reduced {

// Returns OK, or what is wrong with spec's ops, count and ddof. INVALID_ARGUMENT: no op, an op that the dtype lacks or
// whose parameters are wrong, a negative count or ddof, an op that has no answer for an empty array.
absl::Status ValidateOps(const ReduceSpec& spec);

}  // namespace reduced

#endif  // REDUCED_KERNELS_ALGEBRA_VALIDATE_H_
