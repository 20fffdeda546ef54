#include "kernels/cpu/for_ranges.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "oneapi/tbb/blocked_range.h"
#include "oneapi/tbb/parallel_for.h"
#include "oneapi/tbb/partitioner.h"
#include "oneapi/tbb/task_arena.h"
#include "oneapi/tbb/task_group.h"

namespace reduced {

void ForRanges(std::int64_t count, std::int64_t grain, tbb::task_arena& arena,
               absl::FunctionRef<bool(std::int64_t, std::int64_t)> run) {
  const tbb::blocked_range<std::int64_t> all(0, count, static_cast<std::size_t>(std::max<std::int64_t>(1, grain)));
  tbb::task_group_context tasks;
  const auto each = [&](const tbb::blocked_range<std::int64_t>& some) {
    if (!run(some.begin(), some.end())) tasks.cancel_group_execution();
  };
  arena.execute([&] { tbb::parallel_for(all, each, tbb::simple_partitioner(), tasks); });
}

absl::Status ForAll(std::int64_t count, tbb::task_arena& arena, absl::FunctionRef<absl::Status(std::int64_t)> run) {
  absl::Mutex mutex;
  absl::Status why;
  ForRanges(count, 1, arena, [&](std::int64_t i, std::int64_t /*i + 1*/) {
    const absl::Status status = run(i);
    if (status.ok()) return true;
    const absl::MutexLock lock(&mutex);
    why.Update(status);
    return false;
  });
  return why;
}

absl::Status ForPieces(std::int64_t rows, tbb::task_arena& arena, absl::FunctionRef<absl::Status()> why_stop,
                       absl::FunctionRef<void(std::int64_t, std::int64_t)> piece) {
  return ForAll((rows + kPieceRows - 1) / kPieceRows, arena, [&](std::int64_t i) {
    absl::Status status = why_stop();
    if (status.ok()) piece(i * kPieceRows, std::min(rows, (i + 1) * kPieceRows));
    return status;
  });
}

}  // namespace reduced
