#include "server/check_config.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "absl/flags/reflection.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/config/configuration.h"
#include "server/config/flags.h"
#include "server/config/listener.h"
#include "server/security/security.h"

namespace reduced::server {
namespace {

absl::Status Unusable(absl::string_view flag, const std::string& path, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrFormat("--%s: %s %s", flag, absl::CHexEscape(path), why));
}

// Checks that the file `path` can be created or replaced.
absl::Status CheckWritable(absl::string_view flag, const std::string& path) {
  std::string directory = std::filesystem::path(path).parent_path().string();
  if (directory.empty()) directory.push_back('.');
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return Unusable(flag, path, "is a directory, not a file");
  // A link to itself can be replaced; a name that is too long can't be created.
  if (error == std::errc::filename_too_long)
    return Unusable(flag, path, absl::StrCat("cannot be created: ", error.message()));
  return access(directory.c_str(), W_OK | X_OK) == 0
             ? absl::OkStatus()
             : Unusable(flag, path, absl::StrCat("is in a directory that is not writable: ", std::strerror(errno)));
}

absl::Status CheckSocket(absl::string_view flag, const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && !S_ISSOCK(status.st_mode)) {
    return Unusable(flag, path, "exists and is not a socket");
  }
  return CheckWritable(flag, path);
}

}  // namespace

absl::Status CheckFiles(const ServerOptions& options) {
  absl::Status status = CheckAddresses(options);
  const absl::StatusOr<std::unique_ptr<Security>> security = Security::Load(options.security);
  status.Update(security.status());
  if (!options.ready_file.empty()) status.Update(CheckWritable("ready_file", options.ready_file));
  for (const std::string& address : options.listen) {
    const absl::StatusOr<ListenAddress> parsed = ParseListenAddress(address);
    status.Update(parsed.status());
    if (parsed.ok() && !parsed->unix_path.empty()) status.Update(CheckSocket("listen", parsed->unix_path));
    if (parsed.ok() && security.ok()) status.Update((*security)->CredentialsFor(*parsed).status());
  }
  if (const std::string path = RegionSocket(options); !path.empty()) {
    status.Update(CheckSocket("region_socket", path));
  }
  return status;
}

std::optional<int> AnswerAboutConfiguration(const ServerOptions& options) {
  const auto flags = ServerFlags();
  const auto asked = [&flags](const char* name) { return flags.at(name)->TryGet<bool>().value_or(false); };
  const bool print = asked("print_config");
  const bool check = asked("check_config");
  if (print) std::fputs(ConfigurationText(options.flags).c_str(), stdout);
  if (!check) return print ? std::optional<int>(EXIT_SUCCESS) : std::nullopt;
  const absl::Status status = CheckFiles(options);
  if (status.ok()) {
    if (!print) std::puts("ok");
    return EXIT_SUCCESS;
  }
  std::fprintf(stderr, "reduced: %s\n", std::string(status.message()).c_str());
  return EXIT_FAILURE;
}

}  // namespace reduced::server
