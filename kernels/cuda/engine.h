// The CUDA engine: see engine.h. Reduces host memory, copied to the device in chunks while earlier chunks are reduced,
// and memory of its device in place.
#ifndef REDUCED_KERNELS_CUDA_ENGINE_H_
#define REDUCED_KERNELS_CUDA_ENGINE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/engines.h"

namespace reduced {

// How many GPUs CUDA shows to this process, at least 1. FAILED_PRECONDITION: there is none, no driver, or one too old;
// the message says which.
absl::StatusOr<int> CountCudaDevices();

// The engine of GPU `ordinal`, which is less than CountCudaDevices(). Takes some 100 ms: it is calibrated. Why it can't
// start: RESOURCE_EXHAUSTED, the GPU has not enough free memory; FAILED_PRECONDITION, it lacks memory pools or can't
// run this build's kernels; UNAVAILABLE, it failed.
absl::StatusOr<std::unique_ptr<Engine>> MakeCudaEngine(const EngineOptions& options, int ordinal);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_ENGINE_H_
