// The CPU engine: see engine.h. Reduces host memory only, by the pipeline "tiled_simd".
#ifndef REDUCED_KERNELS_CPU_ENGINE_H_
#define REDUCED_KERNELS_CPU_ENGINE_H_

#include <memory>

#include "kernels/engine/engine.h"
#include "kernels/engine/engines.h"

namespace reduced {

// Takes some 50 ms: the engine measures itself.
std::unique_ptr<Engine> MakeCpuEngine(const EngineOptions& options);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_ENGINE_H_
