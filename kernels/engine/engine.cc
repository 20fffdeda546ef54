#include "kernels/engine/engine.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace reduced {

void Add(const Timing& later, Timing* into) {
  for (const TimingStage& stage : kTimingStages) {
    const std::optional<double>& micros = later.*stage.micros;
    std::optional<double>& sum = into->*stage.micros;
    if (micros.has_value()) sum = sum.value_or(0) + *micros;
  }
}

void Combine(const Answer& later, Answer* into) {
  Combine(later.state, &into->state);
  Add(later.timing, &into->timing);
  into->ran = later.ran;
}

std::vector<NamedSide> SidesOf(Job& job) {
  std::vector<NamedSide> sides;
  if (job.y.has_value()) sides.push_back({"y", &job.y->array});
  if (job.weights.has_value()) sides.push_back({"weights", &job.weights->array});
  if (!job.partition.has_value()) return sides;
  Partition& partition = *job.partition;
  if (partition.segments.has_value()) {
    sides.push_back(
        {partition.segments->lengths ? "segments.lengths" : "segments.offsets", &partition.segments->bounds});
  }
  if (partition.keys.has_value()) sides.push_back({"keys.keys", &partition.keys->keys});
  if (partition.mask.has_value()) {
    sides.push_back({partition.mask->bits ? "where.bits" : "where.elements", &partition.mask->array});
  }
  return sides;
}

absl::Status CheckSides(Job& job, int device, std::string_view engine) {
  for (const auto& [field, side] : SidesOf(job)) {
    if (side->array.space != MemorySpace::kDevice || side->array.device == device) continue;
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s: got an array in the memory of cuda:%d for the engine of %s; allowed: in host memory%s", field,
        side->array.device, engine, device == kNoDevice ? "" : ", or in the memory of the same GPU"));
  }
  return absl::OkStatus();
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
