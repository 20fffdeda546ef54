// A client's Unix socket, on which nothing waits for long.
#ifndef REDUCED_TESTS_FUZZ_SOCKET_H_
#define REDUCED_TESTS_FUZZ_SOCKET_H_

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <string>

#include "server/config/listener.h"
#include "tests/fuzz/fuzz.h"

namespace reduced::fuzz {

class Socket {
 public:
  // `type`: SOCK_STREAM or SOCK_SEQPACKET.
  Socket(const std::string& path, int type) : file_(socket(AF_UNIX, type | SOCK_CLOEXEC, 0)) {
    // Beyond what any server takes that works.
    const timeval patience{.tv_sec = 20, .tv_usec = 0};
    setsockopt(file_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(file_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    const sockaddr_un address = server::UnixAddress(path);
    Require(connect(file_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0, "a server listens");
  }
  ~Socket() { close(file_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  int file() const { return file_; }

 private:
  const int file_;
};

}  // namespace reduced::fuzz

#endif  // REDUCED_TESTS_FUZZ_SOCKET_H_
