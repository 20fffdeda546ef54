#include "server/calls/shard_quantiles.h"

#include <numeric>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/algebra/dtype.h"
#include "kernels/system/status_macros.h"
#include "proto/codec/arrays_state.h"
#include "proto/codec/entries_codec.h"
#include "proto/codec/quantile_rounds.h"

namespace reduced::server {

ShardQuantiles::ShardQuantiles(const ReduceSpec& spec, std::int64_t positions) : positions_(positions), spec_(spec) {
  spec_.ops.clear();
  std::size_t entries = 0;
  for (std::size_t op = 0; op < spec.ops.size(); ++op) {
    const OpCall& call = spec.ops[op];
    if (HasAccumulator(call)) continue;
    if (IsQuantile(call.op) && !HasWholeKeys(call, spec.dtype)) {
      spec_.ops.push_back(call);
      numbers_.push_back(op);
      entries_.push_back(entries);
    }
    ++entries;
  }
}

v1::ArraysState ShardQuantiles::ToMessage(const ReduceSpec& spec, const std::vector<std::size_t>& entries,
                                          const std::vector<State>& states) const {
  v1::ArraysState message;
  ToProto(spec, positions_, {}, &message);
  for (const State& state : states) {
    State some;
    some.partial.count = state.partial.count;
    for (const std::size_t number : entries) some.entries.push_back(state.entries[number]);
    AddOutput(spec, some, &message);
  }
  return message;
}

absl::Status ShardQuantiles::Start(const std::vector<State>& states) {
  whole_ = ToMessage(spec_, entries_, states);
  ASSIGN_OR_RETURN(calls_, StartRounds(&whole_));
  return absl::OkStatus();
}

absl::Status ShardQuantiles::Next(const std::vector<State>& states) {
  ReduceSpec asked = spec_;
  asked.ops = calls_;
  std::vector<std::size_t> all(calls_.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  ASSIGN_OR_RETURN(calls_, NextRound(ToMessage(asked, all, states), &whole_));
  return absl::OkStatus();
}

absl::Status ShardQuantiles::Finish(std::vector<State>* states, ReduceSpec* spec) const {
  for (std::size_t i = 0; i < numbers_.size(); ++i) {
    OpParameters parameters = spec_.ops[i].given();
    parameters.counts = {.bits = 8 * RowOf(spec_.dtype).bytes};
    const OpCall& exact = spec->ops[numbers_[i]] = OpCall(spec_.ops[i].op, std::move(parameters));
    for (int output = 0; output < whole_.outputs_size(); ++output) {
      State& state = (*states)[static_cast<std::size_t>(output)];
      ReduceSpec of_output = spec_;
      of_output.count = state.partial.count;
      Entries entries;
      RETURN_IF_ERROR(
          ParseEntries(whole_.outputs(output).entries(static_cast<int>(i)), of_output, exact, positions_, &entries));
      state.entries[entries_[i]] = std::move(entries);
    }
  }
  return absl::OkStatus();
}

}  // namespace reduced::server
