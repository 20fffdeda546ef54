// The flags of the server: one for each option, with its default and its help.
#ifndef REDUCED_SERVER_CONFIG_FLAGS_H_
#define REDUCED_SERVER_CONFIG_FLAGS_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/flags/reflection.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/config/options.h"

namespace reduced::server {

// The options that the flags set, validated. Call it after absl::ParseCommandLine.
absl::StatusOr<ServerOptions> OptionsFromFlags();

// The server's own flags, by name, without those of libraries.
std::map<std::string, absl::CommandLineFlag*> ServerFlags();

// Every flag of the server with its default, for --help.
std::string FlagsHelp();

// A number of bytes as a flag: a whole number, optionally with KiB, MiB, GiB or TiB ("64MiB").
struct ByteSize {
  std::int64_t bytes = 0;
};
bool AbslParseFlag(absl::string_view text, ByteSize* size, std::string* error);
std::string AbslUnparseFlag(ByteSize size);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CONFIG_FLAGS_H_
