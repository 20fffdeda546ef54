#include "server/config/options.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/system/quoted.h"
#include "kernels/system/status_macros.h"
#include "server/config/listener.h"

namespace reduced::server {
namespace {

// gRPC stores the size of a message in an int.
constexpr std::int64_t kGrpcMaxMessageBytes = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();

constexpr absl::Duration kMaxIdle = absl::Hours(500);  // gRPC stores milliseconds in an int

constexpr absl::string_view kLogFormats[] = {"text", "json"};
constexpr absl::string_view kLogLevels[] = {"trace", "debug", "info", "warning", "error", "critical", "off"};

absl::Status CheckNumbers(const ServerOptions& options) {
  const struct {
    absl::string_view flag;
    std::int64_t value, low, high;
  } ranges[] = {
      {"max_message_bytes", options.limits.max_message_bytes, 1024, kGrpcMaxMessageBytes},
      {"max_elements", options.limits.max_elements, 1, kAny},
      {"max_ops", options.limits.max_ops, 1, 4096},
      {"max_ladder_bytes", options.limits.max_ladder_bytes, 8, kAny},
      {"max_result_bytes", options.limits.max_result_bytes, 8, 64 << 20},
      {"max_streams", options.limits.max_streams, 1, 1 << 20},
      {"max_sessions", options.limits.max_sessions, 1, 1 << 20},
      {"max_session_requests", options.limits.max_session_requests, 1, 1 << 16},
      {"max_ring_bytes", options.limits.max_ring_bytes, 0, std::int64_t{1} << 40},
      {"max_arrays", options.limits.max_arrays, 0, 1 << 20},
      {"memory_bytes", options.memory_bytes, 0, kAny},
      {"memory_quota_bytes", options.memory_quota_bytes, 2 * options.limits.max_message_bytes, kAny},
      {"max_connections", options.connections.max_connections, 0, 1 << 24},
      {"max_connections_per_peer", options.connections.max_connections_per_peer, 0, 1 << 24},
      {"max_concurrent_streams", options.max_concurrent_streams, 1, std::numeric_limits<std::int32_t>::max()},
      {"cpu_threads", options.engines.cpu_threads, 0, 4096},
      {"cpu_lanes", options.engines.cpu_lanes, 1, 1024},
      {"cpu_array_bytes", options.engines.cpu_array_bytes, 0, kAny},
      {"cuda_lanes", options.engines.cuda_lanes, 1, 128},
      {"cuda_array_bytes", options.engines.cuda_array_bytes.value_or(0), 0, kAny},
      {"cuda_staging_bytes", options.engines.cuda_staging_bytes, 0, std::int64_t{64} << 30},
      {"chunk_bytes", options.engines.chunk_bytes, 64 << 10, 1 << 30},
      {"queue_limit", options.engines.queue_limit, 1, 1 << 20},
      {"max_region_connections", options.regions.max_connections, 1, 1 << 16},
      {"max_regions", options.regions.max_regions, 1, 1 << 20},
      {"max_identity_requests", options.security.max_identity_requests, 0, 1 << 20},
      {"max_identity_sessions", options.security.max_identity_sessions, 0, 1 << 20},
      {"max_identity_arrays", options.security.max_identity_arrays, 0, 1 << 20},
      {"max_identity_array_bytes", options.security.max_identity_array_bytes, 0, kAny},
  };
  for (const auto& range : ranges) {
    if (range.value >= range.low && range.value <= range.high) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("--%s: got %d; allowed: %d to %d", range.flag, range.value, range.low, range.high));
  }
  const double share = options.limits.caller_share;
  if (share >= 0.01 && share <= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("--caller_share: got %g; allowed: 0.01 to 1", share));
}

absl::Status CheckDurations(const ServerOptions& options) {
  const struct {
    absl::string_view flag;
    absl::Duration value, low, high;
  } ranges[] = {
      {"max_run_time", options.limits.max_run_time, absl::Milliseconds(1), absl::Hours(10'000)},
      {"max_array_ttl", options.limits.max_array_ttl, absl::Milliseconds(1), absl::Hours(10'000)},
      {"array_ttl", options.limits.array_ttl, absl::Milliseconds(1), options.limits.max_array_ttl},
      {"queue_target", options.engines.queue_target, absl::Milliseconds(1), absl::Hours(24)},
      {"header_timeout", options.limits.timeouts.header, absl::Milliseconds(10), absl::Hours(24)},
      {"progress_timeout", options.limits.timeouts.progress, absl::Milliseconds(10), absl::Hours(24)},
      {"session_idle_timeout", options.limits.timeouts.session_idle, absl::Milliseconds(10), absl::Hours(24)},
      {"device_timeout", options.engines.device_timeout, absl::Milliseconds(10), absl::Hours(24)},
      {"drain_delay", options.drain_delay, absl::ZeroDuration(), absl::Hours(24)},
      {"drain_timeout", options.drain_timeout, absl::ZeroDuration(), absl::Hours(24)},
      {"handshake_timeout", options.connections.handshake_timeout, absl::Milliseconds(10), absl::Hours(1)},
      {"max_connection_idle", options.connections.max_idle, absl::ZeroDuration(), kMaxIdle},
      {"max_connection_age", options.connections.max_age, absl::ZeroDuration(), kMaxIdle},
      {"keepalive_time", options.connections.keepalive_time, absl::Seconds(1), kMaxIdle},
      {"keepalive_timeout", options.connections.keepalive_timeout, absl::Milliseconds(10), absl::Hours(1)},
      {"credentials_refresh", options.security.credentials_refresh, absl::Milliseconds(10), absl::Hours(24)},
      {"region_idle_timeout", options.regions.idle_timeout, absl::Milliseconds(10), absl::Hours(24)},
      {"slow_request", options.slow_request, absl::ZeroDuration(), absl::Hours(24)},
  };
  for (const auto& range : ranges) {
    if (range.value >= range.low && range.value <= range.high) continue;
    return absl::InvalidArgumentError(absl::StrCat("--", range.flag, ": got ", absl::FormatDuration(range.value),
                                                   "; allowed: ", absl::FormatDuration(range.low), " to ",
                                                   absl::FormatDuration(range.high)));
  }
  return absl::OkStatus();
}

absl::Status CheckSecurity(const SecurityOptions& options) {
  const bool cert = !options.tls_cert.empty();
  const bool key = !options.tls_key.empty();
  const bool tokens = !options.token_file.empty();
  const struct {
    absl::string_view flag;
    bool set;
    absl::string_view required;
    bool there;
  } requirements[] = {
      {"tls_cert", cert, "--tls_key", key},
      {"tls_key", key, "--tls_cert", cert},
      {"tls_client_ca", !options.tls_client_ca.empty(), "--tls_cert and --tls_key", cert},
      {"open_health", options.open_health, "--token_file", tokens},
  };
  for (const auto& each : requirements) {
    if (!each.set || each.there) continue;
    return absl::InvalidArgumentError(absl::StrCat("--", each.flag, " requires ", each.required));
  }
  return absl::OkStatus();
}

template <class Words>
absl::Status CheckWord(absl::string_view flag, const std::string& value, const Words& allowed) {
  if (std::find(std::begin(allowed), std::end(allowed), value) != std::end(allowed)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("--%s: got %s; allowed: %s", flag, Quoted(value), absl::StrJoin(allowed, ", ")));
}

absl::Status CheckListen(const std::vector<std::string>& listen) {
  if (listen.empty()) {
    return absl::InvalidArgumentError("--listen: got no address; at least 1 is required, such as 127.0.0.1:50051");
  }
  for (const std::string& address : listen) {
    RETURN_IF_ERROR(ParseListenAddress(address).status());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateOptions(const ServerOptions& options) {
  absl::Status status = CheckListen(options.listen);
  status.Update(ParseSocketMode(options.unix_socket_mode).status());
  status.Update(CheckSecurity(options.security));
  status.Update(CheckNumbers(options));
  status.Update(CheckDurations(options));
  status.Update(CheckWord("log_level", options.log_level, kLogLevels));
  status.Update(CheckWord("log_format", options.log_format, kLogFormats));
  if (!options.metrics_listen.empty() && options.metrics_listen != "auto") {
    status.Update(ParseHttpAddress("metrics_listen", options.metrics_listen).status());
  }
  return status;
}

std::string RegionSocket(const ServerOptions& options) {
  if (options.region_socket != "auto") return options.region_socket;
  for (const std::string& text : options.listen) {
    const ListenAddress address = *ParseListenAddress(text);
    if (address.unix_path.empty()) continue;
    for (const char* const suffix : {".regions", ".r"}) {
      std::string path = absl::StrCat(address.unix_path, suffix);
      if (path.size() <= kMaxUnixPath) return path;
    }
    return "";
  }
  return "";
}

absl::Status CheckAddresses(const ServerOptions& options) {
  std::vector<FlagAddress> addresses;
  for (const std::string& text : options.listen) addresses.push_back({"listen", *ParseListenAddress(text)});
  if (const std::string path = RegionSocket(options); !path.empty()) {
    if (!ParseListenAddress(absl::StrCat("unix:", path)).ok()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("--region_socket: got %s; allowed: a path of at most %d bytes that begins with /",
                          Quoted(path, 2 * kMaxUnixPath), kMaxUnixPath));
    }
    addresses.push_back({"region_socket", {.text = path, .unix_path = path, .host = ""}});
  }
  if (!options.metrics_listen.empty() && options.metrics_listen != "auto") {
    addresses.push_back({"metrics_listen", *ParseHttpAddress("metrics_listen", options.metrics_listen)});
  }
  return CheckDistinct(addresses);
}

MemoryShares SharesOf(const ServerOptions& options, std::int64_t usable) {
  const std::int64_t all = options.memory_bytes > 0 ? options.memory_bytes : usable / 4 * 3;
  const std::int64_t transport =
      std::max(2 * options.limits.max_message_bytes, std::min(options.memory_quota_bytes, all / 4));
  return {.transport = transport, .requests = std::max<std::int64_t>(0, all - transport)};
}

ObserverOptions ObserverOptionsOf(const ServerOptions& options) {
  return {.metrics = !options.metrics_listen.empty(),
          .request_ids = options.request_ids,
          .json_log = options.log_format == "json",
          .slow_request = options.slow_request};
}

}  // namespace reduced::server
