// Merging states: Client::Merge by a server, MergeStates without one.
#include "reduced/merge.h"

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/lib/answer.h"
#include "client/lib/convert.h"
#include "client/lib/retry.h"
#include "proto/codec/merge.h"
#include "reduced/client.h"
#include "reduced/v1/reduced.grpc.pb.h"

namespace reduced::client {
namespace {

// `names`: of the states in error messages; empty: states[0], states[1], ...
absl::Status ToProto(const std::vector<std::string>& states, const std::vector<std::string>& names, bool return_state,
                     v1::MergeRequest* request) {
  if (states.empty()) return absl::InvalidArgumentError("states: got none; allowed: at least 1");
  for (std::size_t i = 0; i < states.size(); ++i) {
    v1::State* const state = request->add_states();
    if (state->ParseFromString(states[i]) && state->version() != 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        names.empty() ? absl::StrCat("states[", i, "]") : names[i], ": got ", states[i].size(),
        " bytes that aren't a state; allowed: states of replies, as return_state or reducectl --state give them"));
  }
  request->set_return_state(return_state);
  return absl::OkStatus();
}

MergeReply FromProto(const v1::MergeResponse& from) {
  MergeReply to{.results = client::FromProto(from.results()), .count = from.count()};
  if (from.has_state()) to.state = from.state().SerializeAsString();
  return to;
}

}  // namespace

absl::StatusOr<MergeReply> Client::Merge(const std::vector<std::string>& states, const MergeOptions& options) {
  v1::MergeRequest request;
  absl::Status status = ToProto(states, /*names=*/{}, options.return_state, &request);
  if (!status.ok()) return status;
  v1::MergeResponse response;
  status = CallAgainAndWait(*connection_, connection_->parts.front(), options.timeout,
                            &v1::Reduction::Stub::PrepareAsyncMerge, request, &response);
  if (!status.ok()) return status;
  status = WrongAnswer(connection_->options.server, CheckAnswer(Asked(request), response));
  if (!status.ok()) return status;
  return FromProto(response);
}

absl::StatusOr<MergeReply> MergeStates(const std::vector<std::string>& states, const MergeStatesOptions& options) {
  if (!options.names.empty() && options.names.size() != states.size()) {
    return absl::InvalidArgumentError(absl::StrCat("names: got ", options.names.size(), "; allowed: none, or ",
                                                   states.size(), ", one for each state"));
  }
  v1::MergeRequest request;
  absl::Status status = ToProto(states, options.names, options.return_state, &request);
  v1::MergeResponse response;
  if (status.ok()) status = reduced::MergeStates(request, StateLimits(), options.names, &response, options.results);
  if (!status.ok()) return status;
  return FromProto(response);
}

}  // namespace reduced::client
