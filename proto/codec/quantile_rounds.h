// Exact quantiles of an array in parts, which are on several machines and can be read again: in rounds, each of which
// asks every part for more bits of fewer elements (KeyCounts of reduced.proto).
//
//   the states of the parts, merged ----> StartRounds ----> calls ----> states of these calls, merged ----+
//                                               ^                                                         |
//                                               +------------------- NextRound <--------------------------+
//
// Once there are no calls any more, Merge answers the state.
#ifndef REDUCED_PROTO_CODEC_QUANTILE_ROUNDS_H_
#define REDUCED_PROTO_CODEC_QUANTILE_ROUNDS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/algebra/op_call.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced {

// What the parts are to be asked after the first round, without results; none: `whole` answers. `whole`: the state of
// all parts together, in which quantiles that are known become exact. INVALID_ARGUMENT: it is not a state.
absl::StatusOr<std::vector<OpCall>> StartRounds(v1::ArraysState* whole);

// The same after another round. `answer`: the state of all parts together, of these calls. ABORTED: the elements, or
// their outputs, are not those of the rounds before.
absl::StatusOr<std::vector<OpCall>> NextRound(const v1::ArraysState& answer, v1::ArraysState* whole);

// Makes a state answer with a bound of each quantile whose bits it lacks: the least that it can be, or the largest.
// Those of floats that are neither subnormal nor near 0 are within 2^-8 of each other. INVALID_ARGUMENT: as
// StartRounds.
absl::Status ToBound(bool largest, v1::ArraysState* state);

}  // namespace reduced

#endif  // REDUCED_PROTO_CODEC_QUANTILE_ROUNDS_H_
