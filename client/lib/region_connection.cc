#include "client/lib/region_connection.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/lib/call.h"
#include "google/protobuf/util/json_util.h"
#include "kernels/system/status_macros.h"
#include "reduced/options.h"

namespace reduced::client {
namespace {

// Returns what `operation`, a call that waits for the socket, returns: -1 with EAGAIN if the deadline passes first.
template <class Operation>
auto Wait(int socket, absl::Time deadline, const Operation& operation) {
  for (;;) {
    // If no time is left, the shortest timeout but 0, which would mean none.
    const timeval limit = absl::ToTimeval(std::clamp(deadline - absl::Now(), absl::Microseconds(1), absl::Hours(24)));
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    const auto result = operation();
    if (result >= 0 || errno != EINTR) return result;
  }
}

// As recv(), with the descriptors that come with the packet, of which there may be two.
ssize_t ReceiveWithFiles(int socket, std::string* text, std::vector<int>* files) {
  iovec part{text->data(), text->size()};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t bytes = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (bytes < 0) return bytes;
  for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr; each = CMSG_NXTHDR(&message, each)) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t i = 0; i < (each->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      std::memcpy(&files->emplace_back(), CMSG_DATA(each) + i * sizeof(int), sizeof(int));
    }
  }
  return bytes;
}

}  // namespace

std::string RegionPath(const std::string& server, const std::string& path) {
  const std::optional<std::string> socket = UnixSocketPath(server);
  if (!socket.has_value()) return path;
  const std::filesystem::path beside =
      std::filesystem::path(*socket).parent_path() / std::filesystem::path(path).filename();
  std::error_code unused;
  return std::filesystem::exists(beside, unused) ? beside.string() : path;
}

absl::StatusOr<std::shared_ptr<Region::Connection>> Region::Connection::Open(const std::string& path,
                                                                             absl::Time deadline) {
  const auto unreachable = [&path](const char* why) {
    return absl::FailedPreconditionError(absl::StrCat("can't connect to the server's region socket ", path, ": ", why));
  };
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return unreachable("the path is too long");
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (socket < 0) return absl::ErrnoToStatus(errno, "socket");
  auto connection = std::shared_ptr<Connection>(new Connection(socket));
  const auto connect_it = [&] { return connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)); };
  if (Wait(socket, deadline, connect_it) == 0) return connection;
  if (errno == EAGAIN) return absl::DeadlineExceededError("the region socket didn't accept a connection in time");
  return unreachable(std::strerror(errno));
}

Region::Connection::~Connection() {
  if (socket_ >= 0) close(socket_);
}

bool Region::Connection::closed() {
  const absl::MutexLock lock(&mutex_);
  // A server closes connections that share nothing. Between requests there is nothing to read, but the end.
  char byte = 0;
  if (socket_ >= 0 && recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) close(std::exchange(socket_, -1));
  return socket_ < 0;
}

absl::StatusOr<v1::RegionReply> Region::Connection::Ask(const v1::RegionRequest& request, const std::vector<int>& files,
                                                        absl::Time deadline, std::vector<int>* received) {
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(request, &text).ok()) {
    return absl::InternalError("can't encode the request as JSON");
  }
  const absl::MutexLock lock(&mutex_);
  if (socket_ < 0) return absl::UnavailableError("the connection to the region socket is closed");
  if (absl::Now() >= deadline) return absl::DeadlineExceededError("the region socket was busy until the deadline");

  iovec part{text.data(), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFiles * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!files.empty()) {
    const std::size_t size = files.size() * sizeof(int);
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(size);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(size);
    std::memcpy(CMSG_DATA(header), files.data(), size);
  }
  std::string answer(4096, '\0');
  const int socket = socket_;
  ssize_t bytes = Wait(socket, deadline, [&] { return sendmsg(socket, &message, MSG_NOSIGNAL); });
  std::vector<int> came;
  if (bytes >= 0) bytes = Wait(socket, deadline, [&] { return ReceiveWithFiles(socket, &answer, &came); });
  if (received != nullptr) {
    *received = std::move(came);
  } else {
    for (const int unwanted : came) close(unwanted);
  }
  if (bytes <= 0) {
    const bool late = bytes < 0 && errno == EAGAIN;
    close(std::exchange(socket_, -1));
    if (late) return absl::DeadlineExceededError("the region socket didn't answer in time");
    return absl::UnavailableError("the server has closed the region socket");
  }
  answer.resize(static_cast<std::size_t>(bytes));
  v1::RegionReply reply;
  google::protobuf::util::JsonParseOptions lenient;
  lenient.ignore_unknown_fields = true;
  if (!google::protobuf::util::JsonStringToMessage(answer, &reply, lenient).ok()) {
    return absl::InternalError("the region socket sent a reply that this client can't decode");
  }
  if (reply.code() != 0) return absl::Status(CodeOf(reply.code()), reply.message());
  return reply;
}

absl::StatusOr<v1::RegionReply> Region::Connection::AskWithPieces(v1::RegionRequest request, const DeviceMemory& memory,
                                                                  absl::Time deadline) {
  const absl::MutexLock lock(&pieces_mutex_);
  v1::ShareDevice& device = *request.mutable_share_device();
  for (std::size_t begin = 0;; begin += kMaxFiles) {
    const std::size_t end = std::min(begin + kMaxFiles, memory.pieces.size());
    std::vector<int> files;
    const absl::Cleanup close_files = [&files] {
      for (const int file : files) close(file);
    };
    device.clear_pieces();
    for (std::size_t piece = begin; piece < end; ++piece) {
      ASSIGN_OR_RETURN(const int file, memory.export_piece(piece));
      files.push_back(file);
      device.add_pieces(memory.pieces[piece]);
    }
    device.set_pieces_before(static_cast<std::int32_t>(begin));
    device.set_more(end < memory.pieces.size());
    absl::StatusOr<v1::RegionReply> reply = Ask(request, files, deadline);
    if (!reply.ok() || !device.more()) return reply;
  }
}

}  // namespace reduced::client
