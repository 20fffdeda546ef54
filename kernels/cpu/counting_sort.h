// What grouping rows takes: memory of the budget, and a counting sort.
#ifndef REDUCED_KERNELS_CPU_COUNTING_SORT_H_
#define REDUCED_KERNELS_CPU_COUNTING_SORT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cpu/arrays.h"
#include "kernels/cpu/for_ranges.h"
#include "kernels/cpu/grouping.h"
#include "kernels/engine/array.h"
#include "kernels/engine/array_budget.h"
#include "kernels/folds/elements.h"

namespace reduced {

// Memory for `count` items, all bytes of which are 0.
template <class T>
absl::StatusOr<T*> Allocate(std::int64_t count, ArrayBudget& budget,
                            std::vector<std::unique_ptr<ArrayMemory>>* memory) {
  absl::StatusOr<std::unique_ptr<ArrayMemory>> room =
      AllocateCpuArray(count * static_cast<std::int64_t>(sizeof(T)), budget);
  if (!room.ok()) return room.status();
  memory->push_back(*std::move(room));
  return static_cast<T*>(const_cast<void*>(memory->back()->array().data));
}

// A stable counting sort: calls move(row, place) with each row that is in a bucket, bucket_of(row) < buckets, and not
// kNoGroup. It is asked twice and answers the same. Each stretch of rows has counts of its own, which then become the
// places of its rows: in the order of the buckets, and among those of one bucket in the order of the stretches.
// `bounds`: buckets + 1, of the places of each; null: not wanted.
template <class BucketOf, class Move>
absl::Status CountingSort(std::int64_t rows, std::int64_t buckets, const GroupingContext& context,
                          const BucketOf& bucket_of, const Move& move, std::int64_t* bounds) {
  const std::int64_t threads = context.arena.max_concurrency();
  const std::int64_t stretches = std::max<std::int64_t>(
      1, std::min({2 * threads, rows / (4 * kPieceRows), rows / std::max<std::int64_t>(buckets, 1)}));
  const std::int64_t stretch = (rows + stretches - 1) / stretches;
  std::vector<std::unique_ptr<ArrayMemory>> scratch;
  const absl::StatusOr<std::uint32_t*> counts =
      Allocate<std::uint32_t>(stretches * buckets + 1, context.budget, &scratch);
  if (!counts.ok()) return counts.status();
  // Runs `each(count of the row's bucket in the stretch, row)` for all rows.
  const auto walk = [&](const auto& each) {
    return ForAll(stretches, context.arena, [&](std::int64_t s) {
      std::uint32_t* const own = *counts + s * buckets;
      const std::int64_t end = std::min(rows, (s + 1) * stretch);
      for (std::int64_t row = s * stretch; row < end; ++row) {
        if (row % kPieceRows == 0) {
          if (absl::Status why = context.why_stop(); !why.ok()) return why;
        }
        const std::uint32_t bucket = bucket_of(row);
        if (bucket != kNoGroup) each(own + bucket, row);
      }
      return absl::OkStatus();
    });
  };
  absl::Status status = walk([](std::uint32_t* count, std::int64_t /*row*/) { ++*count; });
  if (!status.ok()) return status;
  std::int64_t place = 0;
  for (std::int64_t b = 0; b < buckets; ++b) {
    if (b % kPieceRows == 0) status = context.why_stop();
    if (!status.ok()) return status;
    if (bounds != nullptr) bounds[b] = place;
    for (std::int64_t s = 0; s < stretches; ++s) {
      std::uint32_t& count = (*counts)[s * buckets + b];
      place += std::exchange(count, static_cast<std::uint32_t>(place));
    }
  }
  if (bounds != nullptr) bounds[buckets] = place;
  return walk([&](std::uint32_t* at, std::int64_t row) { move(row, (*at)++); });
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_COUNTING_SORT_H_
