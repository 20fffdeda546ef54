#include "server/config/listener.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
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
#include "kernels/system/failpoint.h"
#include "kernels/system/quoted.h"
#include "kernels/system/status_macros.h"

namespace reduced::server {
namespace {

constexpr absl::string_view kAllowedTcp = "host:port or [ipv6]:port with a port from 0 to 65535";

constexpr std::size_t kShownBytes = 200;  // of an address in a message: more than the path of a socket has

absl::Status BadAddress(absl::string_view text, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrFormat("--listen: got %s, %s; allowed: %s, or unix:/path",
                                                    Quoted(text, kShownBytes), what, kAllowedTcp));
}

absl::Status NotBound(const ListenAddress& address, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat("cannot listen on ", absl::CHexEscape(address.text), ": ", why));
}

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// The TCP addresses that `address` names, at least one. FAILED_PRECONDITION: there are none.
absl::StatusOr<AddressList> Resolve(const ListenAddress& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int failure = getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  if (failure != 0) return NotBound(address, gai_strerror(failure));
  return AddressList(found, &freeaddrinfo);
}

// The port of an IPv4 or IPv6 address, in network byte order.
in_port_t* PortOf(sockaddr_storage* address) {
  return address->ss_family == AF_INET6 ? &reinterpret_cast<sockaddr_in6*>(address)->sin6_port
                                        : &reinterpret_cast<sockaddr_in*>(address)->sin_port;
}

bool IsEveryInterface(const sockaddr_storage& address) {
  return address.ss_family == AF_INET6
             ? IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr)
             : reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr == INADDR_ANY;
}

// What a socket occupies: a port of one address, or of every interface; or the path of a file.
struct Place {
  int family = AF_UNIX;
  std::string host{};  // empty: every interface
  int port = 0;        // in network byte order

  bool Meets(const Place& other) const {
    return family == other.family && port == other.port &&
           (family == AF_UNIX ? host == other.host : host.empty() || other.host.empty() || host == other.host);
  }
};

Place PlaceOf(const sockaddr_storage& from) {
  sockaddr_storage address = from;
  Place place{.family = from.ss_family, .port = *PortOf(&address)};
  if (IsEveryInterface(address)) return place;
  if (address.ss_family != AF_INET6) {
    const in_addr& ipv4 = reinterpret_cast<const sockaddr_in&>(address).sin_addr;
    place.host.assign(reinterpret_cast<const char*>(&ipv4), sizeof(ipv4));
    return place;
  }
  const in6_addr& ipv6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  const std::size_t skipped = IN6_IS_ADDR_V4MAPPED(&ipv6) ? sizeof(ipv6) - sizeof(in_addr) : 0;
  if (skipped > 0) place.family = AF_INET;
  place.host.assign(reinterpret_cast<const char*>(&ipv6) + skipped, sizeof(ipv6) - skipped);
  return place;
}

// The places that ListenSockets would take for `address`, as far as they are free. Every interface takes two, of which
// that for IPv4, the first, must be free.
std::vector<Place> PlacesOf(const ListenAddress& address) {
  if (!address.unix_path.empty()) {
    const std::filesystem::path path(address.unix_path);
    std::error_code error;
    std::filesystem::path folder = std::filesystem::canonical(path.parent_path(), error);
    if (error) folder = path.parent_path().lexically_normal();
    return {{.host = (folder / path.filename()).string()}};
  }
  std::vector<Place> places;
  const absl::StatusOr<AddressList> found = address.port == 0 ? absl::UnknownError("any port") : Resolve(address);
  for (const addrinfo* each = found.ok() ? found->get() : nullptr; each != nullptr; each = each->ai_next) {
    sockaddr_storage at{};
    std::memcpy(&at, each->ai_addr, std::min<std::size_t>(each->ai_addrlen, sizeof(at)));
    Place place = PlaceOf(at);
    if (place.host.empty()) return {{.family = AF_INET, .port = place.port}, {.family = AF_INET6, .port = place.port}};
    places.push_back(std::move(place));
  }
  return places;
}

// The file that `path` is.
std::pair<dev_t, ino_t> FileAt(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 ? std::pair(status.st_dev, status.st_ino) : std::pair<dev_t, ino_t>();
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
  return absl::InvalidArgumentError(
      absl::StrFormat("--%s: got %s; allowed: %s, auto, or nothing", flag, Quoted(text, kShownBytes), kAllowedTcp));
}

absl::Status CheckDistinct(const std::vector<FlagAddress>& addresses) {
  std::vector<std::pair<Place, const FlagAddress*>> taken;
  for (const FlagAddress& each : addresses) {
    const FlagAddress* other = nullptr;
    bool any = false;
    const std::vector<Place> places = PlacesOf(each.address);
    for (const Place& place : places) {
      const auto met =
          std::find_if(taken.begin(), taken.end(), [&](const auto& earlier) { return earlier.first.Meets(place); });
      if (met == taken.end() || met->second == &each) {
        any = true;
        taken.emplace_back(place, &each);
        continue;
      }
      other = met->second;
      if (place.host.empty() && place.family == AF_INET) break;
    }
    if (any || other == nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("--%s: got %s, which is taken by --%s=%s; allowed: addresses that differ", each.flag,
                        absl::CHexEscape(each.address.text), other->flag, absl::CHexEscape(other->address.text)));
  }
  return absl::OkStatus();
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
  return absl::InvalidArgumentError(
      absl::StrFormat("--unix_socket_mode: got %s; allowed: 0 to 0777, in octal", Quoted(text, kShownBytes)));
}

SocketMode::SocketMode(absl::string_view mode) {
  const std::optional<mode_t> parsed = *ParseSocketMode(mode);
  if (parsed.has_value()) umask_before_ = umask(0777 & ~*parsed);
}

SocketMode::~SocketMode() {
  if (umask_before_.has_value()) umask(*umask_before_);
}

int ListenSockets::Listen(int family, const sockaddr* address, socklen_t size) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return errno;
  files_.push_back(fd);
  const int on = 1, off = 0;
  if (family != AF_UNIX) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (FAILPOINT_ERRNO("listener/bind", EADDRINUSE, bind(fd, address, size)) == 0 &&
      listen(fd, std::numeric_limits<int>::max()) == 0) {
    return 0;
  }
  const int error = errno;
  files_.pop_back();
  close(fd);
  return error;
}

int ListenSockets::ListenOnTcp(const sockaddr* address, socklen_t size, absl::Duration ack_timeout) {
  sockaddr_storage at{};
  std::memcpy(&at, address, std::min<std::size_t>(size, sizeof(at)));
  if (*PortOf(&at) == 0) *PortOf(&at) = htons(static_cast<std::uint16_t>(port_));
  const int error = Listen(at.ss_family, reinterpret_cast<const sockaddr*>(&at), size);
  if (error != 0) return error;
  // What it accepts inherits these.
  const int on = 1;
  const int timeout_ms = static_cast<int>(absl::ToInt64Milliseconds(ack_timeout));
  setsockopt(files_.back(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(files_.back(), IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
  socklen_t bound = sizeof(at);
  getsockname(files_.back(), reinterpret_cast<sockaddr*>(&at), &bound);
  port_ = ntohs(*PortOf(&at));
  return 0;
}

absl::StatusOr<ListenSockets> ListenSockets::Bind(const ListenAddress& address, absl::Duration ack_timeout) {
  ListenSockets sockets;
  if (!address.unix_path.empty()) {
    RETURN_IF_ERROR(CheckUnixPath(address));
    unlink(address.unix_path.c_str());
    const sockaddr_un at = UnixAddress(address.unix_path);
    const int error = sockets.Listen(AF_UNIX, reinterpret_cast<const sockaddr*>(&at), sizeof(at));
    if (error != 0) return NotBound(address, std::strerror(error));
    sockets.path_ = address.unix_path;
    sockets.bound_ = FileAt(sockets.path_);
    return sockets;
  }
  ASSIGN_OR_RETURN(const AddressList found, Resolve(address));
  int first_error = 0;
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    sockaddr_storage at{};
    std::memcpy(&at, each->ai_addr, std::min<std::size_t>(each->ai_addrlen, sizeof(at)));
    int error = EAFNOSUPPORT;
    if (IsEveryInterface(at)) {
      // One socket for both, or else one for IPv4, where there is no IPv6 or another process has its port.
      sockaddr_in6 both{};
      both.sin6_family = AF_INET6;
      both.sin6_port = *PortOf(&at);
      error = sockets.ListenOnTcp(reinterpret_cast<const sockaddr*>(&both), sizeof(both), ack_timeout);
      if (error != 0) {
        sockaddr_in ipv4{};
        ipv4.sin_family = AF_INET;
        ipv4.sin_port = *PortOf(&at);
        error = sockets.ListenOnTcp(reinterpret_cast<const sockaddr*>(&ipv4), sizeof(ipv4), ack_timeout);
      }
    } else {
      error = sockets.ListenOnTcp(each->ai_addr, each->ai_addrlen, ack_timeout);
    }
    if (first_error == 0) first_error = error;
  }
  if (sockets.files_.empty()) return NotBound(address, std::strerror(first_error));
  return sockets;
}

ListenSockets::~ListenSockets() {
  // In this order: while it is open, no other server takes its place.
  if (!files_.empty() && !path_.empty() && FileAt(path_) == bound_) unlink(path_.c_str());
  for (const int file : files_) close(file);
}

std::string BoundAddress(const ListenAddress& address, int port) {
  if (!address.unix_path.empty()) return address.text;
  return absl::StrCat(address.text.substr(0, address.text.rfind(':')), ":", port);
}

}  // namespace reduced::server
