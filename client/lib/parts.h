// One large array, sent in parts over several connections at the same time: one connection carries less than a server
// reduces.
#ifndef REDUCED_CLIENT_LIB_PARTS_H_
#define REDUCED_CLIENT_LIB_PARTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/lib/connection.h"
#include "reduced/client.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced::client {

inline constexpr int kMaxConnections = 64;  // and parts: the limit of StreamPart.parts

// From here on an array is faster in parts: tests/bench/bench_stream shows both by size.
inline constexpr std::int64_t kPartsFromBytes = std::int64_t{32} << 20;
// Each part starts at a multiple of this. The server reduces a stream in pieces of this size divided by a power of two.
inline constexpr std::int64_t kPartBlockBytes = std::int64_t{4} << 20;

// Where to cut a stream of so many bytes: the first byte of each part, and the end of the last. There is one part if
// the array is too small for more, else one for each connection at most. No element is cut.
std::vector<std::int64_t> CutInParts(std::int64_t bytes, int connections);

// Reduces `array`, cut at these bytes, each part on a thread and a connection of its own. `request` has no elements.
// `names`: of the ops, if they have parameters.
absl::StatusOr<Reply> ReduceInParts(const Connection& connection, const v1::ReduceRequest& request,
                                    const std::vector<std::string>& names, const ArrayView& array,
                                    const std::vector<std::int64_t>& cuts, const ReduceOptions& options);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_PARTS_H_
