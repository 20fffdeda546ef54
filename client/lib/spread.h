// One large array over several equal servers: each part is an array of its own, of which a server answers with the
// state, and the states are merged here. With one server, or for parts of one upload: see parts.h.
#ifndef REDUCED_CLIENT_LIB_SPREAD_H_
#define REDUCED_CLIENT_LIB_SPREAD_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/lib/connection.h"
#include "reduced/client.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced::client {

// How many parts of one array are sent at a time: one for each server whose address is known, and at least as many as
// the connections of ClientOptions.
int PartsAtOnce(const Connection& connection);

// Where to cut an array of so many bytes: the first byte of each part, and the end of the last. There is one part if
// the array is too small for more, else several for each that is sent at a time, so that a fast server gets more of
// them. No element is cut.
std::vector<std::int64_t> CutForServers(std::int64_t bytes, int at_once);

// Reduces `array`, cut at these bytes, before `deadline`. `request` has no elements. A part whose server is UNAVAILABLE
// is sent again, to another one if there is one, up to ClientOptions.max_attempts times.
absl::StatusOr<Reply> ReduceSpread(const Connection& connection, const v1::ReduceRequest& request,
                                   const ArrayView& array, const std::vector<std::int64_t>& cuts,
                                   const ReduceOptions& options, absl::Time deadline);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_SPREAD_H_
