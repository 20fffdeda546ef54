// What a connection needs to be allowed in: TLS and a token.
#ifndef REDUCED_CLIENT_SECURE_H_
#define REDUCED_CLIENT_SECURE_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "reduced/client.h"

namespace reduced::client {

struct Secured {
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  std::string server_name;    // that the server's certificate is for; empty: as in its address
  std::string authorization;  // of every call: the metadata of that name; empty: none
};

// Reads the files. INVALID_ARGUMENT, naming the option and the file: one that can't be read or isn't what it should be,
// options that don't go together, or a token that would be sent where others can read it.
absl::StatusOr<Secured> Secure(const ClientOptions& options);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_SECURE_H_
