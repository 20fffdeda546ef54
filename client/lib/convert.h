// Between the library's plain structs and the messages of reduced.proto.
#ifndef REDUCED_CLIENT_LIB_CONVERT_H_
#define REDUCED_CLIENT_LIB_CONVERT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "reduced/types.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced::client {

// What the array is, without its elements. INVALID_ARGUMENT: an unknown dtype, a bad shape.
absl::Status ToProto(const ArrayView& array, v1::ArraySpec* spec);
absl::Status ToProto(const RemoteArray& array, v1::ReduceRequest* request);  // its source

// What is asked of an array. INVALID_ARGUMENT: no op, an unknown name.
absl::Status ToProto(const std::vector<std::string>& ops, const ReduceOptions& options, v1::ReduceRequest* request);

// INVALID_ARGUMENT: as of the array; a ttl below 0.
absl::Status ToProto(const ArrayView& array, const PutOptions& options, v1::PutArrayHeader* header);

// INVALID_ARGUMENT: none, or one that isn't a state.
absl::Status ToProto(const std::vector<std::string>& states, const MergeOptions& options, v1::MergeRequest* request);

// INVALID_ARGUMENT: an unknown dtype or op.
absl::Status ToProto(const LadderOptions& options, v1::LadderRequest* request);

Reply FromProto(const v1::ReduceResponse& response);
MergeReply FromProto(const v1::MergeResponse& response);
ArrayInfo FromProto(const v1::ArrayInfo& array);
LadderStart FromProto(const v1::LadderStart& start);
LadderStep FromProto(const v1::LadderStep& step);
ServerInfo FromProto(const v1::GetServerInfoResponse& response);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_CONVERT_H_
