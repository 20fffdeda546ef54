// --check_config and --print_config.
#ifndef REDUCED_SERVER_CHECK_CONFIG_H_
#define REDUCED_SERVER_CHECK_CONFIG_H_

#include <optional>

#include "absl/status/status.h"
#include "server/config/options.h"

namespace reduced::server {

// Checks the files that valid options name: input files can be read and have the right contents, output files and
// sockets can be created. FAILED_PRECONDITION or INVALID_ARGUMENT: names the first flag whose file is not usable.
absl::Status CheckFiles(const ServerOptions& options);

// Does what --print_config and --check_config ask for, and returns the exit status; nullopt if neither is set.
std::optional<int> AnswerAboutConfiguration(const ServerOptions& options);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CHECK_CONFIG_H_
