#include "server/config/listener.h"

#include <fcntl.h>
#include <netdb.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace reduced::server {
namespace {

constexpr std::size_t kMaxUnixPath = sizeof(sockaddr_un{}.sun_path) - 1;

constexpr absl::string_view kAllowedTcp = "host:port or [ipv6]:port with a port from 0 to 65535";

absl::Status BadAddress(absl::string_view text, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrFormat("--listen: got '%s', %s; allowed: %s, or unix:/path",
                                                    absl::CHexEscape(text.substr(0, 200)), what, kAllowedTcp));
}

absl::Status NotBound(const ListenAddress& address, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat("cannot listen on ", address.text, ": ", why));
}

// Binds and listens on a socket of its own: 0, or errno.
int TryToListen(int family, const sockaddr* address, socklen_t size) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const int error = bind(fd, address, size) == 0 && listen(fd, 1) == 0 ? 0 : errno;
  close(fd);
  return error;
}

}  // namespace

sockaddr_un UnixAddress(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), kMaxUnixPath));
  return address;
}

absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view text) {
  ListenAddress address;
  address.text = std::string(text);
  if (absl::string_view path = text; absl::ConsumePrefix(&path, "unix:")) {
    if (path.empty() || path.front() != '/') return BadAddress(text, "whose path does not begin with /");
    if (path.size() > kMaxUnixPath) {
      return BadAddress(text, absl::StrFormat("whose path has %d bytes, more than %d", path.size(), kMaxUnixPath));
    }
    address.unix_path = std::string(path);
    return address;
  }
  const std::size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return BadAddress(text, "which has no port");
  absl::string_view host = text.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (absl::StrContains(host, ':')) {
    return BadAddress(text, "an IPv6 address without brackets");
  }
  if (host.empty()) return BadAddress(text, "which has no host (0.0.0.0 and [::] mean every interface)");
  if (!absl::SimpleAtoi(text.substr(colon + 1), &address.port) || address.port < 0 || address.port > 65535) {
    return BadAddress(text, "whose port is not a number from 0 to 65535");
  }
  address.host = std::string(host);
  return address;
}

absl::StatusOr<ListenAddress> ParseHttpAddress(absl::string_view flag, absl::string_view text) {
  absl::StatusOr<ListenAddress> address = ParseListenAddress(text);
  if (address.ok() && address->unix_path.empty()) return address;
  return absl::InvalidArgumentError(absl::StrFormat("--%s: got '%s'; allowed: %s, auto, or nothing", flag,
                                                    absl::CHexEscape(text.substr(0, 200)), kAllowedTcp));
}

absl::Status CheckUnixPath(const ListenAddress& address, int type) {
  if (address.unix_path.empty()) return absl::OkStatus();
  struct stat status;
  if (lstat(address.unix_path.c_str(), &status) != 0) return absl::OkStatus();  // nothing there, or bind() will say
  if (!S_ISSOCK(status.st_mode)) return NotBound(address, "the path exists and is not a socket");
  const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return NotBound(address, std::strerror(errno));
  const absl::Cleanup close_fd = [fd] { close(fd); };
  const sockaddr_un to = UnixAddress(address.unix_path);
  const bool answered = connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0;
  // EPROTOTYPE: the socket is of another type.
  if (answered || errno == EAGAIN || errno == EPROTOTYPE) return NotBound(address, "another server is listening there");
  return absl::OkStatus();
}

absl::StatusOr<SocketFolderLock> SocketFolderLock::Take(const std::vector<ListenAddress>& addresses) {
  std::set<std::string> paths;  // in one order, so that two servers do not wait for each other
  for (const ListenAddress& address : addresses) {
    if (!address.unix_path.empty()) paths.insert(std::filesystem::path(address.unix_path).parent_path());
  }
  SocketFolderLock lock;
  const absl::Time deadline = absl::Now() + absl::Seconds(10);
  for (const std::string& path : paths) {
    const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) continue;
    lock.folders_.push_back(folder);
    while (flock(folder, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR)) {
      if (absl::Now() > deadline) {
        return absl::FailedPreconditionError(
            absl::StrCat("cannot listen in ", path, ": another server has been starting there for 10 seconds"));
      }
      absl::SleepFor(absl::Milliseconds(5));
    }
  }
  return lock;
}

SocketFolderLock::~SocketFolderLock() {
  for (const int folder : folders_) close(folder);
}

absl::StatusOr<std::optional<mode_t>> ParseSocketMode(absl::string_view text) {
  if (text.empty()) return std::nullopt;
  mode_t mode = 0;
  bool octal = text.size() <= 4;
  for (const char digit : text) {
    octal = octal && digit >= '0' && digit <= '7';
    mode = mode * 8 + static_cast<mode_t>(digit - '0');
  }
  if (octal && mode <= 0777) return mode;
  return absl::InvalidArgumentError(absl::StrFormat("--unix_socket_mode: got '%s'; allowed: 0 to 0777, in octal",
                                                    absl::CHexEscape(text.substr(0, 64))));
}

SocketMode::SocketMode(absl::string_view mode) {
  const std::optional<mode_t> parsed = *ParseSocketMode(mode);
  if (parsed.has_value()) umask_before_ = umask(0777 & ~*parsed);
}

SocketMode::~SocketMode() {
  if (umask_before_.has_value()) umask(*umask_before_);
}

absl::Status WhyNotBound(const ListenAddress& address) {
  int error = 0;
  if (!address.unix_path.empty()) {
    const sockaddr_un at = UnixAddress(address.unix_path);
    error = TryToListen(AF_UNIX, reinterpret_cast<const sockaddr*>(&at), sizeof(at));
    if (error == 0) unlink(address.unix_path.c_str());
  } else {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    addrinfo* found = nullptr;
    const int failure = getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
    if (failure != 0) return NotBound(address, gai_strerror(failure));
    const absl::Cleanup free_found = [found] { freeaddrinfo(found); };
    for (const addrinfo* each = found; each != nullptr && error == 0; each = each->ai_next) {
      error = TryToListen(each->ai_family, each->ai_addr, each->ai_addrlen);
    }
  }
  return NotBound(address, error != 0 ? std::strerror(error) : "gRPC could not bind it");
}

std::string BoundAddress(const ListenAddress& address, int port) {
  if (!address.unix_path.empty()) return address.text;
  return absl::StrCat(address.text.substr(0, address.text.rfind(':')), ":", port);
}

}  // namespace reduced::server
