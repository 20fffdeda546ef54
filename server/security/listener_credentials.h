// The credentials of a listener, made with gRPC's C API.
#ifndef REDUCED_SERVER_SECURITY_LISTENER_CREDENTIALS_H_
#define REDUCED_SERVER_SECURITY_LISTENER_CREDENTIALS_H_

#include <memory>
#include <string>

#include "grpc/grpc.h"
#include "grpc/grpc_security.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/version_info.h"

namespace reduced::server {

// Credentials from gRPC's C API: the C++ API can't check tokens in plaintext, and does not report certificates that are
// invalid when they are reloaded.
class ListenerCredentials final : public grpc::ServerCredentials {
 public:
  // Takes ownership of `credentials`.
#if GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR < 54
  explicit ListenerCredentials(grpc_server_credentials* credentials) : credentials_(credentials) {}
  ~ListenerCredentials() override { grpc_server_credentials_release(credentials_); }
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  grpc_server_credentials* const credentials_;
#else
  explicit ListenerCredentials(grpc_server_credentials* credentials) : ServerCredentials(credentials) {}
#endif
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SECURITY_LISTENER_CREDENTIALS_H_
