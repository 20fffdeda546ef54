#include "kernels/cpu/side_arrays.h"

#include <algorithm>
#include <utility>

#include "absl/functional/function_ref.h"
#include "kernels/cpu/arrays.h"
#include "kernels/system/read_file.h"

namespace reduced {

absl::StatusOr<const std::byte*> SideInMemory(const SideArray& side, const Job& job, ArrayBudget& scratch,
                                              std::vector<std::unique_ptr<ArrayMemory>>* memory) {
  if (!MayBlock(side.array)) return static_cast<const std::byte*>(side.array.data);
  constexpr std::int64_t kPieceBytes = 1 << 20;  // between two looks at whether to stop
  absl::StatusOr<std::unique_ptr<ArrayMemory>> room = AllocateCpuArray(side.bytes(), scratch);
  if (!room.ok()) return room.status();
  auto* const to = static_cast<std::byte*>(const_cast<void*>((*room)->array().data));
  for (std::int64_t done = 0; done < side.bytes(); done += kPieceBytes) {
    absl::Status status = WhyStop(job);
    if (status.ok()) {
      status =
          ReadFile(side.array.file, side.array.offset + done, std::min(kPieceBytes, side.bytes() - done), to + done);
    }
    if (!status.ok()) return status;
  }
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
