// The addresses a server listens on: how they are written, and what keeps gRPC from binding one.
#ifndef REDUCED_SERVER_CONFIG_LISTENER_H_
#define REDUCED_SERVER_CONFIG_LISTENER_H_

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace reduced::server {

struct ListenAddress {
  std::string text;       // as it was written, and as gRPC takes it
  std::string unix_path;  // empty: TCP
  std::string host;       // TCP: a name or an address, without brackets
  int port = 0;           // TCP: 0 to 65535; 0: the kernel picks one
};

// INVALID_ARGUMENT: neither "host:port", "[ipv6]:port" nor "unix:/path".
absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view text);

// Before binding. A socket file that a dead server left behind is fine (gRPC replaces it), but FAILED_PRECONDITION says
// that a server is listening on it, or that the path is something else than a socket. type: of the socket.
absl::Status CheckUnixPath(const ListenAddress& address, int type = SOCK_STREAM);

sockaddr_un UnixAddress(const std::string& path);

// Of --unix_socket_mode: absent for "". INVALID_ARGUMENT: not permissions in octal.
absl::StatusOr<std::optional<mode_t>> ParseSocketMode(absl::string_view text);

// Sockets that are bound while it lives get the mode, if there is one. The process has one umask: at start only.
class SocketMode {
 public:
  explicit SocketMode(absl::string_view mode);  // valid
  ~SocketMode();
  SocketMode(const SocketMode&) = delete;
  SocketMode& operator=(const SocketMode&) = delete;

 private:
  std::optional<mode_t> umask_before_;
};

// Why an address that gRPC could not bind can't be: tries it once more, since gRPC doesn't pass the reason on.
absl::Status WhyNotBound(const ListenAddress& address);

// `address` with the port that was bound.
std::string BoundAddress(const ListenAddress& address, int port);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CONFIG_LISTENER_H_
