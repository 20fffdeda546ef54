// Where flags come from besides the command line: the environment and a file. In this order, the first that says
// something about a flag has its way:
//
//   1. the command line: --drain_delay=5s
//   2. the environment:  REDUCED_FLAG_DRAIN_DELAY=5s
//   3. --config_file:    drain_delay = 5s
//   4. the flag's default.
//
// Whatever is named in the second and the third must be a flag, and its value good, even where the first overrides it.
#ifndef REDUCED_SERVER_CONFIG_CONFIGURATION_H_
#define REDUCED_SERVER_CONFIG_CONFIGURATION_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/config/options.h"

namespace reduced::server {

// Before absl::ParseCommandLine. INVALID_ARGUMENT: one of Abseil's own ways to read flags from elsewhere, which know
// nothing of the order above.
absl::Status CheckArguments(const std::vector<std::string>& arguments);

// After absl::ParseCommandLine, with the same arguments (without the program's name) and the environment, NAME=VALUE
// and a null at the end. Sets the flags that they say nothing about; gives all, by name. INVALID_ARGUMENT: a file that
// can't be read, a name that is no flag, a bad value; with the file and line, or the variable.
absl::StatusOr<std::vector<FlagValue>> Configure(const std::vector<std::string>& arguments, char** environment);

// What others may know of a flag's value: of one with token, key, secret or password in its name, only that it has one.
std::string ToldValue(const FlagValue& flag);

// The files and folders that valid options name: those to read can be read, those to make can be made.
// FAILED_PRECONDITION: the first that can't.
absl::Status CheckFiles(const ServerOptions& options);

// All flags as a file for --config_file, with who said so behind.
std::string ConfigurationText(const std::vector<FlagValue>& flags);

// Does what --print_config and --check_config ask for and gives the exit status; nothing if they don't.
std::optional<int> AnswerAboutConfiguration(const ServerOptions& options);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CONFIG_CONFIGURATION_H_
