// The address of a server, or of several equal ones, as users write it and as gRPC takes it.
#ifndef REDUCED_CLIENT_LIB_TARGET_H_
#define REDUCED_CLIENT_LIB_TARGET_H_

#include <string>

#include "absl/status/statusor.h"

namespace reduced::client {

struct Target {
  std::string uri{};         // for gRPC
  bool unix_socket = false;  // of either kind
  bool loopback = false;     // nothing that is sent there leaves this machine
  bool several = false;      // it may stand for more than one server: a DNS name or a list of addresses
  int addresses = 0;         // of a list; 0: only gRPC will know
};

// Parses ClientOptions.server. Looks up the names of a list, which takes as long as the system's resolver, but not a
// single name: gRPC does that, again and again. INVALID_ARGUMENT: this isn't an address, or a name of a list has none.
absl::StatusOr<Target> ParseTarget(const std::string& server);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_TARGET_H_
