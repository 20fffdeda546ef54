// Clients of the region socket, and memory to share with it.
#ifndef REDUCED_TESTS_SERVICE_SHARER_H_
#define REDUCED_TESTS_SERVICE_SHARER_H_

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "reduced/v1/regions.pb.h"
#include "tests/service/test_server.h"
#include "tests/support/becomes.h"

namespace reduced::server {

// With these a region is mapped.
inline constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;

// A descriptor, closed at the end.
class Descriptor {
 public:
  explicit Descriptor(int file) : file_(file) { EXPECT_GE(file, 0) << std::strerror(errno); }
  ~Descriptor() { close(file_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  operator int() const { return file_; }  // NOLINT(google-explicit-constructor): that is what it is for

 private:
  const int file_;
};

// A memfd with the numbers 1, 2 ... count as i32.
inline int NumbersInMemory(std::int32_t count, int seals = 0) {
  const int file = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(count));
  for (std::int32_t i = 0; i < count; ++i) numbers[static_cast<std::size_t>(i)] = i + 1;
  const std::size_t bytes = numbers.size() * sizeof(std::int32_t);
  EXPECT_EQ(pwrite(file, numbers.data(), bytes, 0), static_cast<ssize_t>(bytes));
  if (seals != 0) {
    EXPECT_EQ(fcntl(file, F_ADD_SEALS, seals), 0);
  }
  return file;
}

inline std::string SumTo(std::int64_t count) { return absl::StrFormat("i64:%d", count * (count + 1) / 2); }

inline int DescriptorsInUse() {
  return static_cast<int>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

// Whether no more are open than so many, now or soon: the server's threads open some for a moment, as to read /proc.
inline bool DescriptorsReturnTo(int files) {
  return Becomes(kPatience, [files] { return DescriptorsInUse() <= files; });
}

// One client of the region socket.
class Sharer {
 public:
  explicit Sharer(const std::string& path) : socket_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0) << std::strerror(errno);
    timeval patience{.tv_sec = absl::ToInt64Seconds(kPatience), .tv_usec = 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }
  ~Sharer() { Close(); }
  Sharer(const Sharer&) = delete;
  Sharer& operator=(const Sharer&) = delete;

  void Close() {
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
  }

  void Send(const std::string& text, const std::vector<int>& files = {}) {
    std::string copy = text;
    iovec part{copy.data(), copy.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(253 * sizeof(int))] = {};  // SCM_MAX_FD
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (!files.empty()) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(files.size() * sizeof(int));
      cmsghdr* const header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
      std::memcpy(CMSG_DATA(header), files.data(), files.size() * sizeof(int));
    }
    EXPECT_EQ(sendmsg(socket_, &message, MSG_NOSIGNAL), static_cast<ssize_t>(copy.size())) << std::strerror(errno);
  }
  // The next packet; empty: the server has closed the connection.
  std::string Receive() {
    std::string text(4096, '\0');
    const ssize_t bytes = Uninterrupted([&] { return recv(socket_, text.data(), text.size(), 0); });
    EXPECT_GE(bytes, 0) << std::strerror(errno);
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
    return text;
  }
  v1::RegionReply Ask(const std::string& text, const std::vector<int>& files = {}) {
    Send(text, files);
    v1::RegionReply reply;
    EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(Receive(), &reply).ok());
    return reply;
  }
  // Likewise; `files` gets the descriptors that come with the reply.
  v1::RegionReply AskForFiles(const std::string& request, std::vector<int>* files) {
    Send(request);
    std::string text(4096, '\0');
    iovec part{text.data(), text.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t bytes = Uninterrupted([&] { return recvmsg(socket_, &message, MSG_CMSG_CLOEXEC); });
    EXPECT_GT(bytes, 0) << std::strerror(errno);
    if (bytes <= 0) return {};
    text.resize(static_cast<std::size_t>(bytes));
    for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr; each = CMSG_NXTHDR(&message, each)) {
      const std::size_t count = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        std::memcpy(&files->emplace_back(), CMSG_DATA(each) + i * sizeof(int), sizeof(int));
      }
    }
    v1::RegionReply reply;
    EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(text, &reply).ok());
    return reply;
  }
  v1::RegionReply Share(int file, bool pin = false) {
    return Ask(pin ? R"({"shareMemory": {"pin": true}})" : R"({"shareMemory": {}})", {file});
  }
  v1::RegionReply Release(const std::string& token) {
    return Ask(absl::StrFormat(R"({"release": {"token": "%s"}})", token));
  }

 private:
  // What `receive` returns, again while a signal interrupts it: libFuzzer's timer is one.
  template <class Receive>
  static ssize_t Uninterrupted(Receive receive) {
    ssize_t bytes;
    do {
      bytes = receive();
    } while (bytes < 0 && errno == EINTR);
    return bytes;
  }

  int socket_;
};

inline v1::ReduceRequest SumOfRegion(const std::string& token, std::int64_t count, std::int64_t offset = 0,
                                     v1::DType dtype = v1::DTYPE_I32) {
  v1::ReduceRequest request;
  request.mutable_array()->set_dtype(dtype);
  request.mutable_array()->add_shape(count);
  request.add_ops(v1::OP_SUM);
  request.mutable_region()->set_token(token);
  request.mutable_region()->set_offset(offset);
  return request;
}

}  // namespace reduced::server

#endif  // REDUCED_TESTS_SERVICE_SHARER_H_
