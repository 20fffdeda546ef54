// Flags and options: what they read and what they refuse.
#include "server/config/options.h"

#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/reflection.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/config/flags.h"
#include "server/config/listener.h"

namespace reduced::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

void SetFlag(const std::string& name, const std::string& value) {
  std::string error;
  ASSERT_TRUE(absl::FindCommandLineFlag(name)->ParseFrom(value, &error)) << name << ": " << error;
}

TEST(OptionsTest, DefaultsAreValidAndThoseOfTheFlags) {
  const ServerOptions defaults;
  EXPECT_TRUE(ValidateOptions(defaults).ok());
  const absl::StatusOr<ServerOptions> flags = OptionsFromFlags();
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->listen, defaults.listen);
  EXPECT_EQ(flags->limits.max_message_bytes, defaults.limits.max_message_bytes);
  EXPECT_EQ(flags->engines.chunk_bytes, defaults.engines.chunk_bytes);
  EXPECT_EQ(flags->drain_timeout, defaults.drain_timeout);
}

TEST(OptionsTest, FlagsFillEveryField) {
  const absl::FlagSaver saver;
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"listen", "127.0.0.1:0,unix:/tmp/x"},
                                                        {"ready_file", "/tmp/ready"},
                                                        {"max_connections", "12"},
                                                        {"max_connections_per_peer", "11"},
                                                        {"handshake_timeout", "2s"},
                                                        {"max_connection_idle", "3s"},
                                                        {"max_connection_age", "4s"},
                                                        {"keepalive_time", "5s"},
                                                        {"keepalive_timeout", "6s"},
                                                        {"max_message_bytes", "1MiB"},
                                                        {"max_elements", "1000"},
                                                        {"max_ops", "3"},
                                                        {"max_ladder_bytes", "2GiB"},
                                                        {"max_streams", "3"},
                                                        {"max_sessions", "2"},
                                                        {"max_session_requests", "4"},
                                                        {"max_arrays", "4"},
                                                        {"array_ttl", "2m"},
                                                        {"max_array_ttl", "3m"},
                                                        {"max_run_time", "7m"},
                                                        {"device_timeout", "90s"},
                                                        {"memory_bytes", "9GiB"},
                                                        {"header_timeout", "4s"},
                                                        {"progress_timeout", "5s"},
                                                        {"session_idle_timeout", "6s"},
                                                        {"memory_quota_bytes", "3000000"},
                                                        {"max_concurrent_streams", "5"},
                                                        {"cpu_threads", "6"},
                                                        {"cpu_lanes", "7"},
                                                        {"cpu_array_bytes", "5MiB"},
                                                        {"cuda", "false"},
                                                        {"cuda_lanes", "8"},
                                                        {"cuda_array_bytes", "6MiB"},
                                                        {"chunk_bytes", "128KiB"},
                                                        {"queue_limit", "9"},
                                                        {"queue_target", "8s"},
                                                        {"drain_timeout", "1500ms"},
                                                        {"log_level", "debug"},
                                                        {"log_format", "json"},
                                                        {"metrics_listen", "[::1]:0"},
                                                        {"status_page", "false"},
                                                        {"request_ids", "false"},
                                                        {"slow_request", "250ms"}}) {
    SetFlag(name, value);
  }
  const absl::StatusOr<ServerOptions> options = OptionsFromFlags();
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_THAT(options->listen, ElementsAre("127.0.0.1:0", "unix:/tmp/x"));
  EXPECT_EQ(options->ready_file, "/tmp/ready");
  EXPECT_EQ(options->connections.max_connections, 12);
  EXPECT_EQ(options->connections.max_connections_per_peer, 11);
  EXPECT_EQ(options->connections.handshake_timeout, absl::Seconds(2));
  EXPECT_EQ(options->connections.max_idle, absl::Seconds(3));
  EXPECT_EQ(options->connections.max_age, absl::Seconds(4));
  EXPECT_EQ(options->connections.keepalive_time, absl::Seconds(5));
  EXPECT_EQ(options->connections.keepalive_timeout, absl::Seconds(6));
  EXPECT_EQ(options->limits.max_message_bytes, 1 << 20);
  EXPECT_EQ(options->limits.max_elements, 1000);
  EXPECT_EQ(options->limits.max_ops, 3);
  EXPECT_EQ(options->limits.max_ladder_bytes, std::int64_t{2} << 30);
  EXPECT_EQ(options->limits.max_streams, 3);
  EXPECT_EQ(options->limits.max_sessions, 2);
  EXPECT_EQ(options->limits.max_session_requests, 4);
  EXPECT_EQ(options->limits.timeouts.header, absl::Seconds(4));
  EXPECT_EQ(options->limits.timeouts.progress, absl::Seconds(5));
  EXPECT_EQ(options->limits.timeouts.session_idle, absl::Seconds(6));
  EXPECT_EQ(options->limits.max_arrays, 4);
  EXPECT_EQ(options->limits.array_ttl, absl::Minutes(2));
  EXPECT_EQ(options->limits.max_array_ttl, absl::Minutes(3));
  EXPECT_EQ(options->limits.max_run_time, absl::Minutes(7));
  EXPECT_EQ(options->engines.device_timeout, absl::Seconds(90));
  EXPECT_EQ(options->memory_bytes, std::int64_t{9} << 30);
  EXPECT_EQ(options->memory_quota_bytes, 3'000'000);
  EXPECT_EQ(options->max_concurrent_streams, 5);
  EXPECT_EQ(options->engines.cpu_threads, 6);
  EXPECT_EQ(options->engines.cpu_lanes, 7);
  EXPECT_EQ(options->engines.cpu_array_bytes, 5 << 20);
  EXPECT_FALSE(options->engines.cuda);
  EXPECT_EQ(options->engines.cuda_lanes, 8);
  EXPECT_EQ(options->engines.cuda_array_bytes, 6 << 20);
  EXPECT_EQ(options->engines.chunk_bytes, 128 << 10);
  EXPECT_EQ(options->engines.queue_limit, 9);
  EXPECT_EQ(options->engines.queue_target, absl::Seconds(8));
  EXPECT_EQ(options->drain_timeout, absl::Milliseconds(1500));
  EXPECT_EQ(options->log_level, "debug");
  EXPECT_EQ(options->log_format, "json");
  EXPECT_EQ(options->metrics_listen, "[::1]:0");
  EXPECT_FALSE(options->status_page);
  EXPECT_FALSE(options->request_ids);
  EXPECT_EQ(options->slow_request, absl::Milliseconds(250));
  const std::string help = FlagsHelp();
  for (const std::string flag : {"--listen=127.0.0.1:50051\n", "--max_message_bytes=64MiB\n",
                                 "--max_ladder_bytes=4GiB\n", "--drain_timeout=10s\n"}) {
    EXPECT_THAT(help, HasSubstr(flag));
  }
}

TEST(OptionsTest, BadOnesAreNamed) {
  using Change = std::function<void(ServerOptions*)>;
  for (const auto& [change, says] : std::vector<std::pair<Change, std::string>>{
           {[](ServerOptions* o) { o->listen.clear(); }, "--listen: got no address"},
           {[](ServerOptions* o) { o->listen = {"nonsense"}; }, "'nonsense', which has no port"},
           {[](ServerOptions* o) { o->connections.max_connections = -1; }, "--max_connections: got -1; allowed: 0"},
           {[](ServerOptions* o) { o->connections.max_connections_per_peer = -1; },
            "--max_connections_per_peer: got -1; allowed: 0"},
           {[](ServerOptions* o) { o->connections.handshake_timeout = absl::ZeroDuration(); },
            "--handshake_timeout: got 0; allowed: 10ms"},
           {[](ServerOptions* o) { o->connections.max_idle = absl::InfiniteDuration(); },
            "--max_connection_idle: got inf; allowed: 0 to 500h"},
           {[](ServerOptions* o) { o->connections.max_age = absl::Seconds(-1); }, "--max_connection_age: got -1s"},
           {[](ServerOptions* o) { o->connections.keepalive_time = absl::ZeroDuration(); },
            "--keepalive_time: got 0; allowed: 1s"},
           {[](ServerOptions* o) { o->connections.keepalive_timeout = absl::ZeroDuration(); },
            "--keepalive_timeout: got 0; allowed: 10ms"},
           {[](ServerOptions* o) { o->limits.max_message_bytes = 0; }, "--max_message_bytes: got 0; allowed: 1024"},
           {[](ServerOptions* o) { o->limits.max_message_bytes = std::int64_t{1} << 31; }, "to 2147483647"},
           {[](ServerOptions* o) { o->limits.max_elements = 0; }, "--max_elements: got 0"},
           {[](ServerOptions* o) { o->limits.max_ops = 0; }, "--max_ops: got 0"},
           {[](ServerOptions* o) { o->limits.max_ladder_bytes = 7; }, "--max_ladder_bytes: got 7; allowed: 8"},
           {[](ServerOptions* o) { o->limits.max_streams = 0; }, "--max_streams: got 0; allowed: 1"},
           {[](ServerOptions* o) { o->limits.max_sessions = 0; }, "--max_sessions: got 0; allowed: 1"},
           {[](ServerOptions* o) { o->limits.max_session_requests = 0; }, "--max_session_requests: got 0; allowed: 1"},
           {[](ServerOptions* o) { o->limits.max_arrays = -1; }, "--max_arrays: got -1; allowed: 0"},
           {[](ServerOptions* o) { o->limits.array_ttl = absl::Hours(25); },
            "--array_ttl: got 25h; allowed: 1ms to 24h"},
           {[](ServerOptions* o) { o->limits.max_run_time = absl::ZeroDuration(); }, "--max_run_time: got 0"},
           {[](ServerOptions* o) { o->engines.device_timeout = absl::ZeroDuration(); }, "--device_timeout: got 0"},
           {[](ServerOptions* o) { o->memory_bytes = -1; }, "--memory_bytes: got -1"},
           {[](ServerOptions* o) { o->limits.max_array_ttl = absl::ZeroDuration(); }, "--max_array_ttl: got 0"},
           {[](ServerOptions* o) { o->engines.cpu_array_bytes = -1; }, "--cpu_array_bytes: got -1"},
           {[](ServerOptions* o) { o->engines.cuda_array_bytes = -1; }, "--cuda_array_bytes: got -1"},
           {[](ServerOptions* o) { o->memory_quota_bytes = 1 << 20; }, "--memory_quota_bytes: got 1048576"},
           {[](ServerOptions* o) { o->max_concurrent_streams = 0; }, "--max_concurrent_streams: got 0"},
           {[](ServerOptions* o) { o->engines.cpu_threads = -1; }, "--cpu_threads: got -1; allowed: 0"},
           {[](ServerOptions* o) { o->engines.cpu_lanes = 0; }, "--cpu_lanes: got 0"},
           {[](ServerOptions* o) { o->engines.cuda_lanes = 0; }, "--cuda_lanes: got 0"},
           {[](ServerOptions* o) { o->engines.chunk_bytes = 100; }, "--chunk_bytes: got 100; allowed: 65536"},
           {[](ServerOptions* o) { o->engines.queue_limit = 0; }, "--queue_limit: got 0"},
           {[](ServerOptions* o) { o->drain_timeout = absl::Seconds(-1); }, "--drain_timeout: got -1s"},
           {[](ServerOptions* o) { o->drain_timeout = absl::InfiniteDuration(); }, "--drain_timeout: got inf"},
           {[](ServerOptions* o) { o->unix_socket_mode = "rw\n"; }, "--unix_socket_mode: got 'rw\\n'; allowed: 0 to"},
           {[](ServerOptions* o) { o->unix_socket_mode = "0688"; }, "--unix_socket_mode: got '0688'"},
           {[](ServerOptions* o) { o->unix_socket_mode = "1777"; }, "--unix_socket_mode: got '1777'"},
           {[](ServerOptions* o) { o->security.tls_cert = "x"; }, "--tls_cert requires --tls_key"},
           {[](ServerOptions* o) { o->security.tls_key = "x"; }, "--tls_key requires --tls_cert"},
           {[](ServerOptions* o) { o->security.tls_client_ca = "x"; },
            "--tls_client_ca requires --tls_cert and --tls_key"},
           {[](ServerOptions* o) { o->security.open_health = true; }, "--open_health requires --token_file"},
           {[](ServerOptions* o) {
              o->security.max_identity_requests = -1;
              o->security.token_file = "x";
            },
            "--max_identity_requests: got -1; allowed: 0"},
           {[](ServerOptions* o) {
              o->security.max_identity_array_bytes = -1;
              o->security.token_file = "x";
            },
            "--max_identity_array_bytes: got -1; allowed: 0"},
           {[](ServerOptions* o) { o->limits.timeouts.header = absl::ZeroDuration(); },
            "--header_timeout: got 0; allowed: 10ms"},
           {[](ServerOptions* o) { o->limits.timeouts.progress = absl::Hours(25); },
            "--progress_timeout: got 25h; allowed: 10ms to 24h"},
           {[](ServerOptions* o) { o->limits.timeouts.session_idle = absl::ZeroDuration(); },
            "--session_idle_timeout: got 0; allowed: 10ms"},
           {[](ServerOptions* o) {
              o->security.max_identity_sessions = -1;
              o->security.token_file = "x";
            },
            "--max_identity_sessions: got -1; allowed: 0"},
           {[](ServerOptions* o) {
              o->security.max_identity_arrays = -1;
              o->security.token_file = "x";
            },
            "--max_identity_arrays: got -1; allowed: 0"},
           {[](ServerOptions* o) { o->security.credentials_refresh = absl::ZeroDuration(); },
            "--credentials_refresh: got 0; allowed: 10ms"},
           {[](ServerOptions* o) { o->log_level = "loud\n"; }, "--log_level: got 'loud\\n'"},
           {[](ServerOptions* o) { o->log_format = "xml"; }, "--log_format: got 'xml'; allowed: text, json"},
           {[](ServerOptions* o) { o->slow_request = absl::Seconds(-1); }, "--slow_request: got -1s"},
           {[](ServerOptions* o) { o->metrics_listen = "9464"; }, "--metrics_listen: got '9464'; allowed: host:port"},
           {[](ServerOptions* o) { o->metrics_listen = "unix:/x"; }, "--metrics_listen: got 'unix:/x'"}}) {
    ServerOptions options;
    change(&options);
    const absl::Status status = ValidateOptions(options);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << says;
    EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  }
}

TEST(ByteSizeTest, ReadsAndWrites) {
  for (const auto& [text, bytes, canonical] : std::vector<std::tuple<std::string, std::int64_t, std::string>>{
           {"0", 0, "0"},
           {"123", 123, "123"},
           {"1024", 1024, "1KiB"},
           {"64MiB", 64 << 20, "64MiB"},
           {"64Mi", 64 << 20, "64MiB"},
           {"2048MiB", std::int64_t{2} << 30, "2GiB"},
           {"8388607TiB", std::int64_t{8388607} << 40, "8388607TiB"}}) {
    ByteSize size;
    std::string error;
    EXPECT_TRUE(AbslParseFlag(text, &size, &error)) << text << ": " << error;
    EXPECT_EQ(size.bytes, bytes);
    EXPECT_EQ(AbslUnparseFlag(size), canonical);
  }
  for (const std::string text : {"", "-1", "1.5MiB", "MiB", "1MB", "1 MiB x", "8388608TiB", "99999999999999999999"}) {
    ByteSize size;
    std::string error;
    EXPECT_FALSE(AbslParseFlag(text, &size, &error)) << text;
    EXPECT_THAT(error, HasSubstr("64MiB"));
  }
}

TEST(ByteSizeTest, MayBeLeftToTheServer) {
  for (const auto& [text, bytes] : std::vector<std::pair<std::string, std::optional<std::int64_t>>>{
           {"auto", std::nullopt}, {"0", 0}, {"64MiB", 64 << 20}}) {
    AutoByteSize size{.bytes = 1};
    std::string error;
    EXPECT_TRUE(AbslParseFlag(text, &size, &error)) << text << ": " << error;
    EXPECT_EQ(size.bytes, bytes);
    EXPECT_EQ(AbslUnparseFlag(size), text);
  }
  for (const std::string text : {"", "Auto", "75%", "-1"}) {
    AutoByteSize size;
    std::string error;
    EXPECT_FALSE(AbslParseFlag(text, &size, &error)) << text;
    EXPECT_THAT(error, HasSubstr("or auto"));
  }
}

TEST(ListenAddressTest, ReadsHostsPortsAndPaths) {
  const absl::StatusOr<ListenAddress> ipv4 = ParseListenAddress("127.0.0.1:0");
  ASSERT_TRUE(ipv4.ok());
  EXPECT_EQ(ipv4->host, "127.0.0.1");
  EXPECT_EQ(BoundAddress(*ipv4, 4711), "127.0.0.1:4711");
  const absl::StatusOr<ListenAddress> ipv6 = ParseListenAddress("[::1]:65535");
  ASSERT_TRUE(ipv6.ok());
  EXPECT_EQ(ipv6->host, "::1");
  EXPECT_EQ(ipv6->port, 65535);
  EXPECT_EQ(BoundAddress(*ipv6, 65535), "[::1]:65535");
  const absl::StatusOr<ListenAddress> path = ParseListenAddress("unix:/run/reduced.sock");
  ASSERT_TRUE(path.ok());
  EXPECT_EQ(path->unix_path, "/run/reduced.sock");

  for (const std::string text :
       {"", "host", ":1", "host:", "host:65536", "host:-1", "host:x", "::1:5", "unix:", "unix:relative", "[]:1"}) {
    const absl::Status status = ParseListenAddress(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("'" + text + "'"), HasSubstr("host:port")));
  }
  EXPECT_THAT(std::string(ParseListenAddress("unix:/" + std::string(200, 'x')).status().message()),
              HasSubstr("has 201 bytes, more than 107"));
}

// Why two of the addresses can't be bound together; empty: they can.
std::string WhyNotDistinct(const std::vector<std::string>& listen, const std::string& metrics = "",
                           const std::string& regions = "auto") {
  ServerOptions options;
  options.listen = listen;
  options.metrics_listen = metrics;
  options.region_socket = regions;
  EXPECT_TRUE(ValidateOptions(options).ok());
  return std::string(CheckAddresses(options).message());
}

TEST(AddressesTest, MustDiffer) {
  const std::string link = testing::TempDir() + "link-" + std::to_string(getpid());
  std::filesystem::create_directory_symlink("/tmp", link);
  const std::vector<std::vector<std::string>> same = {{"127.0.0.1:1", "127.0.0.1:1"},
                                                      {"127.0.0.1:1", "0.0.0.0:1"},
                                                      {"0.0.0.0:1", "127.0.0.1:1"},
                                                      {"127.0.0.1:1", "[::]:1"},
                                                      {"[::]:1", "[::1]:1"},
                                                      {"0.0.0.0:1", "[::]:1"},
                                                      {"[::1]:1", "[0:0::1]:1"},
                                                      {"[::ffff:127.0.0.1]:1", "127.0.0.1:1"},
                                                      {"127.1:1", "127.0.0.1:1"},
                                                      {"localhost:1", "127.0.0.1:1"},
                                                      {"unix:/tmp/a", "unix:/tmp/a"},
                                                      {"unix:/tmp/a", "unix:/tmp/./a"},
                                                      {"unix:/tmp/a", "unix:/tmp//a"},
                                                      {"unix:/tmp/a", "unix:/tmp/../tmp/a"},
                                                      {"unix:/none/a", "unix:/none/./a"},
                                                      {"unix:/tmp/a", "unix:" + link + "/a"}};
  for (const auto& listen : same) {
    EXPECT_THAT(WhyNotDistinct(listen), AllOf(HasSubstr("--listen: got " + listen[1]),
                                              HasSubstr("is taken by --listen=" + listen[0] + "; allowed: ")))
        << listen[0];
  }
  std::filesystem::remove(link);
  EXPECT_THAT(WhyNotDistinct({"127.0.0.1:1"}, "0.0.0.0:1"), HasSubstr("--metrics_listen: got 0.0.0.0:1, which is"));
  EXPECT_THAT(WhyNotDistinct({"unix:/tmp/a", "unix:/tmp/a.regions"}),
              HasSubstr("--region_socket: got /tmp/a.regions, which is taken by --listen=unix:/tmp/a.regions"));
  EXPECT_THAT(WhyNotDistinct({"unix:/tmp/a"}, "", "/tmp/./a"), HasSubstr("--region_socket: got /tmp/./a, which is"));
  const std::vector<std::vector<std::string>> distinct = {{"127.0.0.1:1", "127.0.0.1:2"},
                                                          {"127.0.0.1:1", "127.0.0.2:1"},
                                                          {"127.0.0.1:0", "127.0.0.1:0", "0.0.0.0:0"},
                                                          {"127.0.0.1:1", "[::1]:1"},
                                                          {"[::1]:1", "0.0.0.0:1"},
                                                          {"unix:/tmp/a", "unix:/tmp/b", "127.0.0.1:1"},
                                                          {"no.such.host.invalid:1", "no.such.host.invalid:1"}};
  for (const auto& listen : distinct) EXPECT_EQ(WhyNotDistinct(listen, "auto"), "") << listen[0];
}

TEST(AddressesTest, OfTheRegionSocket) {
  ServerOptions options;
  EXPECT_EQ(RegionSocket(options), "");
  const auto path = [](std::size_t bytes) { return "/" + std::string(bytes - 1, 'x'); };
  const struct {
    std::size_t bytes;
    std::string suffix;
  } sockets[] = {{20, ".regions"}, {99, ".regions"}, {100, ".r"}, {105, ".r"}};
  for (const auto& each : sockets) {
    options.listen = {"127.0.0.1:0", "unix:" + path(each.bytes), "unix:/tmp/other"};
    EXPECT_EQ(RegionSocket(options), path(each.bytes) + each.suffix);
  }
  for (const std::size_t bytes : {106, 107}) {
    options.listen = {"unix:" + path(bytes)};
    EXPECT_EQ(RegionSocket(options), "");
    EXPECT_TRUE(CheckAddresses(options).ok());
  }
  options.region_socket = "/tmp/regions";
  EXPECT_EQ(RegionSocket(options), "/tmp/regions");
  for (const std::string& bad : {path(108), std::string("relative")}) {
    options.region_socket = bad;
    EXPECT_THAT(std::string(CheckAddresses(options).message()),
                AllOf(HasSubstr("--region_socket: got '" + bad), HasSubstr("at most 107 bytes that begins with /")));
  }
}

// Of a machine with so much memory; the flags at their defaults unless said.
TEST(MemorySharesTest, TheTransportHasAQuarterAtMost) {
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  const ServerOptions defaults;
  const MemoryShares large = SharesOf(defaults, 64 * kGiB);
  EXPECT_EQ(large.transport, kGiB);
  EXPECT_EQ(large.requests, 47 * kGiB);
  const MemoryShares small = SharesOf(defaults, kGiB);
  EXPECT_EQ(small.transport, 192 << 20);
  EXPECT_EQ(small.requests, 576 << 20);
  ServerOptions given;
  given.memory_bytes = 2 * kGiB;
  EXPECT_EQ(SharesOf(given, 64 * kGiB).transport, kGiB / 2);
  EXPECT_EQ(SharesOf(given, 64 * kGiB).requests, 2 * kGiB - kGiB / 2);
  const MemoryShares tiny = SharesOf(defaults, 100 << 20);
  EXPECT_EQ(tiny.transport, 2 * defaults.limits.max_message_bytes);  // else no message would fit
  EXPECT_EQ(tiny.requests, 0);
}

}  // namespace
}  // namespace reduced::server
