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
#include "kernels/cpu/grouping.h"
#include "kernels/cpu/output_elements.h"
#include "kernels/engine/engine.h"

namespace reduced {

// Reduces the array at `data`, whose partition is loaded, on the threads of the context. It may sort the loaded rows,
// of all groups or of some. Errors: those of Engine::Reduce, and those of Finalize for the first output that has one,
// whose name the message begins with, unless job.errors gets them.
absl::Status ReduceGroups(const Job& job, const std::byte* data, const GroupingContext& context,
                          LoadedPartition* loaded);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_GROUPS_H_
