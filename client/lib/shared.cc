#include "reduced/shared.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/lib/region_connection.h"
#include "google/protobuf/util/json_util.h"

namespace reduced::client {
namespace {

// Of an answer that only lets go of something.
constexpr absl::Duration kReleaseTimeout = absl::Seconds(10);

// What `operation`, a call that waits for a socket, gives; -1 with EAGAIN if it takes longer than until `deadline`.
template <class Operation>
auto Wait(int socket, absl::Time deadline, const Operation& operation) {
  for (;;) {
    // Once no time is left, the least that isn't 0: that would be any time.
    const timeval limit = absl::ToTimeval(std::clamp(deadline - absl::Now(), absl::Microseconds(1), absl::Hours(24)));
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    const auto result = operation();
    if (result >= 0 || errno != EINTR) return result;
  }
}

}  // namespace

absl::StatusOr<SharedBuffer> SharedBuffer::Allocate(std::int64_t bytes) {
  if (bytes < 0) return absl::InvalidArgumentError(absl::StrCat("a buffer of ", bytes, " bytes; allowed are 0 and up"));
  SharedBuffer buffer;
  const auto failed = [bytes](const char* what) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there is no shared memory of ", bytes, " bytes: ", what, ": ", std::strerror(errno)));
  };
  buffer.file_ = memfd_create("reduced", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (buffer.file_ < 0) return failed("memfd_create");
  if (ftruncate(buffer.file_, bytes) != 0) return failed("ftruncate");
  if (fcntl(buffer.file_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return failed("F_ADD_SEALS");
  if (bytes == 0) return buffer;
  void* const data =
      mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, buffer.file_, 0);
  if (data == MAP_FAILED) return failed("mmap");
  buffer.data_ = data;
  buffer.bytes_ = bytes;
  return buffer;
}

SharedBuffer::SharedBuffer(SharedBuffer&& other) noexcept
    : file_(std::exchange(other.file_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

SharedBuffer& SharedBuffer::operator=(SharedBuffer&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedBuffer::~SharedBuffer() {
  if (data_ != nullptr) munmap(data_, static_cast<std::size_t>(bytes_));
  if (file_ >= 0) close(file_);
}

Region::Region(std::shared_ptr<Connection> connection, std::string token, std::int64_t bytes)
    : connection_(std::move(connection)), token_(std::move(token)), bytes_(bytes) {}

Region::Region(Region&& other) noexcept = default;

Region& Region::operator=(Region&& other) noexcept {
  std::swap(connection_, other.connection_);
  std::swap(token_, other.token_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Region::~Region() { Release(); }

void Region::Release() {
  if (connection_ == nullptr) return;
  v1::RegionRequest request;
  request.mutable_release()->set_token(token_);
  // If it can't be told, the connection is over, and the region with it.
  connection_->Ask(request, -1, absl::Now() + kReleaseTimeout).IgnoreError();
  connection_.reset();
}

RemoteArray Region::Array(std::string dtype, std::vector<std::int64_t> shape, std::int64_t offset) const {
  return RemoteArray::InRegion(token_, offset, std::move(dtype), std::move(shape));
}

absl::StatusOr<std::shared_ptr<Region::Connection>> Region::Connection::Open(const std::string& path,
                                                                             absl::Time deadline) {
  const auto unreachable = [&path](const char* why) {
    return absl::FailedPreconditionError(
        absl::StrCat("the server's region socket, ", path, ", can't be reached from here (", why, ")"));
  };
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return unreachable("too long a path");
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (socket < 0) return absl::ErrnoToStatus(errno, "socket");
  auto connection = std::shared_ptr<Connection>(new Connection(socket));
  const auto connect_it = [&] { return connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)); };
  if (Wait(socket, deadline, connect_it) == 0) return connection;
  if (errno == EAGAIN) return absl::DeadlineExceededError("the region socket took no connection in time");
  return unreachable(std::strerror(errno));
}

Region::Connection::~Connection() {
  if (socket_ >= 0) close(socket_);
}

bool Region::Connection::over() {
  const absl::MutexLock lock(&mutex_);
  return socket_ < 0;
}

absl::StatusOr<v1::RegionReply> Region::Connection::Ask(const v1::RegionRequest& request, int file,
                                                        absl::Time deadline) {
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(request, &text).ok()) {
    return absl::InternalError("the request can't be written as JSON");
  }
  const absl::MutexLock lock(&mutex_);
  if (socket_ < 0) return absl::UnavailableError("the connection to the region socket is over");
  if (absl::Now() >= deadline) return absl::DeadlineExceededError("the region socket was busy all the time");

  iovec part{text.data(), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (file >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &file, sizeof(int));
  }
  std::string answer(4096, '\0');
  const int socket = socket_;
  ssize_t bytes = Wait(socket, deadline, [&] { return sendmsg(socket, &message, MSG_NOSIGNAL); });
  if (bytes >= 0) bytes = Wait(socket, deadline, [&] { return recv(socket, answer.data(), answer.size(), 0); });
  if (bytes <= 0) {
    const bool late = bytes < 0 && errno == EAGAIN;
    close(std::exchange(socket_, -1));
    if (late) return absl::DeadlineExceededError("the region socket gave no answer in time");
    return absl::UnavailableError("the server has closed the region socket");
  }
  answer.resize(static_cast<std::size_t>(bytes));
  v1::RegionReply reply;
  google::protobuf::util::JsonParseOptions lenient;
  lenient.ignore_unknown_fields = true;
  if (!google::protobuf::util::JsonStringToMessage(answer, &reply, lenient).ok()) {
    return absl::InternalError("the region socket sent what this client can't read");
  }
  if (reply.code() != 0) return absl::Status(static_cast<absl::StatusCode>(reply.code()), reply.message());
  return reply;
}

}  // namespace reduced::client
