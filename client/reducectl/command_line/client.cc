#include "client/reducectl/command_line/client.h"

#include <fstream>
#include <ios>
#include <iostream>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

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

ExitCode ReportError(absl::string_view subject, absl::string_view message, ExitCode code) {
  std::cerr << "reducectl: " << subject << ": " << message << "\n";
  return code;
}

ExitCode ReportCallError(absl::string_view subject, const absl::Status& status) {
  const absl::string_view message = status.message();
  if (!absl::IsUnavailable(status)) {
    const std::string code = absl::StatusCodeToString(status.code());
    return ReportError(subject, absl::StrCat(message, " (", code, ")"), kServer);
  }
  const bool tls = absl::StrContains(message, "TLS");
  return ReportError(subject,
                     absl::StrCat(message, tls ? "; see --tls-ca, --tls-cert and --tls-server-name"
                                               : "; start a server with `reduced`, or name another one with --server"),
                     kConnection);
}

ExitCode WriteFile(const std::string& path, absl::string_view content) {
  std::ofstream file(path, std::ios::binary);
  if (file.write(content.data(), static_cast<std::streamsize>(content.size())).flush()) return kOk;
  return ReportError(path, "can't be written", kOutput);
}

}  // namespace reduced::client
