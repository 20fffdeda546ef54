// States as messages: writes and reads the format that reduced.proto documents. The server and the client library share
// this code.
#ifndef REDUCED_PROTO_CODEC_STATE_CODEC_H_
#define REDUCED_PROTO_CODEC_STATE_CODEC_H_

#include <cstdint>
#include <limits>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/algebra/spec.h"
#include "kernels/algebra/state.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced {

// What a state that comes from elsewhere may have. The defaults are what the types hold.
struct StateLimits {
  std::int64_t max_elements = std::numeric_limits<std::int64_t>::max();
  int max_ops = std::numeric_limits<int>::max();
  std::optional<std::int64_t> positions{};  // indexes are below this; absent: below the count of the state
  // The ops of an ArraysState, one of which is of the distribution: its outputs have none of their own. Else null.
  const ReduceSpec* question = nullptr;
  bool calls = false;  // this is the question of an ArraysState, whose ops may be of the distribution
};

// The state of an array, or of a part of one, and what is asked of it.
struct StateOfSpec {
  ReduceSpec spec;  // without engine, pipeline and block size
  State state;
};

// Writes `from`, the state of a reduction by `spec`, to an empty message. `ops`: whether the message has the ops.
void ToProto(const ReduceSpec& spec, const State& from, v1::State* to, bool ops = true);

// Reads a message. INVALID_ARGUMENT: it is not a state; the message says what is wrong with it.
absl::StatusOr<StateOfSpec> ParseState(const v1::State& from, const StateLimits& limits);

}  // namespace reduced

#endif  // REDUCED_PROTO_CODEC_STATE_CODEC_H_
