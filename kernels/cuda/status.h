// CUDA's errors as statuses.
#ifndef REDUCED_KERNELS_CUDA_STATUS_H_
#define REDUCED_KERNELS_CUDA_STATUS_H_

#include <cuda_runtime.h>

#include "absl/status/status.h"

namespace reduced {

// With CUDA's text and name for the error, and `what` was done. RESOURCE_EXHAUSTED: there is no memory left, which is
// no failure of the device and is not reported by later calls. Else UNAVAILABLE: the device failed.
absl::Status DeviceError(cudaError_t error, const char* what);

#define REDUCED_RETURN_IF_CUDA_ERROR(call)                                                        \
  do {                                                                                            \
    if (const cudaError_t error = (call); error != cudaSuccess) return DeviceError(error, #call); \
  } while (false)

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_STATUS_H_
