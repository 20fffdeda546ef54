#include "kernels/engine/engine.h"

namespace reduced {

void Combine(const EngineResult& later, EngineResult* into) {
  Combine(later.state, &into->state);
  for (const TimingStage& stage : kTimingStages) {
    const std::optional<double>& micros = later.timing.*stage.micros;
    std::optional<double>& sum = into->timing.*stage.micros;
    if (micros.has_value()) sum = sum.value_or(0) + *micros;
  }
  into->ran = later.ran;
}

}  // namespace reduced
