// The options of a server, by room, and their validation. Flags fill them: see flags.h.
#ifndef REDUCED_SERVER_CONFIG_OPTIONS_H_
#define REDUCED_SERVER_CONFIG_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/engine/engines.h"

namespace reduced::server {

// Limits of one request, and of what requests hold at once. GetServerInfo reports them.
struct RequestLimits {
  std::int64_t max_message_bytes = 64 << 20;  // of one request message; gRPC refuses larger ones
  std::int64_t max_elements = std::int64_t{1} << 40;
  int max_ops = 32;
  std::int64_t max_ladder_bytes = std::int64_t{4} << 30;  // of the array that one ladder generates
  int max_streams = 64;           // ReduceStream and PutArray calls at once; each has up to 8 MiB of buffers
  int max_sessions = 256;         // open at once
  int max_session_requests = 64;  // of one session, in progress at once; each holds its request message
  int max_arrays = 4096;          // resident arrays; EngineOptions limits their bytes
  // A resident array expires after it was unused for array_ttl, unless its client chose another time.
  absl::Duration array_ttl = absl::Hours(1);
  absl::Duration max_array_ttl = absl::Hours(24);  // that a client may choose
};

struct RegionOptions {
  int max_connections = 256;
  int max_regions = 1024;         // of one connection; all connections: half of the process's descriptors
  bool allow_disk_files = false;  // accept descriptors of files on disk, whose reading may take any time
};

struct SecurityOptions {
  // PEM files. With a certificate and its key, TCP listeners speak TLS only; Unix sockets never do. With client_ca, TCP
  // clients must present a certificate that it signed.
  std::string tls_cert{};
  std::string tls_key{};
  std::string tls_client_ca{};
  std::string token_file{};      // see tokens.h; if set, every call needs a token
  bool open_health = false;      // health checks need none
  bool allow_plaintext = false;  // on TCP addresses that other machines reach
  absl::Duration credentials_refresh = absl::Seconds(10);
  // Quotas of each identity; 0: none.
  std::int64_t max_identity_requests = 0;
  std::int64_t max_identity_array_bytes = 0;
};

struct ObserverOptions {
  bool metrics = true;      // count calls, and remember the recent errors
  bool request_ids = true;  // give every call an id, and return it in the trailer
  bool json_log = false;    // lines about calls are the members of JSON objects: see SetUpLog
  absl::Duration slow_request = absl::ZeroDuration();  // reductions that take this long are logged; 0: none
};

// A flag, its value, and where the value is from: "default", "--NAME", "REDUCED_FLAG_NAME" or "FILE:LINE".
struct FlagValue {
  std::string name;
  std::string value;
  std::string source;
};

struct ServerOptions {
  // Listeners: "host:port", "[ipv6]:port" (port 0: the kernel picks one) or "unix:/path". At least one.
  std::vector<std::string> listen = {"127.0.0.1:50051"};
  // Permissions of the Unix sockets, including the region socket, in octal, such as "0660". Empty: by the umask.
  std::string unix_socket_mode;
  // Written once the server serves, removed when it stops: the bound addresses, one a line. Empty: none.
  std::string ready_file;

  RequestLimits limits;
  // Memory of gRPC's buffers, over all connections; calls that exceed it are cancelled. Parsed requests use up to as
  // much again, for the lanes and their queues. At least twice max_message_bytes.
  std::int64_t memory_quota_bytes = std::int64_t{1} << 30;
  int max_concurrent_streams = 1024;  // calls at once on one connection; the client queues further ones

  EngineOptions engines;
  // The Unix socket on which processes of this machine share memory. "auto": the first Unix socket of `listen` with
  // ".regions" appended, or none if `listen` has no Unix socket. Empty: none.
  std::string region_socket = "auto";
  RegionOptions regions;

  SecurityOptions security;

  absl::Duration drain_delay = absl::ZeroDuration();  // from NOT_SERVING until new requests are refused
  absl::Duration drain_timeout = absl::Seconds(10);   // after it, running requests are cancelled
  std::string log_level = "info";                     // trace, debug, info, warning, error, critical or off
  std::string log_format = "text";                    // or json: one object a line

  // Where metrics and the status page are served over HTTP: "host:port" or "[ipv6]:port" (port 0: the kernel picks
  // one). "auto": 127.0.0.1:9464 or, if that is taken, nowhere, with a warning. Empty: nowhere, and calls are not
  // counted.
  std::string metrics_listen = "auto";
  bool status_page = true;                             // serve the status page there, too
  bool request_ids = true;                             // return each call's id in its trailer
  absl::Duration slow_request = absl::ZeroDuration();  // reductions that take this long are logged; 0: none

  std::vector<FlagValue> flags{};  // that the other members were set from, for GetServerInfo; see configuration.h
};

// INVALID_ARGUMENT: names the flag, its value and the allowed values. Reads no file.
absl::Status ValidateOptions(const ServerOptions& options);

// The observer's share of the options.
ObserverOptions ObserverOptionsOf(const ServerOptions& options);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CONFIG_OPTIONS_H_
