// Connections of HTTP/2, byte by byte.
//
// The input: 0, then the bytes of the connection; or something else, then frames: type, flags, stream, the length (2
// bytes) and the payload.
#include <cerrno>
#include <string>

#include "tests/fuzz/server.h"
#include "tests/fuzz/socket.h"

namespace reduced::fuzz {
namespace {

constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

void AppendFrame(Input* input, std::string* bytes) {
  const char type = input->Number<char>();
  const char flags = input->Number<char>();
  const char stream = input->Number<char>();
  const absl::string_view payload = input->TakePiece();
  const auto size = static_cast<std::uint32_t>(payload.size());
  for (const int shift : {16, 8, 0}) bytes->push_back(static_cast<char>(size >> shift));
  bytes->append({type, flags, 0, 0, 0, stream});
  bytes->append(payload.data(), payload.size());
}

}  // namespace

FUZZ_TARGET(http2) {
  static int runs = 0;
  if (++runs % 512 == 0) RequireServing();

  std::string bytes;
  if (input.Number() == 0) {
    bytes = std::string(input.rest());
  } else {
    bytes = std::string(kPreface);
    while (!input.empty()) AppendFrame(&input, &bytes);
  }
  const Socket socket(TheServer().address().substr(absl::string_view("unix:").size()), SOCK_STREAM);
  // The server may close the connection meanwhile.
  for (std::size_t sent = 0; sent < bytes.size();) {
    // libFuzzer's timer interrupts calls.
    const ssize_t now = TEMP_FAILURE_RETRY(send(socket.file(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL));
    if (now <= 0) {
      Require(errno != EAGAIN, "the server reads what is sent");
      break;
    }
    sent += static_cast<std::size_t>(now);
  }
  shutdown(socket.file(), SHUT_WR);
  char answer[4096];
  ssize_t got = 0;
  while ((got = TEMP_FAILURE_RETRY(recv(socket.file(), answer, sizeof(answer), 0))) > 0) {
  }
  Require(got == 0 || errno != EAGAIN, "the server closes a connection that its client has closed");
}

}  // namespace reduced::fuzz
