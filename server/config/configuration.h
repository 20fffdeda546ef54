// The sources of flags. In this order, the first that sets a flag wins:
//
//   1. the command line: --drain_delay=5s
//   2. the environment:  REDUCED_FLAG_DRAIN_DELAY=5s
//   3. --config_file:    drain_delay = 5s
//   4. the flag's default.
//
// An unknown flag or a bad value in the second or the third is an error even where the first overrides it.
#ifndef REDUCED_SERVER_CONFIG_CONFIGURATION_H_
#define REDUCED_SERVER_CONFIG_CONFIGURATION_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/config/options.h"

namespace reduced::server {

// Call it before absl::ParseCommandLine. INVALID_ARGUMENT: one of Abseil's own flags that read flags from elsewhere,
// which do not follow the order above.
absl::Status CheckArguments(const std::vector<std::string>& arguments);

// Sets the flags that the command line does not set, and returns all flags, by name. Call it after
// absl::ParseCommandLine, with the same arguments (without the program's name) and the environment: NAME=VALUE strings,
// then a null. INVALID_ARGUMENT: an unreadable file, an unknown flag or a bad value; names the file and line, or the
// variable.
absl::StatusOr<std::vector<FlagValue>> Configure(const std::vector<std::string>& arguments, char** environment);

// The flag's value for display: "***" for a non-empty value of a flag with token, key, secret or password in its name.
std::string RedactedValue(const FlagValue& flag);

// All flags as a file for --config_file, with each flag's source in a comment.
std::string ConfigurationText(const std::vector<FlagValue>& flags);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CONFIG_CONFIGURATION_H_
