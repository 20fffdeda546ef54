// Reduces the outputs of a partition by segments, by keys or under a mask, each to an answer for each op.
//
// An output is folded as an array of its elements would be, in the same tiles, blocks and tasks, so that its answers
// have the same bits. Sums of floats are exact in either precision, unless states are wanted. Elements that are no
// neighbours, or not all there, are gathered tile by tile (output_elements.h). Sums and extrema of short outputs are
// found side by side (quick_sums.h, quick_extrema.h), and those by key without sorting the rows, where that can be
// (key_tables.h).
#ifndef REDUCED_KERNELS_CPU_GROUPS_H_
#define REDUCED_KERNELS_CPU_GROUPS_H_

#include <cstddef>

#include "absl/status/status.h"
#include "kernels/engine/array_budget.h"
#include "kernels/engine/engine.h"
#include "oneapi/tbb/task_arena.h"

namespace reduced {

// Reduces the array at `data`, on the threads of the arena. `scratch`: counts what it needs memory for. Errors: those
// of Engine::Reduce, and those of Finalize for the first output that has one, whose name the message begins with,
// unless job.errors gets them.
absl::Status ReduceGroups(const Job& job, const std::byte* data, ArrayBudget& scratch, tbb::task_arena& arena);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_GROUPS_H_
