// Loops on the threads of an arena. What they call is compiled once for each loop, and oneTBB's part of them once in
// all.
#ifndef REDUCED_KERNELS_CPU_FOR_RANGES_H_
#define REDUCED_KERNELS_CPU_FOR_RANGES_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "oneapi/tbb/task_arena.h"

namespace reduced {

inline constexpr std::int64_t kPieceRows = 1 << 16;  // rows between two looks at whether to stop

// Calls `run` with ranges of [0, count), of at least `grain`, until one of them returns false: of millions of ranges,
// the others do not even begin.
void ForRanges(std::int64_t count, std::int64_t grain, tbb::task_arena& arena,
               absl::FunctionRef<bool(std::int64_t begin, std::int64_t end)> run);

// Calls run(i) for all i below `count`. Returns an error that one of them returned; then some may not have run.
absl::Status ForAll(std::int64_t count, tbb::task_arena& arena, absl::FunctionRef<absl::Status(std::int64_t i)> run);

// Calls `piece` with ranges of [0, rows), of at most kPieceRows, before each of which `why_stop` is asked; an error of
// it ends the loop and is returned.
absl::Status ForPieces(std::int64_t rows, tbb::task_arena& arena, absl::FunctionRef<absl::Status()> why_stop,
                       absl::FunctionRef<void(std::int64_t begin, std::int64_t end)> piece);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_FOR_RANGES_H_
