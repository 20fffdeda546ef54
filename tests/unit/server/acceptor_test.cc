#include "server/acceptor.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/config/descriptors.h"

namespace reduced::server {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

// An acceptor on a port of loopback, that keeps what it accepts.
class AcceptorTest : public testing::Test {
 protected:
  void Start(const ConnectionLimits& limits = {.connections = 100, .per_peer = 100, .descriptor = 1 << 20}) {
    absl::StatusOr<ListenSockets> sockets =
        ListenSockets::Bind({.text = "127.0.0.1:0", .unix_path = "", .host = "127.0.0.1"}, absl::Seconds(7));
    ASSERT_TRUE(sockets.ok()) << sockets.status();
    port_ = sockets->port();
    std::vector<Acceptor::Listener> listeners;
    listeners.push_back({*std::move(sockets), [this](int, int file, const std::string&, const Connections&) {
                           const absl::MutexLock lock(&mutex_);
                           accepted_.push_back(file);
                         }});
    acceptor_ = std::make_unique<Acceptor>(std::move(listeners), limits);
  }
  void TearDown() override {
    acceptor_.reset();
    CloseAccepted();
    for (const int file : clients_) close(file);
  }

  // A connection from 127.0.0.`host`.
  int Connect(int host = 1) {
    const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in from{};
    from.sin_family = AF_INET;
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + static_cast<std::uint32_t>(host) - 1);
    EXPECT_EQ(bind(file, reinterpret_cast<const sockaddr*>(&from), sizeof(from)), 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(port_));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(file, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    clients_.push_back(file);
    return file;
  }
  static bool IsClosed(int client) {
    pollfd waiting{client, POLLIN, 0};
    return poll(&waiting, 1, static_cast<int>(absl::ToInt64Milliseconds(kPatience))) == 1;
  }
  int AwaitAccepted(std::size_t count) {
    const absl::MutexLock lock(&mutex_);
    const auto there = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return accepted_.size() >= count; };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&there), kPatience));
    return accepted_.empty() ? -1 : accepted_.back();
  }
  void CloseAccepted() {
    const absl::MutexLock lock(&mutex_);
    for (const int file : accepted_) close(file);
    accepted_.clear();
  }
  template <class Condition>
  static bool Becomes(Condition condition) {
    for (const absl::Time deadline = absl::Now() + kPatience; absl::Now() < deadline;) {
      if (condition()) return true;
      absl::SleepFor(absl::Milliseconds(1));
    }
    return false;
  }

  std::unique_ptr<Acceptor> acceptor_;
  int port_ = 0;
  std::vector<int> clients_;
  absl::Mutex mutex_;
  std::vector<int> accepted_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(AcceptorTest, ConnectionsHaveTheOptionsOfTheirListener) {
  Start();
  Connect();
  const int file = AwaitAccepted(1);
  int value = 0;
  socklen_t size = sizeof(value);
  EXPECT_EQ(getsockopt(file, IPPROTO_TCP, TCP_NODELAY, &value, &size), 0);
  EXPECT_EQ(value, 1);
  EXPECT_EQ(getsockopt(file, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &size), 0);
  EXPECT_EQ(value, 7000);
  EXPECT_EQ(PeerOf(file), "127.0.0.1");
}

TEST_F(AcceptorTest, OnesBeyondALimitAreClosedAtOnce) {
  Start({.connections = 3, .per_peer = 2, .descriptor = 1 << 20});
  for (int i = 0; i < 2; ++i) Connect();
  AwaitAccepted(2);
  EXPECT_TRUE(IsClosed(Connect()));
  EXPECT_EQ(acceptor_->refused(Refusal::kPeer), 1);
  Connect(/*host=*/2);
  AwaitAccepted(3);
  EXPECT_TRUE(IsClosed(Connect(/*host=*/3)));
  EXPECT_EQ(acceptor_->refused(Refusal::kConnections), 1);
  EXPECT_EQ(acceptor_->connections(), 3);
  EXPECT_TRUE(acceptor_->Accepts());
  CloseAccepted();
  EXPECT_TRUE(Becomes([this] { return acceptor_->connections() == 0; }));
  Connect();
  AwaitAccepted(1);
}

TEST_F(AcceptorTest, WithoutADescriptorTheyAreClosedAndItGoesOnOnceThereIsOne) {
  Start();
  const int first = Connect();
  AwaitAccepted(1);
  // A client that connects while every descriptor is taken: its own is made before.
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  clients_.push_back(client);
  sockaddr_in to{};
  socklen_t size = sizeof(to);
  ASSERT_EQ(getpeername(first, reinterpret_cast<sockaddr*>(&to), &size), 0);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{.rlim_cur = 512, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<int> taken;
  for (int file = dup(client); file >= 0; file = dup(client)) taken.push_back(file);
  static_cast<void>(connect(client, reinterpret_cast<const sockaddr*>(&to), sizeof(to)));  // the server may be quicker
  EXPECT_TRUE(IsClosed(client));
  EXPECT_TRUE(Becomes([this] { return acceptor_->refused(Refusal::kDescriptors) == 1; }));
  EXPECT_TRUE(acceptor_->Accepts());  // not for 5 seconds yet
  EXPECT_TRUE(Becomes([this] { return !acceptor_->Accepts(); }));
  for (const int file : taken) close(file);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(Becomes([this] { return acceptor_->Accepts(); }));
  Connect();
  AwaitAccepted(2);
}

TEST_F(AcceptorTest, OneThatHangsIsNoticed) {
  Start();
  {
    const absl::MutexLock lock(&mutex_);  // which the thread waits for
    Connect();
    EXPECT_TRUE(acceptor_->Accepts());
    EXPECT_TRUE(Becomes([this] { return !acceptor_->Accepts(); }));
  }
  AwaitAccepted(1);
  EXPECT_TRUE(Becomes([this] { return acceptor_->Accepts(); }));
}

TEST_F(AcceptorTest, StoppedItListensNoMore) {
  Start();
  acceptor_->Stop();
  const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  clients_.push_back(file);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port_));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_NE(connect(file, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
}

}  // namespace
}  // namespace reduced::server
