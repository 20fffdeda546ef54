// Whether the fields of a state agree with each other. Each field by itself is checked where it is read
// (state_codec.cc).
#ifndef REDUCED_PROTO_CODEC_STATE_CHECK_H_
#define REDUCED_PROTO_CODEC_STATE_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/algebra/spec.h"
#include "kernels/algebra/state.h"

namespace reduced {

// INVALID_ARGUMENT: no array has this state, for instance because its sum of squares is smaller than its sum allows. A
// state that passes has answers in the ranges that their ops promise: no negative variance, no index without a value.
absl::Status CheckState(const ReduceSpec& spec, const State& state);

// INVALID_ARGUMENT: the value is not from 0 to `most`.
absl::Status CheckCount(absl::string_view field, std::int64_t value, std::int64_t most);

}  // namespace reduced

#endif  // REDUCED_PROTO_CODEC_STATE_CHECK_H_
