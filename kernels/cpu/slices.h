// Reduces the outputs of a partition that is uniform (along axes, without a mask), each to an answer for each op.
//
// An output is folded as an array of its elements would be: in the same tiles, blocks and tasks. So its answers have
// the same bits, those of sums in f64 too; but of outputs of up to 1 MiB, and of columns, sums of floats are exact in
// either precision, unless states are wanted: they are answered side by side (quick_answers.h). Elements that are no
// neighbours are gathered tile by tile. Where neighbouring outputs have neighbouring elements (columns), a group of
// them is gathered in one go, which transposes it.
#ifndef REDUCED_KERNELS_CPU_SLICES_H_
#define REDUCED_KERNELS_CPU_SLICES_H_

#include <cstddef>

#include "absl/status/status.h"
#include "kernels/engine/engine.h"
#include "oneapi/tbb/task_arena.h"

namespace reduced {

// Reduces the array at `data`, on the threads of the arena; on the calling thread if `arena` is null. Errors: those of
// job.place; as WhyStop; and those of Finalize for the first output that has one, whose name the message begins with,
// unless job.errors gets them.
absl::Status ReduceSlices(const Job& job, const std::byte* data, tbb::task_arena* arena);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_SLICES_H_
