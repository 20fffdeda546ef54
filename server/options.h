// What a server can be told: one struct, the flags that fill it (options.cc), and the check that both go through.
#ifndef REDUCED_SERVER_OPTIONS_H_
#define REDUCED_SERVER_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/engines.h"
#include "server/regions.h"

namespace reduced {

// What one request may ask for; told to clients in GetServerInfo.
struct RequestLimits {
  std::int64_t max_message_bytes = 64 << 20;  // of one request message, a stream's too; larger ones gRPC refuses
  std::int64_t max_elements = std::int64_t{1} << 40;
  int max_ops = 32;
  std::int64_t max_ladder_bytes = std::int64_t{4} << 30;  // of the array that one ladder makes
  int max_streams = 64;                       // ReduceStreams and PutArrays at once, each with up to 8 MiB of buffers
  int max_sessions = 256;                     // open at once
  int max_session_requests = 64;              // of one session, under way at once: each holds its request message
  int max_arrays = 4096;                      // that PutArray keeps; their bytes: EngineOptions
  absl::Duration array_ttl = absl::Hours(1);  // how long an array stays unused that doesn't say so itself
  absl::Duration max_array_ttl = absl::Hours(24);
};

struct ServerOptions {
  // Where to listen: "host:port", "[ipv6]:port" (port 0: the kernel picks one) or "unix:/path". At least one.
  std::vector<std::string> listen = {"127.0.0.1:50051"};
  // Written once the server serves, removed when it stops: the bound addresses, one a line. Empty: none.
  std::string ready_file;
  // Permissions of the Unix sockets and the ready file: who may write to a socket may connect. -1: as the process's
  // umask leaves them. main() sets the umask by it, before there is a socket.
  int socket_mode = -1;

  RequestLimits limits;
  // Of gRPC's buffers, over all connections; calls beyond it are cancelled. Parsed requests come on top: at most as
  // much again for what the lanes and their queues hold. At least twice max_message_bytes.
  std::int64_t memory_quota_bytes = std::int64_t{1} << 30;
  int max_concurrent_streams = 1024;  // calls at once on one connection; further ones wait at the client

  EngineOptions engines;
  // Where processes of this machine share memory: the path of a Unix socket. "auto": that of the first Unix socket of
  // `listen`, with ".regions" after it; none if there is none. Empty: none.
  std::string region_socket = "auto";
  RegionOptions regions;

  absl::Duration drain_timeout = absl::Seconds(10);  // what still runs after it is cancelled
  std::string log_level = "info";                    // trace, debug, info, warning, error, critical or off
};

// OK, or INVALID_ARGUMENT naming the flag, what it has and what is allowed.
absl::Status ValidateOptions(const ServerOptions& options);

// The options that the flags say, validated. Call after absl::ParseCommandLine.
absl::StatusOr<ServerOptions> OptionsFromFlags();

// Every flag of the server with its default, for --help.
std::string FlagsHelp();

// A number of bytes as a flag: a whole number, optionally with KiB, MiB, GiB or TiB ("64MiB").
struct ByteSize {
  std::int64_t bytes = 0;
};
bool AbslParseFlag(absl::string_view text, ByteSize* size, std::string* error);
std::string AbslUnparseFlag(ByteSize size);

// Permissions as a flag: an octal number ("0660"), or nothing.
struct FileMode {
  int bits = -1;  // -1: nothing
};
bool AbslParseFlag(absl::string_view text, FileMode* mode, std::string* error);
std::string AbslUnparseFlag(FileMode mode);

}  // namespace reduced

#endif  // REDUCED_SERVER_OPTIONS_H_
