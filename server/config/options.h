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

// How long a client may let a call wait; the call then ends with DEADLINE_EXCEEDED. See calls/watchdog.h.
struct Timeouts {
  absl::Duration header = absl::Seconds(10);    // of the first message of a stream or upload
  absl::Duration progress = absl::Seconds(60);  // between its messages, and for a response to be read
  absl::Duration session_idle = absl::Minutes(10);
};

// Limits of one request, and of what requests hold at once. GetServerInfo reports them.
struct RequestLimits {
  std::int64_t max_message_bytes = 64 << 20;  // of one request message; larger ones are refused
  std::int64_t max_elements = std::int64_t{1} << 40;
  int max_ops = 32;
  int max_operands = 4096;                                // of one ReduceMany
  absl::Duration max_run_time = absl::Minutes(10);        // of one request on a lane
  std::int64_t max_ladder_bytes = std::int64_t{4} << 30;  // of the array that one ladder generates
  int max_streams = 64;           // ReduceStream, PutArray and GetArray calls at once; each has up to 8 MiB of buffers
  int max_sessions = 256;         // open at once
  int max_session_requests = 64;  // of one session, in progress at once; each holds its request message
  std::int64_t max_ring_bytes = 64 << 20;  // of the arena of one session's ring; 0: there are no rings
  // Of the results of one request along axes that the response has; kept results count as arrays.
  std::int64_t max_result_bytes = 64 << 20;
  // Of memory_bytes, max_streams and max_sessions: the part of what other callers leave that one may have. A caller is
  // an identity, or a peer of anonymous callers: see Security::PeerOf. 1: no caller leaves anything to others.
  double caller_share = 0.75;
  int max_arrays = 4096;  // resident arrays; EngineOptions limits their bytes
  // A resident array expires after it was unused for array_ttl, unless its client chose another time.
  absl::Duration array_ttl = absl::Hours(1);
  absl::Duration max_array_ttl = absl::Hours(24);  // that a client may choose
  Timeouts timeouts{};
};

struct RegionOptions {
  // At once, and at most a quarter of the process's descriptors. One user (uid) has at most half of them.
  int max_connections = 512;
  // Of one connection. All connections have at most half of the process's descriptors, one user half of these.
  int max_regions = 1024;
  bool allow_disk_files = false;  // accept descriptors of files on disk, whose reading may take any time
  // Write results to memory of users other than the server's and root, who can so make the server use memory.
  bool allow_writable_regions = false;
  // After so long without a request, a connection that shares nothing is closed.
  absl::Duration idle_timeout = absl::Minutes(1);
};

// Connections to the listeners, not those of regions or of metrics.
struct ConnectionOptions {
  int max_connections = 0;           // at once; 0: half of the free descriptors: see ConnectionLimits
  int max_connections_per_peer = 0;  // of one user (Unix sockets), IPv4 address or IPv6 /64 network; 0: half of all
  // Until the client has sent its first settings and, with TLS, finished its handshake.
  absl::Duration handshake_timeout = absl::Seconds(20);
  absl::Duration max_idle = absl::Hours(1);              // without a call; 0: any time
  absl::Duration max_age = absl::ZeroDuration();         // after it, calls in progress finish; 0: any time
  absl::Duration keepalive_time = absl::Minutes(1);      // of silence until the client is pinged
  absl::Duration keepalive_timeout = absl::Seconds(20);  // until the ping, or what was sent, is acknowledged
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
  // Quotas of each identity, or of each peer of anonymous callers: see Security::PeerOf; 0: none.
  std::int64_t max_identity_requests = 0;
  std::int64_t max_identity_sessions = 0;
  std::int64_t max_identity_arrays = 0;
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

  ConnectionOptions connections;
  RequestLimits limits;
  // Host memory that the server may take for requests, the transport's buffers included. 0: three quarters of what the
  // machine or the control group has.
  std::int64_t memory_bytes = 0;
  // The share of gRPC's buffers, over all connections; calls that exceed it are cancelled. At least twice
  // max_message_bytes; at most a quarter of memory_bytes, if that is more.
  std::int64_t memory_quota_bytes = std::int64_t{1} << 30;
  int max_concurrent_streams = 1024;  // calls at once on one connection; the client queues further ones

  EngineOptions engines;
  // The Unix socket on which processes of this machine share memory. "auto": as RegionSocket. Empty: none.
  std::string region_socket = "auto";
  RegionOptions regions;

  SecurityOptions security;

  absl::Duration drain_delay = absl::ZeroDuration();  // from NOT_SERVING until clients are sent elsewhere
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

// The path of the region socket; empty: there is none. For "auto" that of the first Unix socket of `listen` with
// ".regions" appended or, where the path of a socket may not be that long, ".r"; none if `listen` has no Unix socket or
// its path has no room for that either. The options have been validated.
std::string RegionSocket(const ServerOptions& options);

// INVALID_ARGUMENT: as CheckDistinct, of all addresses that the server listens on.
absl::Status CheckAddresses(const ServerOptions& options);

// The shares of memory_bytes.
struct MemoryShares {
  std::int64_t transport = 0;  // gRPC's buffers
  std::int64_t requests = 0;   // what a MemoryBudget counts
};
// `usable`: as UsableMemory.
MemoryShares SharesOf(const ServerOptions& options, std::int64_t usable);

// INVALID_ARGUMENT: names the flag, its value and the allowed values. Reads no file.
absl::Status ValidateOptions(const ServerOptions& options);

// The observer's share of the options.
ObserverOptions ObserverOptionsOf(const ServerOptions& options);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CONFIG_OPTIONS_H_
