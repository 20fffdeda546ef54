// Counts the open connections, of all peers and of each, and decides whether one more may come.
//
// gRPC closes connections without telling anybody. So a connection is remembered by its descriptor and the inode of its
// socket: it is open for as long as that descriptor is of that inode. Every connection is looked at once a second, and
// before one is refused.
#ifndef REDUCED_SERVER_CONNECTIONS_H_
#define REDUCED_SERVER_CONNECTIONS_H_

#include <sys/socket.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "server/config/options.h"

namespace reduced::server {

// Why a connection is closed: all but the last at once.
enum class Refusal : std::uint8_t { kConnections, kPeer, kDescriptors, kFrames };
struct RefusalRow {
  std::string_view name;  // in metrics
  std::string_view text;  // in the log
};
inline constexpr std::array<RefusalRow, 4> kRefusals = {{
    {"connections", "as many as --max_connections allows are open"},
    {"peer", "as many of this peer as --max_connections_per_peer allows are open"},
    {"descriptors", "the process needs the descriptors that it has left"},
    {"frames", "it sent frames that take more than they bring: see frame_meter.h"},
}};

struct ConnectionLimits {
  int connections = 0;  // at once
  int per_peer = 0;
  int descriptor = 0;  // the first that no connection gets
};

// The limits for a process that may have `descriptors`, of which `in_use` are in use. By default connections get half
// of the others, as regions do, less what the connections of regions and everything else need, but at least a quarter.
ConnectionLimits LimitsOf(const ConnectionOptions& options, int region_connections, int descriptors, int in_use);

// Who is at the other end: "uid 1000" (Unix sockets), or as PeerName. nullopt: nobody any more.
std::optional<std::string> PeerOf(int file);

// One thread uses it; count() is for every thread.
class Connections {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Connections(const ConnectionLimits& limits) : limits_(limits) {}

  // Counts a new connection; or says why not, and counts nothing.
  std::optional<Refusal> Admit(int file, const std::string& peer);
  // Calls visit(file) for each connection that is open.
  void ForEach(absl::FunctionRef<void(int)> visit) const;
  // Sends the end of the stream on each connection, behind what gRPC has written, and nothing after it.
  void CloseForWriting() const;
  // Forgets the connections that have been closed. Takes about 0.3 us for each that is open.
  void Sweep();

  // Whether a connection of the peer is open; up to a second late.
  bool Has(const std::string& peer) const { return by_peer_.contains(peer); }

  int count() const { return count_.load(std::memory_order_relaxed); }
  const ConnectionLimits& limits() const { return limits_; }

 private:
  struct Connection {
    ino_t inode = 0;
    std::string peer{};
  };

  std::optional<Refusal> WhyRefused(const std::string& peer) const;
  void Forget(absl::flat_hash_map<int, Connection>::iterator connection);

  const ConnectionLimits limits_;
  absl::flat_hash_map<int, Connection> open_;      // by descriptor
  absl::flat_hash_map<std::string, int> by_peer_;  // how many; at least one
  std::atomic<int> count_ = 0;
  Clock::time_point next_sweep_{};  // for a connection that would be refused: so that a flood of these costs little
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CONNECTIONS_H_
