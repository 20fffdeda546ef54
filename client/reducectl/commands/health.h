// What `health` and `doctor` have in common.
#ifndef REDUCED_CLIENT_REDUCECTL_COMMANDS_HEALTH_H_
#define REDUCED_CLIENT_REDUCECTL_COMMANDS_HEALTH_H_

#include <string>

#include "absl/time/time.h"
#include "reduced/types.h"

namespace reduced::client {

// Of one call, where --timeout says nothing: a server that takes longer to say how it is isn't well.
inline constexpr absl::Duration kHealthTimeout = absl::Seconds(2);

std::string TextOf(Health health);  // "SERVING", as grpc.health.v1 spells it

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_COMMANDS_HEALTH_H_
