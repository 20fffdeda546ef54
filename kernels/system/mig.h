// MIG: a GPU that its administrator cut into instances. CUDA shows one of them to a process, without a word about the
// others.
#ifndef REDUCED_KERNELS_SYSTEM_MIG_H_
#define REDUCED_KERNELS_SYSTEM_MIG_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace reduced {

// OK, or FAILED_PRECONDITION: the process would use one of several instances that it can see, which nobody has chosen.
// `visible`: CUDA_VISIBLE_DEVICES, null if it is not set. `count`: returns the number of instances; it is called only
// if the answer depends on it.
absl::Status CheckMig(const char* visible, absl::FunctionRef<int()> count);

}  // namespace reduced

#endif  // REDUCED_KERNELS_SYSTEM_MIG_H_
