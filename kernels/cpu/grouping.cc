#include "kernels/cpu/grouping.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cpu/counting_sort.h"
#include "kernels/cpu/for_ranges.h"

namespace reduced {

absl::StatusOr<Grouping> GroupBySegments(const Segments& segments, const std::byte* bounds, std::int64_t rows,
                                         const GroupingContext& context) {
  Grouping grouping{.groups = segments.count()};
  const absl::StatusOr<std::int64_t*> offsets =
      Allocate<std::int64_t>(grouping.groups + 1, context.budget, &grouping.memory);
  if (!offsets.ok()) return offsets.status();
  if (absl::Status status = CopyBounds(segments, bounds, rows, context.why_stop, *offsets); !status.ok()) return status;
  grouping.bounds = *offsets;
  return grouping;
}

// Counting sort of the rows by their ids.
absl::Status SortRows(std::int64_t rows, const GroupingContext& context, Grouping* grouping,
                      const std::vector<std::int64_t>* only) {
  if (grouping->all_sorted) return absl::OkStatus();
  grouping->sorted.clear();
  if (grouping->ids == nullptr) {  // those that are sorted by must not change
    const absl::StatusOr<std::uint32_t*> ids =
        Allocate<std::uint32_t>(std::max<std::int64_t>(rows, 1), context.budget, &grouping->memory);
    if (!ids.ok()) return ids.status();
    absl::Status status = ForPieces(rows, context.arena, context.why_stop, [&](std::int64_t begin, std::int64_t end) {
      grouping->in_place->Ids(begin, end, *ids + begin);
    });
    status.Update(grouping->in_place->Check());
    if (!status.ok()) return status;
    grouping->ids = *ids;
  }
  const std::int64_t groups = grouping->groups;
  std::vector<std::unique_ptr<ArrayMemory>> scratch;
  std::uint8_t* wanted = nullptr;  // of each group; null: all are
  if (only != nullptr) {
    const absl::StatusOr<std::uint8_t*> room = Allocate<std::uint8_t>(groups, context.budget, &scratch);
    if (!room.ok()) return room.status();
    wanted = *room;
    for (const std::int64_t group : *only) wanted[group] = 1;
  }
  const absl::StatusOr<std::int64_t*> bounds = Allocate<std::int64_t>(groups + 1, context.budget, &grouping->sorted);
  if (!bounds.ok()) return bounds.status();
  const absl::StatusOr<std::uint32_t*> sorted =
      Allocate<std::uint32_t>(std::max<std::int64_t>(rows, 1), context.budget, &grouping->sorted);
  if (!sorted.ok()) return sorted.status();
  grouping->bounds = *bounds;
  grouping->rows = *sorted;
  const auto bucket_of = [&](std::int64_t row) {
    const std::uint32_t id = grouping->ids[row];
    return id == kNoGroup || wanted == nullptr || wanted[id] != 0 ? id : kNoGroup;
  };
  const auto move = [&](std::int64_t row, std::uint32_t place) { (*sorted)[place] = static_cast<std::uint32_t>(row); };
  const absl::Status status = CountingSort(rows, groups, context, bucket_of, move, *bounds);
  grouping->all_sorted = status.ok() && only == nullptr;
  return status;
}

}  // namespace reduced
