// Answers a Merge from its encoded message.
#ifndef REDUCED_SERVER_WIRE_MERGE_H_
#define REDUCED_SERVER_WIRE_MERGE_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "grpcpp/support/byte_buffer.h"
#include "proto/codec/state_codec.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced::server {

// Fills in an empty response from an encoded MergeRequest. The states are decoded and merged one by one, because as
// objects millions of empty ones, two bytes each, would take a hundred times the memory of their message. `why_stop` is
// called from time to time, within a state of arrays, too; its error ends the merge. `hold` is called before memory is
// taken, and after it is freed: with how many bytes the merge and its response take from then on, the message not
// counted. INVALID_ARGUMENT: the message is not a MergeRequest. Also the errors of `hold`, `why_stop`, DecodedBytes and
// MergeStates (proto/codec/merge.h).
absl::Status MergeEncoded(grpc::ByteBuffer message, const StateLimits& limits,
                          absl::FunctionRef<absl::Status()> why_stop,
                          absl::FunctionRef<absl::Status(std::int64_t bytes)> hold, v1::MergeResponse* response);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_WIRE_MERGE_H_
