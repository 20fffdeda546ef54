#include "kernels/cuda/status.h"

#include "absl/strings/str_format.h"

namespace reduced {

absl::Status DeviceError(cudaError_t error, const char* what) {
  const bool no_memory = error == cudaErrorMemoryAllocation;
  if (no_memory) cudaGetLastError();  // CUDA would report it again
  return absl::Status(no_memory ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kUnavailable,
                      absl::StrFormat("the CUDA device %s: %s (%s): %s", no_memory ? "has no memory left" : "failed",
                                      cudaGetErrorString(error), cudaGetErrorName(error), what));
}

}  // namespace reduced
