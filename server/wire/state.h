// What is known of an array as message State, and back: see reduced.proto for the format.
#ifndef REDUCED_SERVER_WIRE_STATE_H_
#define REDUCED_SERVER_WIRE_STATE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/algebra/spec.h"
#include "kernels/algebra/state.h"
#include "reduced/v1/reduced.pb.h"
#include "server/config/options.h"

namespace reduced::server {

// An array, or a part of one, and what is asked of it.
struct Known {
  ReduceSpec spec;  // but for engine, pipeline and block size
  State state;
};

void ToProto(const ReduceSpec& spec, const State& from, v1::State* state);

// INVALID_ARGUMENT saying what is wrong with it.
absl::StatusOr<Known> ParseState(const v1::State& state, const RequestLimits& limits);

// Answers a Merge. INVALID_ARGUMENT, OUT_OF_RANGE: see reduced.proto.
absl::Status MergeStates(const v1::MergeRequest& request, const RequestLimits& limits, v1::MergeResponse* response);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_WIRE_STATE_H_
