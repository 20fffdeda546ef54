#include "client/reducectl/command_line/client.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ios>
#include <iostream>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/reducectl/output/printable.h"

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
  if (common.server == kLocal) {
    std::cerr << "reducectl: server: got \"local:\"; allowed: the address of a server; local: is for "
              << REDUCECTL_LOCAL_COMMANDS << "\n";
    return nullptr;
  }
  absl::StatusOr<std::unique_ptr<Client>> client =
      Client::Create(ClientOptionsOf(common, default_timeout, connections));
  if (client.ok()) return *std::move(client);
  std::cerr << "reducectl: " << Printable(client.status().message()) << "\n";
  return nullptr;
}

ExitCode ReportError(absl::string_view subject, absl::string_view message, ExitCode code) {
  std::cerr << "reducectl: " << Printable(subject) << ": " << Printable(message) << "\n";
  return code;
}

namespace {

// What the user can do about a failed call, in words that follow its message.
std::string AdviceOn(const absl::Status& status) {
  if (absl::IsUnauthenticated(status)) return "; see --token-file";
  if (!absl::IsUnavailable(status)) return "";
  if (absl::StrContains(status.message(), "speaks no TLS")) {
    return "; leave out --tls-ca, or name another server with --server";
  }
  if (absl::StrContains(status.message(), "TLS")) return "; see --tls-ca, --tls-cert and --tls-server-name";
  static bool advised = false;  // once is enough, of several inputs
  return std::exchange(advised, true) ? "" : absl::StrCat("; ", kNoServerAdvice);
}

}  // namespace

ExitCode ReportCallError(absl::string_view subject, const absl::Status& status) {
  const bool connection = absl::IsUnavailable(status);
  const std::string code = connection ? "" : absl::StrCat(" (", absl::StatusCodeToString(status.code()), ")");
  return ReportError(subject, absl::StrCat(status.message(), code, AdviceOn(status)),
                     connection ? kConnection : kServer);
}

namespace {

bool Write(const std::string& path, absl::string_view content) {
  std::ofstream file(path, std::ios::binary);
  return file.write(content.data(), static_cast<std::streamsize>(content.size())).flush().good();
}

ExitCode NotWritten(const std::string& path) {
  return ReportError(path, absl::StrCat("cannot be written: ", std::strerror(errno)), kOutput);
}

}  // namespace

ExitCode WriteFile(const std::string& path, absl::string_view content) {
  // The content goes to a new file, which then takes the name, so that a full disk leaves the old file as it was. A
  // link stays a link.
  std::error_code none;
  const std::filesystem::path target = std::filesystem::weakly_canonical(path, none);
  const std::string unfinished = absl::StrCat(target.string(), ".", getpid());
  if (!std::filesystem::exists(target, none) || std::filesystem::is_regular_file(target, none)) {
    if (Write(unfinished, content) && std::rename(unfinished.c_str(), target.c_str()) == 0) return kOk;
    const int error = errno;
    unlink(unfinished.c_str());
    errno = error;
    // A writable file in a folder that is not, or one that is a mount of its own, is written in place.
    if (error != EACCES && error != EROFS && error != EBUSY) return NotWritten(path);
  }
  return Write(path, content) ? kOk : NotWritten(path);
}

}  // namespace reduced::client
