// What a server can be told: one struct, the flags that fill it (options.cc), and the check that both go through.
#ifndef REDUCED_SERVER_CONFIG_OPTIONS_H_
#define REDUCED_SERVER_CONFIG_OPTIONS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/flags/reflection.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/engine/engines.h"
#include "server/observe/observer.h"
#include "server/security/security.h"
#include "server/sources/regions.h"

namespace reduced::server {

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

// A flag, what it says, and who said so: "default", "--NAME", "REDUCED_FLAG_NAME" or "FILE:LINE".
struct FlagValue {
  std::string name;
  std::string value;
  std::string source;
};

struct ServerOptions {
  // Where to listen: "host:port", "[ipv6]:port" (port 0: the kernel picks one) or "unix:/path". At least one.
  std::vector<std::string> listen = {"127.0.0.1:50051"};
  // Permissions of the Unix sockets, regions' too, in octal such as "0660". Empty: as the umask has it.
  std::string unix_socket_mode;
  // Written once the server serves, removed when it stops: the bound addresses, one a line. Empty: none.
  std::string ready_file;

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

  SecurityOptions security;

  absl::Duration drain_delay = absl::ZeroDuration();  // from NOT_SERVING until new requests are refused
  absl::Duration drain_timeout = absl::Seconds(10);   // what still runs after it is cancelled
  std::string log_level = "info";                     // trace, debug, info, warning, error, critical or off
  std::string log_format = "text";                    // or json: one object a line

  // Where metrics and the status page are served over HTTP: "host:port" or "[ipv6]:port" (port 0: the kernel picks
  // one). "auto": 127.0.0.1:9464 or, if that is taken, nowhere, with a warning. Empty: nowhere, and calls are not
  // counted.
  std::string metrics_listen = "auto";
  bool status_page = true;                             // serve pages for people there, too
  bool request_ids = true;                             // say each call's id in its trailer
  absl::Duration slow_request = absl::ZeroDuration();  // a reduction that takes as long is warned of; 0: none is

  std::vector<FlagValue> flags{};  // that the rest was filled from, for GetServerInfo; see configuration.h
};

// OK, or INVALID_ARGUMENT naming the flag, what it has and what is allowed.
absl::Status ValidateOptions(const ServerOptions& options);

// The options that the flags say, validated. Call after absl::ParseCommandLine.
absl::StatusOr<ServerOptions> OptionsFromFlags();

// Every flag of the server, by name; the libraries' own are left out.
std::map<std::string, absl::CommandLineFlag*> ServerFlags();

// What an Observer is told of them.
ObserverOptions ObserverOptionsOf(const ServerOptions& options);

// Every flag of the server with its default, for --help.
std::string FlagsHelp();

// A number of bytes as a flag: a whole number, optionally with KiB, MiB, GiB or TiB ("64MiB").
struct ByteSize {
  std::int64_t bytes = 0;
};
bool AbslParseFlag(absl::string_view text, ByteSize* size, std::string* error);
std::string AbslUnparseFlag(ByteSize size);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CONFIG_OPTIONS_H_
