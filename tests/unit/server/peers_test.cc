#include "server/security/peers.h"

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace reduced::server {
namespace {

TEST(PeerOfUri, IsTheAddressOrTheNetwork) {
  EXPECT_EQ(PeerOfUri("ipv4:192.0.2.1:1234"), "192.0.2.1");
  EXPECT_EQ(PeerOfUri("ipv6:%5B2001:db8:1:2:3:4:5:6%5D:1234"), "2001:db8:1:2::/64");
  EXPECT_EQ(PeerOfUri("ipv6:%5Bfe80::1%25eth0%5D:1234"), "fe80::/64");
  EXPECT_EQ(PeerOfUri("ipv6:%5B::ffff:192.0.2.1%5D:1234"), "192.0.2.1");
  for (const char* odd : {"", "ipv4:", "ipv4", "ipv6:%5B", "ipv6:%5Bx%5D:1", "vsock:1:2"})
    EXPECT_EQ(PeerOfUri(odd), odd);
}

TEST(UnixPeers, KeepTheirSlotsWhileTheyAreConnected) {
  UnixPeers peers;
  std::set<std::string> open;
  const auto assign = [&](const std::string& peer) {
    open.insert(peer);
    return peers.Assign(peer, [&](const std::string& of) { return open.count(of) != 0; });
  };
  for (int i = 0; i < UnixPeers::kSlots - 1; ++i) EXPECT_EQ(assign(absl::StrCat("uid ", i)), i);
  EXPECT_EQ(assign("uid 3"), 3);
  open.erase("uid 3");
  open.erase("uid 5");
  EXPECT_EQ(assign("uid 5"), 5) << "as before";
  EXPECT_EQ(assign("uid 70"), 3);
  EXPECT_EQ(assign("uid 71"), UnixPeers::kSlots - 1);
  EXPECT_EQ(assign("uid 72"), UnixPeers::kSlots - 1) << "shared";
  EXPECT_EQ(assign("uid 71"), UnixPeers::kSlots - 1);
  open.erase("uid 0");
  EXPECT_EQ(assign("uid 73"), 0);
}

}  // namespace
}  // namespace reduced::server
