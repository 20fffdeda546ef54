#include "server/connections.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/config/descriptors.h"
#include "server/security/peers.h"

namespace reduced::server {
namespace {

constexpr int kSweepShare = 20;  // sweeps for connections that would be refused take at most 1/20 of the time

// The inode of the socket that `file` is; nullopt: it is none.
std::optional<ino_t> SocketInode(int file) {
  struct stat status {};
  if (fstat(file, &status) != 0 || !S_ISSOCK(status.st_mode)) return std::nullopt;
  return status.st_ino;
}

}  // namespace

ConnectionLimits LimitsOf(const ConnectionOptions& options, int region_connections, int descriptors, int in_use) {
  const int spare = SpareDescriptors(descriptors);
  const int others = std::max(descriptors - in_use, 4);
  const int most = std::max(others - spare, 1);
  const int by_default = std::max(others / 2 - region_connections - spare, others / 4);
  ConnectionLimits limits;
  limits.connections = std::min(options.max_connections == 0 ? by_default : options.max_connections, most);
  limits.per_peer =
      options.max_connections_per_peer == 0 ? (limits.connections + 1) / 2 : options.max_connections_per_peer;
  limits.descriptor = descriptors - spare;
  return limits;
}

std::optional<std::string> PeerOf(int file) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getpeername(file, reinterpret_cast<sockaddr*>(&address), &size) != 0) return std::nullopt;
  if (address.ss_family == AF_UNIX) {
    ucred user{};
    socklen_t length = sizeof(user);
    if (getsockopt(file, SOL_SOCKET, SO_PEERCRED, &user, &length) != 0) return std::nullopt;
    return absl::StrCat("uid ", user.uid);
  }
  if (address.ss_family == AF_INET) return PeerName(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr);
  return PeerName(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

std::optional<Refusal> Connections::Admit(int file, const std::string& peer) {
  // What had this descriptor before has been closed.
  if (const auto before = open_.find(file); before != open_.end()) Forget(before);
  if (file >= limits_.descriptor) return Refusal::kDescriptors;
  if (WhyRefused(peer).has_value() && Clock::now() >= next_sweep_) Sweep();
  const std::optional<Refusal> refusal = WhyRefused(peer);
  if (refusal.has_value()) return refusal;
  open_[file] = {.inode = SocketInode(file).value_or(0), .peer = peer};
  ++by_peer_[peer];
  count_.store(static_cast<int>(open_.size()), std::memory_order_relaxed);
  return std::nullopt;
}

void Connections::ForEach(absl::FunctionRef<void(int)> visit) const {
  for (const auto& [file, connection] : open_) {
    if (SocketInode(file) == connection.inode) visit(file);
  }
}

void Connections::CloseForWriting() const {
  for (const auto& [file, connection] : open_) {
    // gRPC may close the descriptor meanwhile, so that the number is something else's. This copy stays what it is.
    const int copy = fcntl(file, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) continue;
    if (SocketInode(copy) == connection.inode) shutdown(copy, SHUT_WR);
    close(copy);
  }
}

void Connections::Sweep() {
  const Clock::time_point began = Clock::now();
  for (auto each = open_.begin(); each != open_.end();) {
    const auto connection = each++;
    if (SocketInode(connection->first) != connection->second.inode) Forget(connection);
  }
  const Clock::time_point now = Clock::now();
  next_sweep_ = now + kSweepShare * (now - began);
}

std::optional<Refusal> Connections::WhyRefused(const std::string& peer) const {
  const auto of_peer = by_peer_.find(peer);
  if (of_peer != by_peer_.end() && of_peer->second >= limits_.per_peer) return Refusal::kPeer;
  if (open_.size() >= static_cast<std::size_t>(limits_.connections)) return Refusal::kConnections;
  return std::nullopt;
}

void Connections::Forget(absl::flat_hash_map<int, Connection>::iterator connection) {
  const auto of_peer = by_peer_.find(connection->second.peer);
  if (--of_peer->second == 0) by_peer_.erase(of_peer);
  open_.erase(connection);
  count_.store(static_cast<int>(open_.size()), std::memory_order_relaxed);
}

}  // namespace reduced::server
