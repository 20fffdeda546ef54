// A server that has stopped reading: every call ends soon after its deadline, or after it was cancelled.
#include "client/lib/call_watch.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "reduced/client.h"

namespace reduced::client {
namespace {

constexpr absl::Duration kSoon = absl::Minutes(1);  // without the watch: never
constexpr absl::Duration kTimeout = absl::Milliseconds(200);

// A SETTINGS frame of HTTP/2 with the largest initial window of a stream, and a WINDOW_UPDATE frame of the connection.
constexpr char kFrames[] =
    "\0\0\x06\x04\0\0\0\0\0"
    "\0\x04\x7f\xff\xff\xff"
    "\0\0\x04\x08\0\0\0\0\0"
    "\x7f\xff\0\0";
constexpr absl::string_view kWelcome(kFrames, sizeof(kFrames) - 1);

// Accepts connections, says on each that it takes requests of any size, and reads nothing.
class DeafServer {
 public:
  DeafServer(int family, const sockaddr* address, socklen_t size) : listener_(socket(family, SOCK_STREAM, 0)) {
    EXPECT_EQ(bind(listener_, address, size), 0);
    EXPECT_EQ(listen(listener_, 64), 0);
    thread_ = std::thread([this] {
      for (int one = -1; (one = accept(listener_, nullptr, nullptr)) >= 0;) {
        EXPECT_EQ(write(one, kWelcome.data(), kWelcome.size()), static_cast<ssize_t>(kWelcome.size()));
        connections_.push_back(one);
      }
    });
  }
  ~DeafServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
    for (const int one : connections_) close(one);
  }
  int port() const {
    sockaddr_in address{};
    socklen_t size = sizeof(address);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    return ntohs(address.sin_port);
  }

 private:
  const int listener_;
  std::vector<int> connections_;
  std::thread thread_;
};

class CallWatchTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (absl::string_view(GetParam()) == "unix") {
      sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
      path_ = absl::StrCat(testing::TempDir(), "/reduced_deaf_", getpid());
      unlink(path_.c_str());
      ASSERT_LT(path_.size(), sizeof(address.sun_path));
      path_.copy(address.sun_path, path_.size());
      server_ = std::make_unique<DeafServer>(AF_UNIX, reinterpret_cast<sockaddr*>(&address), sizeof(address));
      address_ = absl::StrCat("unix:", path_);
    } else {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      server_ = std::make_unique<DeafServer>(AF_INET, reinterpret_cast<sockaddr*>(&address), sizeof(address));
      address_ = absl::StrCat("127.0.0.1:", server_->port());
    }
    client_ = Client::Create({.server = address_, .timeout = kTimeout, .connections = 2}).value();
  }
  void TearDown() override {
    if (!path_.empty()) unlink(path_.c_str());
    EXPECT_LT(absl::Now() - start_, kSoon);
  }

  std::string path_;
  std::unique_ptr<DeafServer> server_;
  std::string address_;
  std::unique_ptr<Client> client_;
  // More than the kernel takes for a connection.
  const std::vector<float> elements_ = std::vector<float>(12 << 20);
  const ArrayView view_ = ArrayView::Of(elements_);
  const absl::Time start_ = absl::Now();
};

TEST_P(CallWatchTest, AUnaryCall) {
  const absl::Status status = client_->Reduce(view_, {"sum"}, {.via = "inline"}).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
}

TEST_P(CallWatchTest, StreamsInParts) {
  const absl::Status status = client_->Reduce(view_, {"sum"}, {.via = "stream"}).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
}

TEST_P(CallWatchTest, AnUpload) {
  const absl::Status status = client_->Put(view_).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
}

TEST_P(CallWatchTest, CallsWithCallbacks) {
  for (const char* const via : {"inline", "stream"}) {
    absl::Notification done;
    absl::Status status;
    client_->ReduceAsync(view_, {"sum"}, {.via = via}, [&](const absl::StatusOr<Reply>& reply) {
      status = reply.status();
      done.Notify();
    });
    ASSERT_TRUE(done.WaitForNotificationWithTimeout(kSoon)) << via;
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << via << ": " << status;
  }
}

TEST_P(CallWatchTest, ACancelledCall) {
  for (const char* const via : {"inline", "stream"}) {
    absl::Notification done;
    absl::Status status;
    Call call = client_->ReduceAsync(view_, {"sum"}, {.via = via, .timeout = absl::InfiniteDuration()},
                                     [&](const absl::StatusOr<Reply>& reply) {
                                       status = reply.status();
                                       done.Notify();
                                     });
    call.Cancel();
    ASSERT_TRUE(done.WaitForNotificationWithTimeout(kSoon)) << via;
    EXPECT_TRUE(absl::IsCancelled(status)) << via << ": " << status;
  }
}

// The calls after it have a connection of their own, and the small ones don't fill it.
TEST_P(CallWatchTest, TheNextCalls) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(client_->Reduce(view_, {"sum"}, {.via = "inline"}).status()));
    EXPECT_TRUE(absl::IsDeadlineExceeded(client_->GetServerInfo().status()));
    EXPECT_TRUE(absl::IsDeadlineExceeded(client_->CheckHealth().status()));
  }
}

INSTANTIATE_TEST_SUITE_P(, CallWatchTest, testing::Values("tcp", "unix"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace reduced::client
