// How a job about a sharded array is cut into one job for each shard.
#ifndef REDUCED_SERVER_CALLS_SHARD_JOBS_H_
#define REDUCED_SERVER_CALLS_SHARD_JOBS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/engine/engine.h"
#include "server/sources/sharded_array.h"

namespace reduced::server {

// An array beside the one that is reduced which is sharded, too.
struct ShardedSide {
  std::string field{};  // as NamedSide::field
  const ShardedArray* array = nullptr;
};

// Whether shards have parts of the same outputs, whose states are merged. Else each shard has outputs of its own: the
// first dimension is kept.
bool MergesOutputs(const Job& job);

// OK, or what a job asks that has no answer from the parts of a sharded array, and what has: UNIMPLEMENTED;
// FAILED_PRECONDITION: bounds of segments that are not in host memory.
absl::Status CheckShardable(const Job& job, const ShardedArray& array, const std::vector<ShardedSide>& sides);

// Consecutive segments, among them all that have rows in a shard. At least one, unless there are no segments at all.
struct ShardSegments {
  std::int64_t first = 0;               // the number of the first of them
  std::vector<std::int64_t> offsets{};  // from the shard's first row, one more than segments
};
// `bounds`: the offsets of all segments, ascending.
ShardSegments CutSegments(const std::vector<std::int64_t>& bounds, const ArrayShard& shard);

// The job about one shard, which is not empty, but for `place`, `states`, `errors` and the bounds of segments, which
// are those of the whole. FAILED_PRECONDITION: a sharded array beside it has other elements on that device than those
// that go with the shard's.
absl::StatusOr<Job> CutJob(const Job& whole, const ShardedArray& array, const ArrayShard& shard,
                           const std::vector<ShardedSide>& sides);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_SHARD_JOBS_H_
