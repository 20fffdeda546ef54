// Merging states without a server: the answers about a whole array from what Reply.state says of its parts.
// Client::Merge asks a server for the same.
#ifndef REDUCED_MERGE_H_
#define REDUCED_MERGE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "reduced/types.h"

namespace reduced::client {

struct MergeStatesOptions {
  bool return_state = false;  // the reply has MergeReply.state
  // What error messages call the states, in order, for example the files that they come from; empty: `states[0]`,
  // `states[1]`... If not empty, as many as there are states.
  std::vector<std::string> names{};
};

// Merges the states of consecutive parts, in the order of the array: see Reply.state. Computes on the calling thread,
// about a microsecond a state; thread-safe.
//
// INVALID_ARGUMENT: no state, one that is malformed, or one whose dtype, ops, precision, policies or ddof are not those
// of the first; the message names it. INVALID_ARGUMENT and OUT_OF_RANGE too as of a Reduce of the whole array: min,
// max, argmin or argmax of an empty one, an integer result that overflows.
REDUCED_EXPORT absl::StatusOr<MergeReply> MergeStates(const std::vector<std::string>& states,
                                                      const MergeStatesOptions& options = {});

}  // namespace reduced::client

#endif  // REDUCED_MERGE_H_
