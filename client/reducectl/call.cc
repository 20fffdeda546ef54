// What the commands that ask a server have in common.
#include <iostream>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/reducectl/commands.h"
#include "reduced/client.h"

namespace reduced::client {

std::unique_ptr<Client> MakeClient(const CommonOptions& common, absl::Duration default_timeout, int connections) {
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Create(
      {.server = common.server, .timeout = common.timeout.value_or(default_timeout), .connections = connections});
  if (client.ok()) return *std::move(client);
  std::cerr << "reducectl: " << client.status().message() << "\n";
  return nullptr;
}

ExitCode ReportCallError(absl::string_view subject, const absl::Status& status) {
  std::cerr << "reducectl: " << subject << ": " << status.message();
  if (absl::IsUnavailable(status)) {
    std::cerr << "; start one with `reduced`, or name another with --server\n";
    return kConnection;
  }
  std::cerr << " (" << absl::StatusCodeToString(status.code()) << ")\n";
  return kServer;
}

}  // namespace reduced::client
