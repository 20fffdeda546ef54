// Accepts the connections of all listeners, on one thread, and passes those within the limits on to gRPC.
//
// gRPC's own listeners stop for good at the first error of accept(2), such as a lack of descriptors (EMFILE), and
// accept any number of connections. This one closes a connection beyond a limit at once, so that its client knows,
// instead of leaving it in the queue of the kernel. It keeps one descriptor in reserve, to be able to do so when there
// is no other. After any error it goes on: at once, or after a pause of up to a second.
#ifndef REDUCED_SERVER_ACCEPTOR_H_
#define REDUCED_SERVER_ACCEPTOR_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "server/config/listener.h"
#include "server/connections.h"
#include "server/frame_meter.h"
#include "server/observe/repeats.h"

namespace reduced::server {

// Thread-safe except Stop.
class Acceptor {
 public:
  // Takes a connection over, with the duty to close it; `listener` is the socket that it came to, `peer` as PeerOf,
  // `open` what is open, this one included. Runs on the acceptor's thread.
  using Serve =
      absl::AnyInvocable<void(int listener, int connection, const std::string& peer, const Connections& open)>;
  struct Listener {
    ListenSockets sockets;
    Serve serve;
    bool tls = false;  // the connections are encrypted
  };

  Acceptor(std::vector<Listener> listeners, const ConnectionLimits& limits);
  ~Acceptor() { Stop(); }
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Accepts no more, closes the listeners, and has a GOAWAY sent on every connection. Connections stay. Returns at
  // once.
  void Drain();
  // Drain(), and ends the connections: their clients receive what has been sent, and then the end of the stream.
  void Stop();

  // Whether clients can connect: false once they could not for 5 s, for want of descriptors or memory or because the
  // thread hangs. Refusing connections beyond the limits is not meant.
  bool Accepts() const;

  int connections() const { return connections_.count(); }  // that are open; up to a second late
  const ConnectionLimits& limits() const { return connections_.limits(); }
  std::uint64_t refused(Refusal why) const {
    return (*refused_)[static_cast<std::size_t>(why)].load(std::memory_order_relaxed);
  }

 private:
  using Clock = Connections::Clock;

  void Run();
  bool AcceptOne(int socket, Listener& listener);
  bool TakeOver(int socket, int file, Listener& listener);
  const std::shared_ptr<FrameAllowance>& AllowanceOf(const std::string& peer);
  void ForgetAllowances();
  void Refuse(int file, Refusal why, std::string_view peer);
  bool HandleFailure(int listener, int error);
  void CheckRecovery();
  void LogSuppressed();
  void CloseListeners();

  std::vector<Listener> listeners_;
  Connections connections_;
  // Allowances outlive this: gRPC's threads use those of their connections.
  using Counts = std::array<std::atomic<std::uint64_t>, kRefusals.size()>;
  const std::shared_ptr<Counts> refused_ = std::make_shared<Counts>();
  absl::flat_hash_map<std::string, std::shared_ptr<FrameAllowance>> allowances_;  // by peer
  Repeats repeats_{10, absl::Seconds(10)};
  const std::shared_ptr<std::atomic<bool>> draining_ = std::make_shared<std::atomic<bool>>(false);
  std::atomic<bool> stopping_ = false;
  int wake_ = -1;                              // an eventfd
  int reserve_ = -1;                           // a descriptor to close when there is no other
  bool failed_ = false;                        // in this round
  std::atomic<Clock::rep> beat_;               // when the thread last showed that it is alive
  std::atomic<Clock::rep> failing_since_ = 0;  // 0: it does not fail
  std::thread thread_;                         // last: uses the rest
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_ACCEPTOR_H_
