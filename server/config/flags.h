// The flags of the server: one for each option, with its default and its help.
#ifndef REDUCED_SERVER_CONFIG_FLAGS_H_
#define REDUCED_SERVER_CONFIG_FLAGS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/flags/reflection.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/config/options.h"

namespace reduced::server {

// Makes --tls-cert of the command line --tls_cert, in place. Call it before absl::ParseCommandLine.
void NormalizeFlagNames(int argc, char** argv);

// The options that the flags set, validated. Call it after absl::ParseCommandLine.
absl::StatusOr<ServerOptions> OptionsFromFlags();

// The server's own flags, by name, without those of libraries.
std::map<std::string, absl::CommandLineFlag*> ServerFlags();

// Every flag of the server with its default, for --help.
std::string FlagsHelp();

// A number of bytes as a flag: a whole number, optionally with KiB, MiB, GiB or TiB ("64MiB"), whose B can be left
// out.
struct ByteSize {
  std::int64_t bytes = 0;
};
bool AbslParseFlag(absl::string_view text, ByteSize* size, std::string* error);
std::string AbslUnparseFlag(ByteSize size);

// A ByteSize, or "auto": the server chooses.
struct AutoByteSize {
  std::optional<std::int64_t> bytes{};  // absent: auto
};
bool AbslParseFlag(absl::string_view text, AutoByteSize* size, std::string* error);
std::string AbslUnparseFlag(AutoByteSize size);

// A time as a flag, with its unit ("30s").
struct TimeSpan {
  absl::Duration duration;
};
bool AbslParseFlag(absl::string_view text, TimeSpan* span, std::string* error);
std::string AbslUnparseFlag(TimeSpan span);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CONFIG_FLAGS_H_
