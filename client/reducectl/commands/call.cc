// What the commands that ask a server have in common.
#include <iostream>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "client/reducectl/commands/commands.h"
#include "reduced/client.h"

namespace reduced::client {

ClientOptions ClientOptionsOf(const CommonOptions& common, absl::Duration default_timeout, int connections) {
  return {.server = common.server,
          .timeout = common.timeout.value_or(default_timeout),
          .connections = connections,
          .tls_ca = common.tls_ca,
          .tls_cert = common.tls_cert,
          .tls_key = common.tls_key,
          .tls_server_name = common.tls_server_name,
          .token_file = common.token_file};
}

std::unique_ptr<Client> MakeClient(const CommonOptions& common, absl::Duration default_timeout, int connections) {
  absl::StatusOr<std::unique_ptr<Client>> client =
      Client::Create(ClientOptionsOf(common, default_timeout, connections));
  if (client.ok()) return *std::move(client);
  std::cerr << "reducectl: " << client.status().message() << "\n";
  return nullptr;
}

ExitCode ReportCallError(absl::string_view subject, const absl::Status& status) {
  std::cerr << "reducectl: " << subject << ": " << status.message();
  if (absl::IsUnavailable(status)) {
    if (absl::StrContains(status.message(), "TLS")) {
      std::cerr << "; see --tls-ca, --tls-cert and --tls-server-name\n";
      return kConnection;
    }
    std::cerr << "; start one with `reduced`, or name another with --server\n";
    return kConnection;
  }
  std::cerr << " (" << absl::StatusCodeToString(status.code()) << ")\n";
  return kServer;
}

}  // namespace reduced::client
