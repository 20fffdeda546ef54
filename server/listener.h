// The addresses a server listens on: how they are written, and what keeps gRPC from binding one.
#ifndef REDUCED_SERVER_LISTENER_H_
#define REDUCED_SERVER_LISTENER_H_

#include <sys/socket.h>
#include <sys/un.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace reduced {

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

// Why an address that gRPC could not bind can't be: tries it once more, since gRPC doesn't pass the reason on.
absl::Status WhyNotBound(const ListenAddress& address);

// `address` with the port that was bound.
std::string BoundAddress(const ListenAddress& address, int port);

}  // namespace reduced

#endif  // REDUCED_SERVER_LISTENER_H_
