// Ends calls that gRPC doesn't end. A call that missed its deadline, or was cancelled, ends only once gRPC has written
// what it has begun to write. If the server, or a proxy before it, has stopped reading, that is never.
#ifndef REDUCED_CLIENT_LIB_CALL_WATCH_H_
#define REDUCED_CLIENT_LIB_CALL_WATCH_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/time/time.h"
#include "client/lib/target.h"

namespace reduced::client {

// The far ends that the connections of a channel can have: Unix sockets, and ports of any address, because a name may
// stand for many.
using Peers = absl::flat_hash_set<std::string>;
std::shared_ptr<const Peers> PeersOf(const Target& target);

// In a fork, whose descriptors of connections are its parent's, too: puts a closed connection in the place of each one
// to a peer of any client, so that what gRPC still does with them here neither takes nor sends a byte of the parent's.
// No thread may be in PeersOf at the fork.
void DisconnectFork();

// Watches one call. If the call goes on after it should have ended, those connections of this process to its peers are
// shut down that have bytes to send and sent none for a second. Then gRPC ends the call, with the error that it would
// have had. Thread-safe.
class CallWatch {
 public:
  // `ends`: the deadline of the call; may be infinite.
  CallWatch(std::shared_ptr<const Peers> peers, absl::Time ends) : peers_(std::move(peers)), ends_(ends) {}
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;
  ~CallWatch() { Ended(); }

  void Started();    // has no effect after Ended
  void Cancelled();  // the call should end now
  void Ended();      // may be called any number of times

 private:
  class Watcher;
  enum class State : std::uint8_t { kNew, kStarted, kEnded };

  const std::shared_ptr<const Peers> peers_;
  // Guarded by the mutex of the one watcher.
  absl::Time ends_;
  State state_ = State::kNew;
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_CALL_WATCH_H_
