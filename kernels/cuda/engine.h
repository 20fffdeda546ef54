// The CUDA engine: see engine.h. Reduces host memory, copied to the device in chunks while earlier chunks are reduced,
// and memory of its device in place.
#ifndef REDUCED_KERNELS_CUDA_ENGINE_H_
#define REDUCED_KERNELS_CUDA_ENGINE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/engines.h"

namespace reduced {

// FAILED_PRECONDITION: there is no such device, no driver, or one too old; the message says which.
absl::StatusOr<std::unique_ptr<Engine>> MakeCudaEngine(const EngineOptions& options, int device);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_ENGINE_H_
