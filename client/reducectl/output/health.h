// The health of a server as text.
#ifndef REDUCED_CLIENT_REDUCECTL_OUTPUT_HEALTH_H_
#define REDUCED_CLIENT_REDUCECTL_OUTPUT_HEALTH_H_

#include <string>

#include "absl/time/time.h"
#include "reduced/server_info.h"

namespace reduced::client {

// The timeout of one call of `health` and `doctor`, unless --timeout is given. It is short: a server that doesn't
// report its health in time isn't healthy.
inline constexpr absl::Duration kHealthTimeout = absl::Seconds(2);

std::string TextOf(Health health);  // "SERVING", as grpc.health.v1 spells it

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_OUTPUT_HEALTH_H_
