// Shared memory: buffers, and regions, against a region socket within the process that answers what each test says.
#include "reduced/shared.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "google/protobuf/util/json_util.h"
#include "reduced/client.h"
#include "reduced/v1/reduced.grpc.pb.h"
#include "reduced/v1/regions.pb.h"
#include "tests/unit/client/honest.h"

namespace reduced::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kRegionPatience = absl::Seconds(30);

TEST(SharedBuffer, IsZeroAndCanBeWritten) {
  const absl::StatusOr<SharedBuffer> buffer = SharedBuffer::Allocate(5000);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(buffer->bytes(), 5000);
  char* const data = static_cast<char*>(buffer->data());
  EXPECT_EQ(std::string(data, 5000), std::string(5000, '\0'));
  data[4999] = 'x';
  char last = 0;
  EXPECT_EQ(pread(buffer->file(), &last, 1, 4999), 1);
  EXPECT_EQ(last, 'x');
}

TEST(SharedBuffer, KeepsItsSize) {
  const absl::StatusOr<SharedBuffer> buffer = SharedBuffer::Allocate(5000);
  for (const off_t size : {0, 4999, 5001}) {
    EXPECT_EQ(ftruncate(buffer->file(), size), -1);
    EXPECT_EQ(errno, EPERM);
  }
  EXPECT_EQ(fcntl(buffer->file(), F_ADD_SEALS, F_SEAL_WRITE), -1);
}

// Else the server would not map it.
TEST(SharedBuffer, KeepsItsPages) {
  const absl::StatusOr<SharedBuffer> buffer = SharedBuffer::Allocate(5000);
  EXPECT_EQ(fallocate(buffer->file(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(madvise(buffer->data(), 4096, MADV_REMOVE), -1);
  EXPECT_EQ(errno, EPERM);
}

TEST(SharedBuffer, MayBeEmpty) {
  const absl::StatusOr<SharedBuffer> buffer = SharedBuffer::Allocate(0);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(buffer->bytes(), 0);
  EXPECT_EQ(buffer->data(), nullptr);
  EXPECT_GE(buffer->file(), 0);
}

TEST(SharedBuffer, SaysWhatCanNotBe) {
  EXPECT_EQ(SharedBuffer::Allocate(-1).status(), absl::InvalidArgumentError("bytes: got -1; allowed: 0 and more"));
  const absl::Status status = SharedBuffer::Allocate(std::int64_t{1} << 60).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("can't allocate 1152921504606846976 bytes of shared memory: "));
}

TEST(SharedBuffer, Moves) {
  absl::StatusOr<SharedBuffer> first = SharedBuffer::Allocate(10);
  void* const data = first->data();
  const int file = first->file();
  int other = -1;
  {
    SharedBuffer second = *std::move(first);
    EXPECT_EQ(second.data(), data);
    EXPECT_EQ(second.bytes(), 10);
    SharedBuffer third = SharedBuffer::Allocate(20).value();
    other = third.file();
    third = std::move(second);
    EXPECT_EQ(third.data(), data);
    EXPECT_EQ(third.file(), file);
  }
  EXPECT_EQ(fcntl(file, F_GETFD), -1) << "stays open";
  EXPECT_EQ(fcntl(other, F_GETFD), -1) << "stays open";
}

sockaddr_un UnixAddress(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  return address;
}

// A region socket that serves one client after the other.
class RegionSocket {
 public:
  // What a request is answered with; nothing: the connection is closed.
  using Answer = std::function<std::optional<v1::RegionReply>(const v1::RegionRequest&)>;

  RegionSocket(const std::string& path, Answer answer)
      : answer_(std::move(answer)), listener_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    const sockaddr_un address = UnixAddress(path);
    EXPECT_EQ(bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0) << path;
    EXPECT_EQ(listen(listener_, 8), 0);
    thread_ = std::thread([this] { Serve(); });
  }
  // The client must have closed its connection by then.
  ~RegionSocket() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  RegionSocket(const RegionSocket&) = delete;
  RegionSocket& operator=(const RegionSocket&) = delete;

  // Ends the connection of the present client, which is not waiting for an answer.
  void Disconnect() { shutdown(client_, SHUT_RDWR); }

  // What was asked so far, as "share", "share pin", "device", "release TOKEN", after "connect" for each connection.
  std::vector<std::string> log() {
    const absl::MutexLock lock(&mutex_);
    return log_;
  }

 private:
  void Log(std::string entry) {
    const absl::MutexLock lock(&mutex_);
    log_.push_back(std::move(entry));
  }

  void Serve() {
    for (int client; (client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0; close(client)) {
      client_ = client;
      Log("connect");
      while (AnswerOne(client)) continue;
    }
  }

  bool AnswerOne(int client) {
    std::string text(4096, '\0');
    iovec part{text.data(), text.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(253 * sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t bytes = recvmsg(client, &message, MSG_CMSG_CLOEXEC);
    if (bytes <= 0) return false;
    text.resize(static_cast<std::size_t>(bytes));
    v1::RegionRequest request;
    EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(text, &request).ok()) << text;
    const cmsghdr* const header = CMSG_FIRSTHDR(&message);
    const int files = header == nullptr ? 0 : static_cast<int>((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    const v1::ShareDevice& device = request.share_device();
    EXPECT_EQ(files, request.has_share_memory() ? 1 : device.pieces_size());
    for (int i = 0; i < files; ++i) {
      int file = -1;
      std::memcpy(&file, CMSG_DATA(header) + static_cast<std::size_t>(i) * sizeof(file), sizeof(file));
      struct stat status {};
      EXPECT_EQ(fstat(file, &status), 0);
      if (request.has_share_device()) {
        EXPECT_EQ(status.st_size, device.pieces(i)) << "in order";
      }
      close(file);
    }
    Log(request.has_release() ? absl::StrCat("release ", request.release().token())
        : device.pieces_size() > 0
            ? absl::StrCat("pieces ", device.pieces_before(), "+", device.pieces_size(), device.more() ? " more" : "")
        : request.has_share_device() ? "device"
                                     : absl::StrCat("share", request.share_memory().pin() ? " pin" : ""));
    const std::optional<v1::RegionReply> reply = answer_(request);
    if (!reply.has_value()) return false;
    EXPECT_TRUE(google::protobuf::util::MessageToJsonString(*reply, &(text = "")).ok());
    return send(client, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }

  const Answer answer_;
  const int listener_;
  std::atomic<int> client_ = -1;
  absl::Mutex mutex_;
  std::vector<std::string> log_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

v1::RegionReply Token(const std::string& token) {
  v1::RegionReply reply;
  reply.set_token(token);
  reply.set_bytes(100);
  return reply;
}
v1::RegionReply Error(absl::StatusCode code, const std::string& message) {
  v1::RegionReply reply;
  reply.set_code(static_cast<int>(code));
  reply.set_message(message);
  return reply;
}
std::optional<v1::RegionReply> ShareAndRelease(const v1::RegionRequest& request) {
  return request.has_release() ? v1::RegionReply() : Token("t");
}

// Says where the region socket is, and keeps what it was last asked to reduce.
class FakeRegions final : public v1::Reduction::CallbackService {
 public:
  std::string region_socket;
  v1::ReduceRequest seen;

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context, const v1::GetServerInfoRequest*,
                                          v1::GetServerInfoResponse* response) override {
    response->set_version("1.2.3");
    response->set_region_socket(region_socket);
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  grpc::ServerUnaryReactor* Reduce(grpc::CallbackServerContext* context, const v1::ReduceRequest* request,
                                   v1::ReduceResponse* response) override {
    seen = *request;
    Complete(*request, response);
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

class RegionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/reduced_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    service_.region_socket = folder_ / "door";
    const std::string address = "unix:" + (folder_ / "socket").string();
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    client_ = Client::Create({.server = address, .timeout = kRegionPatience}).value();
  }
  void TearDown() override {
    client_.reset();  // and with it the connection to the region socket
    socket_.reset();
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5));
    std::filesystem::remove_all(folder_);
  }

  void Serve(RegionSocket::Answer answer) {
    socket_ = std::make_unique<RegionSocket>(folder_ / "door", std::move(answer));
  }

  std::filesystem::path folder_;
  FakeRegions service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<RegionSocket> socket_;
  const SharedBuffer buffer_ = SharedBuffer::Allocate(100).value();
};

TEST_F(RegionTest, IsAskedForSharedAndReleased) {
  Serve(ShareAndRelease);
  {
    const absl::StatusOr<Region> region = client_->Share(buffer_);
    ASSERT_TRUE(region.ok()) << region.status();
    EXPECT_EQ(region->token(), "t");
    EXPECT_EQ(region->bytes(), 100);
    const absl::StatusOr<Reply> reply = client_->Reduce(region->Array("i16", {3, 4}, 8), {"sum"});
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->via, "region");
    EXPECT_EQ(service_.seen.region().token(), "t");
    EXPECT_EQ(service_.seen.region().offset(), 8);
    EXPECT_EQ(service_.seen.array().dtype(), v1::DTYPE_I16);
    EXPECT_THAT(service_.seen.array().shape(), ElementsAre(3, 4));
    EXPECT_THAT(service_.seen.inline_data(), IsEmpty());
  }
  ASSERT_TRUE(client_->Share(buffer_.file(), {.pin = true}).ok());
  ASSERT_TRUE(client_->ShareDevice({.handle = "h", .device_uuid = "u", .bytes = 100}).ok());
  EXPECT_THAT(socket_->log(),
              ElementsAre("connect", "share", "release t", "share pin", "release t", "device", "release t"));
}

// Pieces go in as many packets as their descriptors need; each is exported in turn, and closed.
TEST_F(RegionTest, OfPiecesIsAskedForInPackets) {
  Serve([](const v1::RegionRequest& request) -> std::optional<v1::RegionReply> {
    return request.share_device().more() ? v1::RegionReply() : ShareAndRelease(request);
  });
  const auto files = [] { return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}); };
  ASSERT_TRUE(client_->Share(buffer_).ok());  // connects
  const auto before = files();
  DeviceMemory memory{.device_uuid = "u", .bytes = 100};
  std::size_t exported = 0;
  memory.export_piece = [&](std::size_t piece) -> absl::StatusOr<int> {
    EXPECT_EQ(piece, exported++);
    const int file = memfd_create("piece", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(file, memory.pieces[piece]), 0);
    return file;
  };
  for (const std::size_t count : {1, 128, 129, 300}) {
    exported = 0;
    memory.pieces.clear();
    for (std::size_t i = 0; i < count; ++i) memory.pieces.push_back(static_cast<std::int64_t>(1000 + i));
    const absl::StatusOr<Region> region = client_->ShareDevice(memory);
    ASSERT_TRUE(region.ok()) << region.status();
    EXPECT_EQ(exported, count);
  }
  memory.export_piece = [](std::size_t piece) -> absl::StatusOr<int> {
    if (piece == 200) return absl::DataLossError("no descriptor");
    return memfd_create("piece", MFD_CLOEXEC);
  };
  memory.pieces.assign(300, 0);
  EXPECT_EQ(client_->ShareDevice(memory).status(), absl::DataLossError("no descriptor"));
  EXPECT_EQ(files(), before);
  EXPECT_THAT(socket_->log(),
              ElementsAre("connect", "share", "release t", "pieces 0+1", "release t", "pieces 0+128", "release t",
                          "pieces 0+128 more", "pieces 128+1", "release t", "pieces 0+128 more", "pieces 128+128 more",
                          "pieces 256+44", "release t", "pieces 0+128 more"));
}

TEST_F(RegionTest, IsReleasedOnceHoweverItMoves) {
  int tokens = 0;
  Serve([&](const v1::RegionRequest& request) -> std::optional<v1::RegionReply> {
    return request.has_release() ? v1::RegionReply() : Token(absl::StrCat(++tokens));
  });
  {
    Region first = client_->Share(buffer_).value();
    Region second = std::move(first);
    Region third = client_->Share(buffer_).value();
    third = std::move(second);
    EXPECT_EQ(third.token(), "1");
  }
  EXPECT_THAT(socket_->log(), ElementsAre("connect", "share", "share", ::testing::StartsWith("release"),
                                          ::testing::StartsWith("release")));
}

TEST_F(RegionTest, MayOutliveTheClient) {
  Serve(ShareAndRelease);
  {
    const Region region = client_->Share(buffer_).value();
    client_.reset();
  }
  EXPECT_THAT(socket_->log(), ElementsAre("connect", "share", "release t"));
}

TEST_F(RegionTest, AnErrorOfTheReplyIsTheStatus) {
  std::vector<v1::RegionReply> replies = {Error(absl::StatusCode::kFailedPrecondition, "pin needs memory"),
                                          Error(absl::StatusCode::kResourceExhausted, "too many")};
  std::size_t next = 0;
  Serve([&](const v1::RegionRequest&) -> std::optional<v1::RegionReply> { return replies[next++]; });
  EXPECT_EQ(client_->Share(buffer_).status(), absl::FailedPreconditionError("pin needs memory"));
  EXPECT_EQ(client_->Share(buffer_).status(), absl::ResourceExhaustedError("too many"));
  EXPECT_THAT(socket_->log(), ElementsAre("connect", "share", "share")) << "the connection stays";
}

TEST_F(RegionTest, ConnectsAgainWhenTheConnectionIsOver) {
  std::atomic<bool> closes = true;
  Serve([&](const v1::RegionRequest& request) { return closes ? std::nullopt : ShareAndRelease(request); });
  EXPECT_EQ(client_->Share(buffer_).status(), absl::UnavailableError("the server has closed the region socket"));
  closes = false;
  EXPECT_TRUE(client_->Share(buffer_).ok());
  EXPECT_THAT(socket_->log(), ElementsAre("connect", "share", "connect", "share", "release t"));
}

TEST_F(RegionTest, ConnectsAgainWhenTheServerHasEndedASilentConnection) {
  Serve(ShareAndRelease);
  EXPECT_TRUE(client_->Share(buffer_).ok());
  socket_->Disconnect();
  EXPECT_TRUE(client_->Share(buffer_).ok());
  EXPECT_THAT(socket_->log(), ElementsAre("connect", "share", "release t", "connect", "share", "release t"));
}

TEST_F(RegionTest, AReleaseThatIsNotAnsweredIsLeft) {
  Serve([](const v1::RegionRequest& request) {
    return request.has_release() ? std::nullopt : std::optional(Token("t"));
  });
  { const Region region = client_->Share(buffer_).value(); }
  EXPECT_TRUE(client_->Share(buffer_).ok()) << "by another connection";
}

TEST_F(RegionTest, KeepsTheDeadline) {
  absl::Notification go_on;
  Serve([&](const v1::RegionRequest&) -> std::optional<v1::RegionReply> {
    go_on.WaitForNotificationWithTimeout(kRegionPatience);
    return std::nullopt;
  });
  const absl::Status status = client_->Share(buffer_, {.timeout = absl::Milliseconds(50)}).status();
  EXPECT_EQ(status, absl::DeadlineExceededError("the region socket didn't answer in time"));
  EXPECT_TRUE(absl::IsInvalidArgument(client_->Share(buffer_, {.timeout = absl::ZeroDuration()}).status()));
  go_on.Notify();
  socket_.reset();  // its thread still looks at the notification
}

// As those of a profiler, whose handlers interrupt whoever waits.
TEST_F(RegionTest, SignalsDoNoHarm) {
  struct sigaction before = {};
  struct sigaction nothing = {};
  nothing.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGUSR1, &nothing, &before), 0);
  Serve([caller = pthread_self()](const v1::RegionRequest& request) {
    for (int i = 0; i < 10; ++i) EXPECT_EQ(pthread_kill(caller, SIGUSR1), 0);
    return ShareAndRelease(request);
  });
  for (int i = 0; i < 20; ++i) EXPECT_EQ(client_->Share(buffer_).status(), absl::OkStatus());
  EXPECT_EQ(socket_->log().size(), 1 + 2 * 20) << "not on one connection, or not all";
  sigaction(SIGUSR1, &before, nullptr);
}

// A server that takes no more connections: who connects then waits for it.
TEST_F(RegionTest, KeepsTheDeadlineWhenItConnects) {
  const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const sockaddr_un address = UnixAddress(service_.region_socket);
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(listener, 0), 0);
  const int first = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  ASSERT_EQ(connect(first, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(client_->Share(buffer_, {.timeout = absl::Milliseconds(50)}).status(),
            absl::DeadlineExceededError("the region socket didn't accept a connection in time"));
  close(first);
  close(listener);
}

TEST_F(RegionTest, SaysWhyThereIsNone) {
  const auto error = [&](const std::string& path) {
    service_.region_socket = path;
    const absl::Status status = client_->Share(buffer_).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    return std::string(status.message());
  };
  EXPECT_EQ(error(""), absl::StrCat("unix:", (folder_ / "socket").string(),
                                    " has no region socket: memory can't be shared with it"));
  EXPECT_EQ(error("/nowhere/door"),
            "can't connect to the server's region socket /nowhere/door: No such file or directory");
  EXPECT_THAT(error("/" + std::string(200, 'x')), HasSubstr("the path is too long"));
}

// In another container, say, the folder of the server's sockets has another name.
TEST_F(RegionTest, IsLookedForBesideTheServersSocket) {
  Serve(ShareAndRelease);
  service_.region_socket = "/elsewhere/door";
  EXPECT_TRUE(client_->Share(buffer_).ok());
}

TEST_F(RegionTest, ThreadsShareTheConnection) {
  Serve(ShareAndRelease);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this] {
      for (int n = 0; n < 20; ++n) EXPECT_TRUE(client_->Share(buffer_).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(socket_->log().size(), 1 + 2 * 80) << "not on one connection, or not all";
}

}  // namespace
}  // namespace reduced::client
