// Answers the ops that no accumulator answers, for every partition: brings the elements of each output to a fold of
// each op (kernels/folds), as often as the fold asks for them. It knows no op.
//
// The elements of long outputs are cut into blocks, which the threads take in turn. One of them adds to the folds, the
// others to parts of their own, as far as there is memory; these are merged. Short outputs are answered by a thread
// each.
#ifndef REDUCED_KERNELS_CPU_DISTRIBUTIONS_H_
#define REDUCED_KERNELS_CPU_DISTRIBUTIONS_H_

#include <cstddef>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/cpu/grouping.h"
#include "kernels/cpu/output_elements.h"
#include "kernels/engine/engine.h"

namespace reduced {

// Reduces the array whose partition is loaded, on the threads of the context. `by_accumulators`: reduces a
// job with the same partition and those of its ops that accumulators answer, if there are any. Errors: those of
// Engine::Reduce.
absl::Status ReduceDistributions(const Job& job, const GroupingContext& context, LoadedPartition* loaded,
                                 absl::FunctionRef<absl::Status(const Job&)> by_accumulators);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_DISTRIBUTIONS_H_
