// Exact medians and quantiles of outputs that several devices have parts of: in rounds (proto/codec/quantile_rounds.h),
// each of which asks all devices for more bits of fewer elements.
#ifndef REDUCED_SERVER_CALLS_SHARD_QUANTILES_H_
#define REDUCED_SERVER_CALLS_SHARD_QUANTILES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/algebra/spec.h"
#include "kernels/algebra/state.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced::server {

// Not thread-safe.
class ShardQuantiles {
 public:
  // `spec`: about the whole array; `positions`: as ArraysState.positions.
  ShardQuantiles(const ReduceSpec& spec, std::int64_t positions);

  // Whether states lack bits of any quantile.
  bool needed() const { return !numbers_.empty(); }

  // After the first round, whose merged states are these of all of spec's ops, and then after each further round, whose
  // states are of calls() only. ABORTED: as NextRound.
  absl::Status Start(const std::vector<State>& states);
  absl::Status Next(const std::vector<State>& states);

  // What the next round asks; none: all quantiles are known.
  const std::vector<OpCall>& calls() const { return calls_; }

  // Last: makes the quantiles of the first round's states exact, and the ops of `spec` those of such states.
  absl::Status Finish(std::vector<State>* states, ReduceSpec* spec) const;

 private:
  // The state of all outputs as a message: of ops `spec`, which are the `entries` of the distribution in `states`.
  v1::ArraysState ToMessage(const ReduceSpec& spec, const std::vector<std::size_t>& entries,
                            const std::vector<State>& states) const;

  const std::int64_t positions_;
  ReduceSpec spec_;                   // its ops: the quantiles that lack bits
  std::vector<std::size_t> numbers_;  // of these among all ops,
  std::vector<std::size_t> entries_;  // and of their entries in the states of all ops
  v1::ArraysState whole_;
  std::vector<OpCall> calls_;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_SHARD_QUANTILES_H_
