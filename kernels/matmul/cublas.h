// cuBLAS, if this machine has it: the peer that the matrix product is compared with. Loaded when it is first asked for
// and never linked, since it is larger than all else together.
#ifndef REDUCED_KERNELS_MATMUL_CUBLAS_H_
#define REDUCED_KERNELS_MATMUL_CUBLAS_H_

#include "absl/status/status.h"

namespace reduced {

// OK, or FAILED_PRECONDITION: why there is no cuBLAS. Thread-safe.
absl::Status CublasStatus();

}  // namespace reduced

#endif  // REDUCED_KERNELS_MATMUL_CUBLAS_H_
