// Ranges of outputs on the threads of an arena.
#ifndef REDUCED_KERNELS_CPU_FOR_RANGES_H_
#define REDUCED_KERNELS_CPU_FOR_RANGES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "oneapi/tbb/blocked_range.h"
#include "oneapi/tbb/parallel_for.h"
#include "oneapi/tbb/task_arena.h"

namespace reduced {

// Calls `run` with ranges of [0, count), of at least `grain`, on the threads of the arena, until one of them returns
// false: of millions of ranges, the others do not even begin.
template <class Run>
void ForRanges(std::int64_t count, std::int64_t grain, tbb::task_arena& arena, const Run& run) {
  const tbb::blocked_range<std::int64_t> all(0, count, static_cast<std::size_t>(std::max<std::int64_t>(1, grain)));
  tbb::task_group_context tasks;
  const auto each = [&](const tbb::blocked_range<std::int64_t>& some) {
    if (!run(some.begin(), some.end())) tasks.cancel_group_execution();
  };
  arena.execute([&] { tbb::parallel_for(all, each, tbb::simple_partitioner(), tasks); });
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_FOR_RANGES_H_
