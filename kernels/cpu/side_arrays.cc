#include "kernels/cpu/side_arrays.h"

#include <utility>

#include "absl/functional/function_ref.h"
#include "kernels/cpu/arrays.h"

namespace reduced {

absl::StatusOr<const std::byte*> SideInMemory(const SideArray& side, const Job& job, ArrayBudget& scratch,
                                              std::vector<std::unique_ptr<ArrayMemory>>* memory) {
  if (!IsCopied(side.array)) return static_cast<const std::byte*>(side.array.data);
  absl::StatusOr<std::unique_ptr<ArrayMemory>> room = AllocateCpuArray(side.bytes(), scratch, job.caller);
  if (!room.ok()) return room.status();
  auto* const to = static_cast<std::byte*>(const_cast<void*>((*room)->array().data));
  const auto why_stop = [&job] { return WhyStop(job); };
  if (absl::Status status = ReadSide(side, why_stop, to); !status.ok()) return status;
  memory->push_back(*std::move(room));
  return to;
}

const SideArray& GroupingSide(const Partition& partition) {
  return partition.segments.has_value() ? partition.segments->bounds : partition.keys->keys;
}

absl::StatusOr<Grouping> GroupingOf(const Partition& partition, const std::byte* side, const MaskView& mask,
                                    const GroupingContext& context) {
  if (partition.segments.has_value()) return GroupBySegments(*partition.segments, side, partition.rows, context);
  const std::int64_t columns = partition.layout.outputs;
  const auto keeps = [&](std::int64_t row) {
    bool kept = false;
    for (std::int64_t i = row * columns; !kept && i < (row + 1) * columns; ++i) kept = mask.Keeps(i);
    return kept;
  };
  const absl::FunctionRef<bool(std::int64_t)> kept = keeps;
  return GroupByKeys(*partition.keys, side, mask ? &kept : nullptr, context);
}

}  // namespace reduced
