#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/lib/convert.h"
#include "proto/codec/merge.h"
#include "reduced/merge.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced::client {

absl::StatusOr<MergeReply> MergeStates(const std::vector<std::string>& states, const MergeStatesOptions& options) {
  if (!options.names.empty() && options.names.size() != states.size()) {
    return absl::InvalidArgumentError(absl::StrCat("names: got ", options.names.size(), " of them; allowed: none or ",
                                                   states.size(), ", one for each state"));
  }
  v1::MergeRequest request;
  for (std::size_t i = 0; i < states.size(); ++i) {
    v1::State* const state = request.add_states();
    if (state->ParseFromString(states[i]) && state->version() != 0) continue;
    const std::string name = options.names.empty() ? absl::StrCat("states[", i, "]") : options.names[i];
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": got ", states[i].size(), " bytes that aren't a state; allowed: what Reply.state has"));
  }
  request.set_return_state(options.return_state);
  v1::MergeResponse response;
  const absl::Status status = reduced::MergeStates(request, StateLimits(), options.names, &response);
  if (!status.ok()) return status;
  return FromProto(response);
}

}  // namespace reduced::client
