// Gathers the facts about this machine and the server.
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/reducectl/doctor/doctor.h"
#include "kernels/system/memory.h"
#include "reduced/client.h"

namespace reduced::client {
namespace {

// "MemTotal:       24657412 kB"
void ReadMemory(SystemFacts* facts) {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  std::int64_t kib = 0;
  while (file >> name >> kib) {
    if (name == "MemTotal:") facts->memory_bytes = kib << 10;
    if (name == "MemAvailable:") facts->available_bytes = kib << 10;
    std::getline(file, unit);
  }
}

std::optional<std::int64_t> ToOptional(rlim_t limit) {
  if (limit == RLIM_INFINITY) return std::nullopt;
  return static_cast<std::int64_t>(limit);
}

// Whether process `pid` has the same namespace as this one. Absent: unknown.
std::optional<bool> SameNamespace(pid_t pid, const char* kind) {
  std::error_code error;
  const auto other = std::filesystem::read_symlink(absl::StrCat("/proc/", pid, "/ns/", kind), error);
  if (error || pid == 0) return std::nullopt;
  const auto own = std::filesystem::read_symlink(absl::StrCat("/proc/self/ns/", kind), error);
  if (error) return std::nullopt;
  return own == other;
}

SocketFacts Connect(const std::string& path, int type) {
  SocketFacts facts{.path = path};
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    facts.problem = "the path is too long";
    return facts;
  }
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int connection = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (connection < 0 || connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    facts.error = errno;
    facts.problem = std::strerror(errno);
  }
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (facts.problem.empty() && getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) {
    facts.same_ipc_namespace = SameNamespace(peer.pid, "ipc");
    // The kernel reports 0 for a process outside of this one's namespace.
    facts.same_pid_namespace = peer.pid == 0 ? std::optional<bool>(false) : SameNamespace(peer.pid, "pid");
  }
  if (connection >= 0) close(connection);
  return facts;
}

}  // namespace

SystemFacts GatherSystem() {
  SystemFacts facts;
  ReadMemory(&facts);
  facts.cgroup_limit_bytes = ControlGroupMemory();
  struct statvfs shm {};
  if (std::filesystem::is_directory("/dev/shm") && statvfs("/dev/shm", &shm) == 0) {
    facts.shm_bytes = static_cast<std::int64_t>(shm.f_blocks * shm.f_frsize);
    facts.shm_free_bytes = static_cast<std::int64_t>(shm.f_bavail * shm.f_frsize);
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    facts.files_limit = ToOptional(limit.rlim_cur);
    facts.files_hard_limit = ToOptional(limit.rlim_max);
  }
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) facts.locked_limit_bytes = ToOptional(limit.rlim_max);
  timex clock{};
  const int state = adjtimex(&clock);
  facts.clock_known = state >= 0;
  facts.clock_synchronized = state >= 0 && (clock.status & STA_UNSYNC) == 0;
  facts.year = absl::ToCivilYear(absl::Now(), absl::UTCTimeZone()).year();
  std::ifstream("/sys/devices/system/clocksource/clocksource0/current_clocksource") >> facts.clock_source;
  return facts;
}

ServerFacts GatherServer(const CommonOptions& common, Client& client) {
  ServerFacts facts{.address = common.server, .named = common.server_given, .version = REDUCED_VERSION};
  const std::optional<std::string> path = UnixSocketPath(common.server);
  if (path.has_value()) facts.socket = Connect(*path, SOCK_STREAM);
  absl::StatusOr<ServerInfo> info = client.GetServerInfo();
  facts.reachable = info.status();
  if (!info.ok()) return facts;
  facts.info = *std::move(info);
  const absl::StatusOr<Health> health = client.CheckHealth();
  if (health.ok()) facts.health = *health;
  if (!health.ok()) facts.no_health = std::string(health.status().message());
  // A server that is reached over TCP may be on another machine, where the path has another socket.
  if (path.has_value() && !facts.info.region_socket.empty()) {
    facts.region_socket = Connect(facts.info.region_socket, SOCK_SEQPACKET);
  }
  return facts;
}

}  // namespace reduced::client
