#include "kernels/engine/engine.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace reduced {

void Combine(const Answer& later, Answer* into) {
  Combine(later.state, &into->state);
  for (const TimingStage& stage : kTimingStages) {
    const std::optional<double>& micros = later.timing.*stage.micros;
    std::optional<double>& sum = into->timing.*stage.micros;
    if (micros.has_value()) sum = sum.value_or(0) + *micros;
  }
  into->ran = later.ran;
}

void Engine::MeasureMatmul(MatmulJob /*job*/, int /*repeats*/, MatmulMeasured done) {
  std::move(done)(absl::UnimplementedError(
      absl::StrCat("matmul: got a product for ", info().name, "; allowed: engines that have matrix products")));
}

void Append(Measurement later, Measurement* into) {
  const auto before = static_cast<double>(into->kernel_us.size());
  const auto added = static_cast<double>(later.kernel_us.size());
  into->ran = std::move(later.ran);
  into->kernel_us.insert(into->kernel_us.end(), later.kernel_us.begin(), later.kernel_us.end());
  std::move(later.states.begin(), later.states.end(), std::back_inserter(into->states));
  into->read_bytes = later.read_bytes;
  if (later.scratch_copy_us) {
    into->scratch_copy_us =
        (into->scratch_copy_us.value_or(0) * before + *later.scratch_copy_us * added) / (before + added);
  }
  if (later.read_gb_per_s) into->read_gb_per_s = std::max(into->read_gb_per_s.value_or(0), *later.read_gb_per_s);
  into->occupancy = later.occupancy;
}

}  // namespace reduced
