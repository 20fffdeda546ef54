#include "server/options.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "server/listener.h"

namespace reduced {
namespace {

struct Unit {
  absl::string_view suffix;
  std::int64_t bytes;
};
constexpr Unit kUnits[] = {  // largest first
    {"TiB", std::int64_t{1} << 40},
    {"GiB", 1 << 30},
    {"MiB", 1 << 20},
    {"KiB", 1 << 10},
    {"", 1}};

// gRPC holds the size of a message in an int.
constexpr std::int64_t kMaxMessageBytes = std::numeric_limits<std::int32_t>::max();

constexpr absl::string_view kLogLevels[] = {"trace", "debug", "info", "warning", "error", "critical", "off"};

const ServerOptions& Defaults() {
  static const auto* const defaults = new ServerOptions;
  return *defaults;
}

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
  *error = "not a number of bytes: allowed are whole numbers >= 0, optionally with KiB, MiB, GiB or TiB, such as 64MiB";
  return false;
}

std::string AbslUnparseFlag(ByteSize size) {
  for (const Unit& unit : kUnits) {
    if (size.bytes >= unit.bytes && size.bytes % unit.bytes == 0)
      return absl::StrCat(size.bytes / unit.bytes, unit.suffix);
  }
  return absl::StrCat(size.bytes);
}

bool AbslParseFlag(absl::string_view text, FileMode* mode, std::string* error) {
  mode->bits = -1;
  if (text.empty()) return true;
  if (text.size() <= 4 && text.find_first_not_of("01234567") == absl::string_view::npos) {
    int bits = 0;
    for (const char digit : text) bits = bits * 8 + (digit - '0');
    if (bits <= 0777) {
      mode->bits = bits;
      return true;
    }
  }
  *error = "not the permissions of a file: allowed are octal numbers from 0 to 0777, such as 0660";
  return false;
}

std::string AbslUnparseFlag(FileMode mode) { return mode.bits < 0 ? "" : absl::StrFormat("%04o", mode.bits); }

}  // namespace reduced

using reduced::ByteSize;
using reduced::Defaults;
using reduced::FileMode;

ABSL_FLAG(std::vector<std::string>, listen, Defaults().listen,
          "where to listen, separated by commas: host:port, [ipv6]:port (port 0: any free one) or unix:/path");
ABSL_FLAG(std::string, ready_file, Defaults().ready_file,
          "file to write once the server serves, with the bound addresses, one a line; removed at exit; empty: none");
ABSL_FLAG(FileMode, socket_mode, FileMode{Defaults().socket_mode},
          "permissions of the Unix sockets and the ready file, in octal, such as 0660: who may write to a socket may "
          "connect; empty: as the umask leaves them");
ABSL_FLAG(
    ByteSize, max_message_bytes, ByteSize{Defaults().limits.max_message_bytes},
    "largest request message, in bytes; at most 2147483647; clients stream larger arrays in messages of up to 1 MiB");
ABSL_FLAG(std::int64_t, max_elements, Defaults().limits.max_elements, "largest array, in elements");
ABSL_FLAG(std::int32_t, max_ops, Defaults().limits.max_ops, "most operations in one request");
ABSL_FLAG(ByteSize, max_ladder_bytes, ByteSize{Defaults().limits.max_ladder_bytes},
          "largest array that a ladder makes, in bytes; there is one at a time");
ABSL_FLAG(std::int32_t, max_streams, Defaults().limits.max_streams,
          "arrays that stream in at once, each with up to 8 MiB of buffers; further ones are refused");
ABSL_FLAG(
    std::string, region_socket, Defaults().region_socket,
    "path of the Unix socket where processes of this machine share memory; auto: that of the first unix: address of "
    "--listen, with .regions after it; empty: none");
ABSL_FLAG(std::int32_t, max_region_connections, Defaults().regions.max_connections,
          "processes that share memory at once; further ones wait");
ABSL_FLAG(std::int32_t, max_regions, Defaults().regions.max_regions, "regions that one connection shares at once");
ABSL_FLAG(bool, allow_disk_files, Defaults().regions.allow_disk_files,
          "take descriptors of files on disk as regions, too, though reading them may take any time");
ABSL_FLAG(std::int32_t, max_sessions, Defaults().limits.max_sessions,
          "sessions open at once; further ones are refused");
ABSL_FLAG(std::int32_t, max_session_requests, Defaults().limits.max_session_requests,
          "requests of one session under way at once; the session is read no further until one is answered");
ABSL_FLAG(std::int32_t, max_arrays, Defaults().limits.max_arrays, "arrays that are kept at once, over all devices");
ABSL_FLAG(absl::Duration, array_ttl, Defaults().limits.array_ttl,
          "how long an array that is kept may go unused until it is deleted, if its client doesn't say, such as 10m");
ABSL_FLAG(absl::Duration, max_array_ttl, Defaults().limits.max_array_ttl, "the longest that a client may say");
ABSL_FLAG(ByteSize, memory_quota_bytes, ByteSize{Defaults().memory_quota_bytes},
          "memory of the transport's buffers over all connections, in bytes; at least twice max_message_bytes");
ABSL_FLAG(std::int32_t, max_concurrent_streams, Defaults().max_concurrent_streams, "calls at once on one connection");
ABSL_FLAG(std::int32_t, cpu_threads, Defaults().engines.cpu_threads,
          "threads of the CPU engine; 0: one for each core the process may use");
ABSL_FLAG(std::int32_t, cpu_lanes, Defaults().engines.cpu_lanes, "reductions at once on the CPU engine");
ABSL_FLAG(ByteSize, cpu_array_bytes, ByteSize{Defaults().engines.cpu_array_bytes},
          "arrays that are kept in host memory, together, in bytes; 0: none");
ABSL_FLAG(bool, cuda, Defaults().engines.cuda, "use a CUDA device if there is one");
ABSL_FLAG(std::int32_t, cuda_lanes, Defaults().engines.cuda_lanes, "reductions at once on a CUDA device");
ABSL_FLAG(ByteSize, cuda_array_bytes, ByteSize{Defaults().engines.cuda_array_bytes},
          "arrays that are kept in the memory of a CUDA device, together, in bytes; 0: none");
ABSL_FLAG(ByteSize, chunk_bytes, ByteSize{Defaults().engines.chunk_bytes},
          "chunk that arrays are copied to a CUDA device in, in bytes, from 64KiB to 1GiB; each lane pins three");
ABSL_FLAG(std::int32_t, queue_limit, Defaults().engines.queue_limit,
          "reductions waiting for a lane, for each engine; further ones are refused");
ABSL_FLAG(absl::Duration, drain_timeout, Defaults().drain_timeout,
          "how long SIGTERM or SIGINT lets running requests finish, such as 10s or 500ms");
ABSL_FLAG(std::string, log_level, Defaults().log_level,
          "trace, debug (one line for each request), info, warning, error, critical or off");

namespace reduced {

absl::Status ValidateOptions(const ServerOptions& options) {
  if (options.listen.empty()) {
    return absl::InvalidArgumentError("--listen is empty, at least 1 address is needed, such as 127.0.0.1:50051");
  }
  for (const std::string& address : options.listen) {
    const absl::StatusOr<ListenAddress> parsed = ParseListenAddress(address);
    if (!parsed.ok()) return parsed.status();
  }

  struct Range {
    absl::string_view flag;
    std::int64_t value, low, high;
  };
  constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  const Range ranges[] = {
      {"max_message_bytes", options.limits.max_message_bytes, 1024, kMaxMessageBytes},
      {"max_elements", options.limits.max_elements, 1, kAny},
      {"max_ops", options.limits.max_ops, 1, 4096},
      {"max_ladder_bytes", options.limits.max_ladder_bytes, 8, kAny},
      {"max_streams", options.limits.max_streams, 1, 1 << 20},
      {"max_sessions", options.limits.max_sessions, 1, 1 << 20},
      {"max_session_requests", options.limits.max_session_requests, 1, 1 << 16},
      {"max_arrays", options.limits.max_arrays, 0, 1 << 20},
      {"memory_quota_bytes", options.memory_quota_bytes, 2 * options.limits.max_message_bytes, kAny},
      {"max_concurrent_streams", options.max_concurrent_streams, 1, std::numeric_limits<std::int32_t>::max()},
      {"cpu_threads", options.engines.cpu_threads, 0, 4096},
      {"cpu_lanes", options.engines.cpu_lanes, 1, 1024},
      {"cpu_array_bytes", options.engines.cpu_array_bytes, 0, kAny},
      {"cuda_lanes", options.engines.cuda_lanes, 1, 128},
      {"cuda_array_bytes", options.engines.cuda_array_bytes, 0, kAny},
      {"chunk_bytes", options.engines.chunk_bytes, 64 << 10, 1 << 30},
      {"queue_limit", options.engines.queue_limit, 1, 1 << 20},
      {"max_region_connections", options.regions.max_connections, 1, 1 << 16},
      {"max_regions", options.regions.max_regions, 1, 1 << 20},
  };
  for (const Range& range : ranges) {
    if (range.value < range.low || range.value > range.high) {
      return absl::InvalidArgumentError(
          absl::StrFormat("--%s is %d, allowed are %d to %d", range.flag, range.value, range.low, range.high));
    }
  }
  struct Span {
    absl::string_view flag;
    absl::Duration value, low, high;
  };
  const Span spans[] = {
      {"max_array_ttl", options.limits.max_array_ttl, absl::Milliseconds(1), absl::Hours(10'000)},
      {"array_ttl", options.limits.array_ttl, absl::Milliseconds(1), options.limits.max_array_ttl},
      {"drain_timeout", options.drain_timeout, absl::ZeroDuration(), absl::Hours(24)},
  };
  for (const Span& span : spans) {
    if (span.value < span.low || span.value > span.high) {
      return absl::InvalidArgumentError(absl::StrCat("--", span.flag, " is ", absl::FormatDuration(span.value),
                                                     ", allowed are ", absl::FormatDuration(span.low), " to ",
                                                     absl::FormatDuration(span.high)));
    }
  }
  if (std::find(std::begin(kLogLevels), std::end(kLogLevels), options.log_level) == std::end(kLogLevels)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--log_level is '%s', allowed are %s", absl::CHexEscape(options.log_level), absl::StrJoin(kLogLevels, ", ")));
  }
  return absl::OkStatus();
}

absl::StatusOr<ServerOptions> OptionsFromFlags() {
  ServerOptions options;
  options.listen = absl::GetFlag(FLAGS_listen);
  options.ready_file = absl::GetFlag(FLAGS_ready_file);
  options.socket_mode = absl::GetFlag(FLAGS_socket_mode).bits;
  options.limits.max_message_bytes = absl::GetFlag(FLAGS_max_message_bytes).bytes;
  options.limits.max_elements = absl::GetFlag(FLAGS_max_elements);
  options.limits.max_ops = absl::GetFlag(FLAGS_max_ops);
  options.limits.max_ladder_bytes = absl::GetFlag(FLAGS_max_ladder_bytes).bytes;
  options.limits.max_streams = absl::GetFlag(FLAGS_max_streams);
  options.limits.max_sessions = absl::GetFlag(FLAGS_max_sessions);
  options.limits.max_session_requests = absl::GetFlag(FLAGS_max_session_requests);
  options.limits.max_arrays = absl::GetFlag(FLAGS_max_arrays);
  options.limits.array_ttl = absl::GetFlag(FLAGS_array_ttl);
  options.limits.max_array_ttl = absl::GetFlag(FLAGS_max_array_ttl);
  options.memory_quota_bytes = absl::GetFlag(FLAGS_memory_quota_bytes).bytes;
  options.max_concurrent_streams = absl::GetFlag(FLAGS_max_concurrent_streams);
  options.engines.cpu_threads = absl::GetFlag(FLAGS_cpu_threads);
  options.engines.cpu_lanes = absl::GetFlag(FLAGS_cpu_lanes);
  options.engines.cpu_array_bytes = absl::GetFlag(FLAGS_cpu_array_bytes).bytes;
  options.engines.cuda = absl::GetFlag(FLAGS_cuda);
  options.engines.cuda_lanes = absl::GetFlag(FLAGS_cuda_lanes);
  options.engines.cuda_array_bytes = absl::GetFlag(FLAGS_cuda_array_bytes).bytes;
  options.engines.chunk_bytes = absl::GetFlag(FLAGS_chunk_bytes).bytes;
  options.engines.queue_limit = absl::GetFlag(FLAGS_queue_limit);
  options.region_socket = absl::GetFlag(FLAGS_region_socket);
  options.regions.max_connections = absl::GetFlag(FLAGS_max_region_connections);
  options.regions.max_regions = absl::GetFlag(FLAGS_max_regions);
  options.regions.allow_disk_files = absl::GetFlag(FLAGS_allow_disk_files);
  options.drain_timeout = absl::GetFlag(FLAGS_drain_timeout);
  options.log_level = absl::GetFlag(FLAGS_log_level);
  const absl::Status valid = ValidateOptions(options);
  if (!valid.ok()) return valid;
  return options;
}

std::string FlagsHelp() {
  std::map<absl::string_view, const absl::CommandLineFlag*> ours;  // by name; the libraries' own flags left out
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (absl::EndsWith(flag->Filename(), "server/options.cc")) ours.emplace(name, flag);
  }
  std::string help;
  for (const auto& [name, flag] : ours) {
    absl::StrAppendFormat(&help, "  --%s=%s\n      %s\n", name, flag->DefaultValue(), flag->Help());
  }
  return help;
}

}  // namespace reduced
