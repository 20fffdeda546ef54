// The addresses that a server listens on: their syntax, the sockets bound to them, and why one could not be bound.
#ifndef REDUCED_SERVER_CONFIG_LISTENER_H_
#define REDUCED_SERVER_CONFIG_LISTENER_H_

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace reduced::server {

// The bytes that the path of a Unix socket may have.
constexpr std::size_t kMaxUnixPath = sizeof(sockaddr_un{}.sun_path) - 1;

struct ListenAddress {
  std::string text;       // as written
  std::string unix_path;  // empty: TCP
  std::string host;       // TCP: a name or an address, without brackets
  int port = 0;           // TCP: 0 to 65535; 0: the kernel picks one
};

// Parses an address of --listen: "host:port", "[ipv6]:port" or "unix:/path"; else INVALID_ARGUMENT.
absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view text);
// Parses an address of `flag` that serves HTTP: "host:port" or "[ipv6]:port"; else INVALID_ARGUMENT.
absl::StatusOr<ListenAddress> ParseHttpAddress(absl::string_view flag, absl::string_view text);

// An address, and the flag that names it.
struct FlagAddress {
  std::string flag;
  ListenAddress address;
};
// INVALID_ARGUMENT: one of the addresses has nothing left to bind once those before it are bound; names both. Resolves
// names and links of folders; a name that can't be resolved is left to ListenSockets.
absl::Status CheckDistinct(const std::vector<FlagAddress>& addresses);

// Checks a Unix address before it is bound. A socket file that a dead server left behind is fine: ListenSockets
// replaces it. FAILED_PRECONDITION: a server listens on it, or the path is not a socket. `type`: of the socket.
absl::Status CheckUnixPath(const ListenAddress& address, int type = SOCK_STREAM);

// While it lives, no other server takes over a Unix socket in the folders of these addresses. Without it two servers
// that start at the same time can both find that nobody listens at a path, and the later one removes the other's
// socket.
class SocketFolderLock {
 public:
  // Waits up to 10 s for another server that starts. FAILED_PRECONDITION: it did not finish by then. A folder that
  // cannot be opened or locked is left to bind(), which says why.
  static absl::StatusOr<SocketFolderLock> Take(const std::vector<ListenAddress>& addresses);
  ~SocketFolderLock();
  SocketFolderLock(SocketFolderLock&& other) noexcept : folders_(std::exchange(other.folders_, {})) {}
  SocketFolderLock& operator=(SocketFolderLock&&) = delete;

 private:
  SocketFolderLock() = default;

  std::vector<int> folders_;  // descriptors, with a lock of flock(2) each
};

sockaddr_un UnixAddress(const std::string& path);

// Parses --unix_socket_mode; "" gives nullopt. INVALID_ARGUMENT: not permissions in octal.
absl::StatusOr<std::optional<mode_t>> ParseSocketMode(absl::string_view text);

// Sets the permissions of sockets that are bound during its lifetime. It changes the umask of the process, so it is for
// start-up only.
class SocketMode {
 public:
  explicit SocketMode(absl::string_view mode);  // valid; "" changes nothing
  ~SocketMode();
  SocketMode(const SocketMode&) = delete;
  SocketMode& operator=(const SocketMode&) = delete;

 private:
  std::optional<mode_t> umask_before_;
};

// The listening sockets of one address: one for each address of a name, and one or two for every interface, which
// 0.0.0.0 and [::] both mean, for IPv4 and IPv6. Non-blocking, and closed by exec.
class ListenSockets {
 public:
  // Binds what it can of a name's addresses. Port 0: the kernel picks one, the same for all. The file of a Unix socket
  // that a dead server left behind is replaced. ack_timeout: the time after which a TCP connection whose peer
  // acknowledges nothing is closed (TCP_USER_TIMEOUT). FAILED_PRECONDITION: as CheckUnixPath, or nothing could be
  // bound.
  static absl::StatusOr<ListenSockets> Bind(const ListenAddress& address, absl::Duration ack_timeout);
  // Closes them, and removes the file of a Unix socket, unless another socket has taken its place.
  ~ListenSockets();
  ListenSockets(ListenSockets&& other) noexcept
      : files_(std::exchange(other.files_, {})),
        port_(other.port_),
        path_(std::move(other.path_)),
        bound_(std::move(other.bound_)) {}
  ListenSockets& operator=(ListenSockets&&) = delete;

  const std::vector<int>& files() const { return files_; }  // descriptors; at least one
  int port() const { return port_; }                        // that was bound; 0: a Unix socket

 private:
  ListenSockets() = default;
  int Listen(int family, const sockaddr* address, socklen_t size);  // 0, or errno
  int ListenOnTcp(const sockaddr* address, socklen_t size, absl::Duration ack_timeout);

  std::vector<int> files_;
  int port_ = 0;
  std::string path_;                 // of a Unix socket
  std::pair<dev_t, ino_t> bound_{};  // its file
};

// The text of `address` with the port that was bound.
std::string BoundAddress(const ListenAddress& address, int port);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CONFIG_LISTENER_H_
