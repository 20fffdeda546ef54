#include "server/config/flags.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/system/quoted.h"
#include "kernels/system/status_macros.h"

namespace reduced::server {
namespace {

struct Unit {
  absl::string_view suffix;
  std::int64_t bytes;
};
constexpr Unit kUnits[] = {  // sizes are written with the first that divides them
    {"TiB", std::int64_t{1} << 40},
    {"GiB", 1 << 30},
    {"MiB", 1 << 20},
    {"KiB", 1 << 10},
    {"Ti", std::int64_t{1} << 40},
    {"Gi", 1 << 30},
    {"Mi", 1 << 20},
    {"Ki", 1 << 10},
    {"", 1}};

const ServerOptions& Defaults() {
  static const auto* const defaults = new ServerOptions;
  return *defaults;
}

// What makes the options those of the flags: a step for each flag.
using TakeFlag = void (*)(ServerOptions* options);
std::vector<TakeFlag>& FlagTakers() {
  static auto* const takers = new std::vector<TakeFlag>;
  return *takers;
}
bool AddFlagTaker(TakeFlag take) {
  FlagTakers().push_back(take);
  return true;
}

// The value of a flag as the option has it.
template <class Value>
const Value& OptionOf(const Value& value) {
  return value;
}
std::int64_t OptionOf(ByteSize size) { return size.bytes; }
std::optional<std::int64_t> OptionOf(AutoByteSize size) { return size.bytes; }
absl::Duration OptionOf(TimeSpan span) { return span.duration; }

}  // namespace

bool AbslParseFlag(absl::string_view text, ByteSize* size, std::string* error) {
  for (const Unit& unit : kUnits) {
    if (!absl::EndsWith(text, unit.suffix)) continue;
    std::int64_t count = 0;
    if (!absl::SimpleAtoi(text.substr(0, text.size() - unit.suffix.size()), &count) || count < 0) break;
    if (count > std::numeric_limits<std::int64_t>::max() / unit.bytes) break;
    size->bytes = count * unit.bytes;
    return true;
  }
  *error = "allowed: a whole number of bytes, optionally with KiB, MiB, GiB or TiB, or Ki, Mi, Gi or Ti, such as 64MiB";
  return false;
}

std::string AbslUnparseFlag(ByteSize size) {
  for (const Unit& unit : kUnits) {
    if (size.bytes >= unit.bytes && size.bytes % unit.bytes == 0)
      return absl::StrCat(size.bytes / unit.bytes, unit.suffix);
  }
  return absl::StrCat(size.bytes);
}

bool AbslParseFlag(absl::string_view text, AutoByteSize* size, std::string* error) {
  ByteSize number;
  if (text != "auto" && !AbslParseFlag(text, &number, error)) {
    absl::StrAppend(error, ", or auto");
    return false;
  }
  size->bytes = text == "auto" ? std::nullopt : std::optional(number.bytes);
  return true;
}

std::string AbslUnparseFlag(AutoByteSize size) {
  return size.bytes.has_value() ? AbslUnparseFlag(ByteSize{*size.bytes}) : "auto";
}

bool AbslParseFlag(absl::string_view text, TimeSpan* span, std::string* error) {
  if (absl::ParseDuration(text, &span->duration)) return true;
  *error = "allowed: a time with its unit, such as 500ms, 30s, 10m or 1h30m; 0 and inf need none";
  return false;
}

std::string AbslUnparseFlag(TimeSpan span) { return absl::FormatDuration(span.duration); }

void NormalizeFlagNames(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    char* const flag = argv[i];
    if (std::strcmp(flag, "--") == 0) return;
    if (std::strncmp(flag, "--", 2) != 0) continue;
    std::replace(flag + 2, flag + std::strcspn(flag, "="), '-', '_');
  }
}

}  // namespace reduced::server

// Where sources are joined, clang-tidy takes this file for a header.
using reduced::server::AutoByteSize;  // NOLINT(google-global-names-in-headers)
using reduced::server::ByteSize;      // NOLINT(google-global-names-in-headers)
using reduced::server::TimeSpan;      // NOLINT(google-global-names-in-headers)

// A flag that sets a member of the options, and has its default.
#define OPTION(Type, name, member, help)                                          \
  ABSL_FLAG(Type, name, Type{reduced::server::Defaults().member}, help);          \
  [[maybe_unused]] const bool name##_is_taken =                                   \
      reduced::server::AddFlagTaker([](reduced::server::ServerOptions* options) { \
        options->member = reduced::server::OptionOf(absl::GetFlag(FLAGS_##name)); \
      })

OPTION(std::vector<std::string>, listen, listen,
       "addresses to listen on, separated by commas: host:port, [ipv6]:port (port 0: any free one) or unix:/path");
OPTION(std::string, unix_socket_mode, unix_socket_mode,
       "permissions of the Unix sockets, including --region_socket, in octal, such as 0660; empty: by the umask");
OPTION(std::string, ready_file, ready_file,
       "file that is written once the server serves: the bound addresses, one a line; removed at exit; empty: none");
OPTION(std::int32_t, max_connections, connections.max_connections,
       "connections at once, over all listeners; further ones are closed at once; 0: half of the descriptors that the "
       "process may open besides those it has, less what regions and metrics need");
OPTION(std::int32_t, max_connections_per_peer, connections.max_connections_per_peer,
       "connections at once of one user (Unix sockets), one IPv4 address or one IPv6 /64 network; 0: half of all");
OPTION(TimeSpan, handshake_timeout, connections.handshake_timeout,
       "time that a client has after it connected to finish its TLS handshake and send its first HTTP/2 settings");
OPTION(TimeSpan, max_connection_idle, connections.max_idle,
       "time after which a connection without a call is closed; clients of gRPC connect again by themselves; 0: never");
OPTION(TimeSpan, max_connection_age, connections.max_age,
       "age at which a connection takes no more calls and is closed once those in progress have ended, such as 1h, so "
       "that clients spread over servers that were added; 0: never");
OPTION(TimeSpan, keepalive_time, connections.keepalive_time,
       "time without a byte from a client after which it is pinged");
OPTION(TimeSpan, keepalive_timeout, connections.keepalive_timeout,
       "time that a client has to answer the ping, or to acknowledge what was sent; then its connection is closed");
OPTION(ByteSize, max_message_bytes, limits.max_message_bytes,
       "largest request message, in bytes, up to 2147483647; clients stream larger arrays in messages of up to 1 MiB");
OPTION(std::int64_t, max_elements, limits.max_elements, "largest array, in elements");
OPTION(std::int32_t, max_ops, limits.max_ops, "largest number of operations in one request");
OPTION(TimeSpan, max_run_time, limits.max_run_time,
       "longest time that a request may run on a lane, such as 10m: a reduction, a Merge, or a ladder with all its "
       "pipelines; what is predicted to take longer is refused, and what does is ended");
OPTION(ByteSize, max_ladder_bytes, limits.max_ladder_bytes,
       "largest array that a ladder generates, in bytes; one ladder runs at a time");
OPTION(ByteSize, max_result_bytes, limits.max_result_bytes,
       "largest arrays of results of one request that its response has, together, in bytes, up to 64MiB; larger ones "
       "can be kept as resident arrays");
OPTION(std::int32_t, max_streams, limits.max_streams,
       "ReduceStream, PutArray and GetArray calls at once, each with up to 8 MiB of buffers; further ones are refused");
OPTION(
    double, caller_share, limits.caller_share,
    "part of --memory_bytes, --max_streams and --max_sessions that one caller (an identity, else a peer) may have of "
    "what other callers leave, from 0.01 to 1; what exceeds it is refused, and unread responses of a caller beyond "
    "it are given up after a tenth of --progress_timeout; 1: callers leave nothing to each other");
OPTION(std::string, region_socket, region_socket,
       "path of the Unix socket on which processes of this machine share memory; auto: the path of the first unix: "
       "address of --listen with .regions appended (.r, if that is too long); empty: none");
OPTION(std::int32_t, max_region_connections, regions.max_connections,
       "processes that share memory at once, at most a quarter of the file descriptors; further ones wait; half of "
       "them are for one user (uid) at most, whose further ones are closed");
OPTION(std::int32_t, max_regions, regions.max_regions, "regions that one connection shares at once");
OPTION(bool, allow_disk_files, regions.allow_disk_files,
       "accept descriptors of files on disk as regions; reading and closing them may take any time");
OPTION(bool, allow_writable_regions, regions.allow_writable_regions,
       "write results to regions of every user, not only of the server's own and root; a process can make the server "
       "use as much memory as such a region has");
OPTION(TimeSpan, region_idle_timeout, regions.idle_timeout,
       "time without a request after which a connection to the region socket that shares nothing is closed");
OPTION(std::int32_t, max_sessions, limits.max_sessions, "sessions open at once; further ones are refused");
OPTION(std::int32_t, max_session_requests, limits.max_session_requests,
       "requests of one session in progress at once; the server reads further ones when one is answered");
OPTION(ByteSize, max_ring_bytes, limits.max_ring_bytes,
       "largest arena of a session's ring, in bytes: the shared memory through which a process of this machine sends "
       "requests; 0: no rings");
OPTION(std::int32_t, max_arrays, limits.max_arrays, "resident arrays at once, over all devices");
OPTION(TimeSpan, array_ttl, limits.array_ttl,
       "time after which an unused resident array expires, unless its client chose another, such as 10m");
OPTION(TimeSpan, max_array_ttl, limits.max_array_ttl, "longest time to live that a client may choose");
OPTION(TimeSpan, header_timeout, limits.timeouts.header,
       "time for the first message of a ReduceStream or PutArray to arrive; without it the call ends");
OPTION(TimeSpan, progress_timeout, limits.timeouts.progress,
       "time for the next message of a ReduceStream or PutArray to arrive, and for a client to read a response; "
       "without progress the call ends");
OPTION(TimeSpan, session_idle_timeout, limits.timeouts.session_idle,
       "time after which a session without a request in progress ends");
OPTION(ByteSize, memory_bytes, memory_bytes,
       "host memory for all requests together: resident arrays, messages, buffers, ladders; 0: three quarters of what "
       "the machine or the control group has");
OPTION(ByteSize, memory_quota_bytes, memory_quota_bytes,
       "share of --memory_bytes for the transport's buffers over all connections, in bytes; at least twice "
       "--max_message_bytes; at most a quarter, if that is more");
OPTION(std::int32_t, max_concurrent_streams, max_concurrent_streams, "calls at once on one connection");
OPTION(std::int32_t, cpu_threads, engines.cpu_threads,
       "threads of the CPU engine; 0: one for each core the process may use");
OPTION(std::int32_t, cpu_lanes, engines.cpu_lanes, "reductions at once on the CPU engine");
OPTION(ByteSize, cpu_array_bytes, engines.cpu_array_bytes,
       "resident arrays in host memory, together, in bytes; 0: none");
OPTION(bool, cuda, engines.cuda, "use the CUDA devices of this machine");
ABSL_FLAG(
    std::vector<std::string>, cuda_devices, std::vector<std::string>(),
    "GPUs to use: their ordinals, separated by commas, such as 0,2; empty: all that CUDA shows to the server (see "
    "CUDA_VISIBLE_DEVICES)");
OPTION(ByteSize, cuda_staging_bytes, engines.cuda_staging_bytes,
       "pinned host memory for each GPU, in bytes, for arriving streams and puts; beyond it they use ordinary memory, "
       "which is copied once more; 0: none");
OPTION(std::int32_t, cuda_lanes, engines.cuda_lanes, "reductions at once on a CUDA device");
OPTION(AutoByteSize, cuda_array_bytes, engines.cuda_array_bytes,
       "resident arrays in the memory of each CUDA device, together, in bytes; auto: three quarters of what is free "
       "there when the server starts; 0: none");
OPTION(ByteSize, chunk_bytes, engines.chunk_bytes,
       "chunks in which arrays are copied to a CUDA device, in bytes, 64KiB to 1GiB; each lane pins three");
OPTION(TimeSpan, device_timeout, engines.device_timeout,
       "time after which a GPU that has not ended a kernel or transfer counts as failed, such as 60s; 100 times the "
       "predicted time is added");
OPTION(std::int32_t, queue_limit, engines.queue_limit,
       "reductions that wait for a lane, for each engine; further ones are refused");
OPTION(TimeSpan, queue_target, engines.queue_target,
       "time that a reduction may be predicted to wait for others of its caller (an identity, else a peer), such as "
       "200ms; further ones are refused; a burst may wait twice as long, until all have waited longer for 100 ms");
OPTION(TimeSpan, drain_delay, drain_delay,
       "time from SIGTERM or SIGINT, when health becomes NOT_SERVING, until clients are sent elsewhere; choose as long "
       "as a load balancer that watches health takes to notice, such as 5s");
OPTION(
    std::string, tls_cert, security.tls_cert,
    "PEM file of the server's certificate and its intermediates; TCP listeners then speak TLS only; reloaded when it "
    "changes; empty: no TLS");
OPTION(std::string, tls_key, security.tls_key, "PEM file of the certificate's private key");
OPTION(std::string, tls_client_ca, security.tls_client_ca,
       "PEM file of the certificates that sign clients' certificates; TCP clients must then present one; empty: none "
       "is asked for");
OPTION(bool, allow_plaintext, security.allow_plaintext,
       "allow TCP listeners without TLS on addresses that other machines reach");
OPTION(std::string, token_file, security.token_file,
       "file of bearer tokens: an identity and the SHA-256 of its token on each line, # begins a comment; every call "
       "then needs a token; reloaded when it changes; empty: no tokens");
OPTION(bool, open_health, security.open_health, "allow calls of grpc.health.v1 without a token, for probes");
OPTION(TimeSpan, credentials_refresh, security.credentials_refresh,
       "how often the files of certificates and tokens are checked for changes");
OPTION(std::int64_t, max_identity_requests, security.max_identity_requests,
       "requests of one identity in progress at once; further ones are refused; callers without an identity count "
       "by peer: "
       "the user (uid) on Unix sockets, the address or IPv6 /64 network on TCP; 0: any number");
OPTION(std::int64_t, max_identity_sessions, security.max_identity_sessions,
       "open sessions of one identity or peer; further ones are refused; 0: any number");
OPTION(std::int64_t, max_identity_arrays, security.max_identity_arrays,
       "resident arrays of one identity or peer; further ones are refused; 0: any number");
OPTION(ByteSize, max_identity_array_bytes, security.max_identity_array_bytes,
       "resident arrays of one identity or peer, together, in bytes; 0: any number");
OPTION(TimeSpan, drain_timeout, drain_timeout,
       "time that running requests have to finish when the server drains, such as 10s or 500ms");
OPTION(std::string, log_level, log_level,
       "trace, debug (one line for each request), info, warning, error, critical or off");
OPTION(std::string, log_format, log_format, "text, or json: one object a line");
OPTION(
    std::string, metrics_listen, metrics_listen,
    "address that serves metrics and the status page over HTTP: host:port or [ipv6]:port (port 0: any free one); auto: "
    "127.0.0.1:9464, or nowhere if that is taken; empty: nowhere");
OPTION(bool, status_page, status_page, "serve a status page at / of --metrics_listen, and its figures at /status.json");
OPTION(bool, request_ids, request_ids,
       "return each call's id (its x-request-id or a generated one) in the trailer x-request-id, and log it");
OPTION(
    TimeSpan, slow_request, slow_request,
    "log a warning for each reduction that takes the server this long, with the time of its stages, such as 100ms; the "
    "time in which a stream's client was waited for does not count; 0: none");
// About the configuration itself: see configuration.h.
ABSL_FLAG(std::string, config_file, "",
          "file of flags, a line `name = value` each, # begins a comment; empty: none. The command line overrides "
          "REDUCED_FLAG_NAME of the environment, which overrides the file");
ABSL_FLAG(bool, check_config, false, "check the configuration and the files that it names, then exit with 0 or 1");
ABSL_FLAG(bool, print_config, false, "print every flag with its value and its source, as a --config_file, then exit");

namespace reduced::server {

absl::StatusOr<ServerOptions> OptionsFromFlags() {
  ServerOptions options;
  for (const TakeFlag take : FlagTakers()) take(&options);
  for (const std::string& text : absl::GetFlag(FLAGS_cuda_devices)) {
    int ordinal = 0;
    if (!absl::SimpleAtoi(text, &ordinal) || ordinal < 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("--cuda_devices: got %s; allowed: whole numbers >= 0, separated by commas", Quoted(text)));
    }
    options.engines.cuda_devices.insert(ordinal);
  }
  RETURN_IF_ERROR(ValidateOptions(options));
  return options;
}

std::map<std::string, absl::CommandLineFlag*> ServerFlags() {
  std::map<std::string, absl::CommandLineFlag*> ours;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (absl::EndsWith(flag->Filename(), "server/config/flags.cc")) ours.emplace(std::string(name), flag);
  }
  return ours;
}

std::string FlagsHelp() {
  std::string help;
  for (const auto& [name, flag] : ServerFlags()) {
    absl::StrAppendFormat(&help, "  --%s=%s\n      %s\n", name, flag->DefaultValue(), flag->Help());
  }
  return help;
}

}  // namespace reduced::server
