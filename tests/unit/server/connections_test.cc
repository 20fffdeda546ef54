#include "server/connections.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace reduced::server {
namespace {

// A connected pair, closed unless the server's end was before.
class Pair {
 public:
  Pair() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, files_.data()), 0); }
  ~Pair() {
    CloseServer();
    close(files_[1]);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  int server() const { return files_[0]; }
  void CloseServer() {
    if (files_[0] >= 0) close(files_[0]);
    files_[0] = -1;
  }

 private:
  std::array<int, 2> files_{-1, -1};
};

TEST(LimitsTest, ByDefaultHalfOfTheDescriptorsAreLeftToRegions) {
  const ConnectionLimits many = LimitsOf({}, 256, 20'000, 20);
  EXPECT_EQ(many.connections, 19'980 / 2 - 256 - 64);
  EXPECT_EQ(many.per_peer, many.connections / 2);
  EXPECT_EQ(many.descriptor, 20'000 - 64);
  const ConnectionLimits few = LimitsOf({}, 256, 64, 12);
  EXPECT_EQ(few.connections, 52 / 4);
  EXPECT_EQ(few.per_peer, 7);
  EXPECT_EQ(few.descriptor, 64 - 16);
  // However few there are, somebody can connect.
  const ConnectionLimits none = LimitsOf({}, 256, 10, 12);
  EXPECT_GE(none.connections, 1);
  EXPECT_GE(none.per_peer, 1);
}

TEST(LimitsTest, FlagsAreBoundedByTheDescriptors) {
  ConnectionOptions options;
  options.max_connections = 100;
  options.max_connections_per_peer = 3;
  EXPECT_EQ(LimitsOf(options, 256, 20'000, 20).connections, 100);
  EXPECT_EQ(LimitsOf(options, 256, 20'000, 20).per_peer, 3);
  EXPECT_EQ(LimitsOf(options, 256, 64, 12).connections, 64 - 12 - 16);
}

TEST(ConnectionsTest, CountsByPeerAndInAll) {
  Connections connections({.connections = 3, .per_peer = 2, .descriptor = 1 << 20});
  std::vector<Pair> pairs(6);
  EXPECT_EQ(connections.Admit(pairs[0].server(), "a"), std::nullopt);
  EXPECT_EQ(connections.Admit(pairs[1].server(), "a"), std::nullopt);
  EXPECT_EQ(connections.Admit(pairs[2].server(), "a"), Refusal::kPeer);
  EXPECT_EQ(connections.Admit(pairs[3].server(), "b"), std::nullopt);
  EXPECT_EQ(connections.Admit(pairs[4].server(), "b"), Refusal::kConnections);
  EXPECT_EQ(connections.Admit(pairs[5].server(), "c"), Refusal::kConnections);
  EXPECT_EQ(connections.count(), 3);
}

TEST(ConnectionsTest, OnesThatWereClosedDoNotCount) {
  Connections connections({.connections = 2, .per_peer = 2, .descriptor = 1 << 20});
  Pair first, second, third;
  EXPECT_EQ(connections.Admit(first.server(), "a"), std::nullopt);
  EXPECT_EQ(connections.Admit(second.server(), "a"), std::nullopt);
  first.CloseServer();
  EXPECT_EQ(connections.count(), 2);  // nobody said so
  EXPECT_EQ(connections.Admit(third.server(), "a"), std::nullopt);
  EXPECT_EQ(connections.count(), 2);
  second.CloseServer();
  third.CloseServer();
  connections.Sweep();
  EXPECT_EQ(connections.count(), 0);
}

TEST(ConnectionsTest, ADescriptorThatIsUsedAgainIsAnotherConnection) {
  Connections connections({.connections = 10, .per_peer = 10, .descriptor = 1 << 20});
  Pair first;
  const int number = first.server();
  EXPECT_EQ(connections.Admit(number, "a"), std::nullopt);
  {  // of another socket that is no connection, and of a file
    const Pair other;
    ASSERT_EQ(dup3(other.server(), number, O_CLOEXEC), number);
    connections.Sweep();
    EXPECT_EQ(connections.count(), 0);
    EXPECT_EQ(connections.Admit(number, "b"), std::nullopt);
    EXPECT_EQ(connections.Admit(number, "c"), std::nullopt);
    EXPECT_EQ(connections.count(), 1);
  }
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(dup3(null, number, O_CLOEXEC), number);
  close(null);
  connections.Sweep();
  EXPECT_EQ(connections.count(), 0);
}

TEST(ConnectionsTest, TheLastDescriptorsAreNotForThem) {
  const Pair pair;
  Connections connections({.connections = 10, .per_peer = 10, .descriptor = pair.server()});
  EXPECT_EQ(connections.Admit(pair.server(), "a"), Refusal::kDescriptors);
  EXPECT_EQ(connections.count(), 0);
}

TEST(PeerTest, UsersAreTold) {
  const Pair pair;
  EXPECT_EQ(PeerOf(pair.server()), absl::StrCat("uid ", geteuid()));
  EXPECT_EQ(PeerOf(-1), std::nullopt);
}

}  // namespace
}  // namespace reduced::server
