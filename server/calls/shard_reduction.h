// One reduction of a sharded array from start to end:
//
//   1. The job is cut into one for each shard (shard_jobs.h), which go to the engines of their devices at once: no
//      thread waits for them. The bounds of segments are read before that, on a lane of the CPU engine.
//   2. The first error that is not about the elements ends all of them, by the flag of the job. Of errors about the
//      elements that of the first shard counts, as if one device had met it.
//   3. The last shard to end joins what they found, on its lane: the states of the same outputs are merged in the order
//      of shards; outputs of different shards stand where they belong already.
//   4. Medians and quantiles of merged outputs take further rounds (shard_quantiles.h), each of them as from 1 on.
#ifndef REDUCED_SERVER_CALLS_SHARD_REDUCTION_H_
#define REDUCED_SERVER_CALLS_SHARD_REDUCTION_H_

#include <vector>

#include "kernels/engine/engine.h"
#include "server/calls/shard_jobs.h"
#include "server/sources/sharded_array.h"
#include "server/wire/encode.h"

namespace reduced::server {

struct ShardedJob {
  Job job;                              // about the whole array; its `array` is unused. CheckShardable is OK
  const ShardedArray* array = nullptr;  // at least two of its shards are not empty
  Engine* host = nullptr;               // on a lane of which the bounds of segments are read
  std::vector<ShardedSide> sides{};
  bool results = true;  // whether answers are wanted, or the states only
  CallPayers payers{};  // of host memory for the states of shards
};

// As Engine::Reduce of one engine that has the whole array; answers have the same bits, except sums of floats in
// Precision::kF64 and products of floats, which are rounded in another order, and payloads of NaNs that compare answers
// with, which states lack. Sets the job's flag of cancellation if a
// shard fails. `done` runs on a lane of any of the engines, or before this returns. Errors of a device name it.
// ABORTED: the keys changed meanwhile. The answer's timing is that of the slowest shard, and its kernel_us includes
// what joining took.
void ReduceShards(ShardedJob sharded, Engine::Done done);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_SHARD_REDUCTION_H_
