// Merging states that are messages. It needs no server: the Merge RPC and the client library both call this.
#ifndef REDUCED_PROTO_CODEC_MERGE_H_
#define REDUCED_PROTO_CODEC_MERGE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/codec/state_codec.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced {

// Answers a Merge: fills an empty `response`. `names`: of the states in error messages, in order; empty: `states[0]`,
// `states[1]`... INVALID_ARGUMENT, OUT_OF_RANGE: see reduced.proto.
absl::Status MergeStates(const v1::MergeRequest& request, const StateLimits& limits,
                         const std::vector<std::string>& names, v1::MergeResponse* response);

}  // namespace reduced

#endif  // REDUCED_PROTO_CODEC_MERGE_H_
