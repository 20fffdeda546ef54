// Counts the frames of HTTP/2 that clients send, and ends connections that send too many of those which cost a server
// more than their sender: calls that are reset at once ("rapid reset", CVE-2023-44487), header blocks that never end
// (CVE-2023-33953, CVE-2024-27316), and frames that bring neither a call nor data (CVE-2019-9512, 9515, 9518).
//
// gRPC 1.51 bounds none of these, and tells nobody of frames. So the process has a recvmsg() and an SSL_read() of its
// own, which libgrpc finds before those of libc and libssl. They call those, look at the headers of frames, and answer
// with an error where a connection is to end. Whoever links gRPC statically links these, too. In the other direction a
// sendmsg() and an SSL_write() serve goaway.h.
//
// A client may reset half of its calls, and send a frame of the third kind for every four that bring calls or data; a
// tenth of one is a WINDOW_UPDATE.
// Beyond that there is an allowance for some at once and some a second: a small one for each connection, so that an
// honest client has what it needs beside others of its peer, and a larger one for all connections of a peer.
#ifndef REDUCED_SERVER_FRAME_METER_H_
#define REDUCED_SERVER_FRAME_METER_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/frame_cursor.h"

namespace reduced::server {

// Frames beyond those that calls and data pay for, by kind.
struct ExtraFrames {
  double resets = 0;
  double others = 0;  // that bring neither a call nor data
};

// So many at once, and so many a second. Not thread-safe.
class FrameBucket {
 public:
  using Clock = std::chrono::steady_clock;

  FrameBucket(const ExtraFrames& most, double per_second) : most_(most), per_second_(per_second), left_(most) {}

  // Takes frames, or puts those below 0 back. Gives what it does not have, or has no room for.
  ExtraFrames Take(const ExtraFrames& frames, Clock::time_point now);
  bool IsFull(Clock::time_point now);

 private:
  void Refill(Clock::time_point now);

  ExtraFrames most_;
  double per_second_;
  ExtraFrames left_;
  Clock::time_point refilled_ = Clock::now();
};

// The allowance of a peer. Thread-safe.
class FrameAllowance {
 public:
  using Clock = FrameBucket::Clock;

  static constexpr double kMost = 1000;      // of each kind at once
  static constexpr double kPerSecond = 200;  // of each kind

  // `ended` counts the connections that are ended; others may count there, too. `draining`: the connections are to get
  // a GOAWAY; null: never.
  FrameAllowance(std::string peer, std::shared_ptr<std::atomic<std::uint64_t>> ended,
                 std::shared_ptr<const std::atomic<bool>> draining = nullptr)
      : peer_(std::move(peer)), ended_(std::move(ended)), draining_(std::move(draining)) {}

  const std::string& peer() const { return peer_; }

  // Takes frames, or puts back. Whether the peer may send them.
  bool Take(const ExtraFrames& frames, Clock::time_point now);
  bool IsFull(Clock::time_point now);

  bool draining() const { return draining_ != nullptr && draining_->load(); }

  // A connection of the peer is ended, for a reason that goes into the log.
  void Ended(std::string_view why, Clock::time_point now);

 private:
  const std::string peer_;
  const std::shared_ptr<std::atomic<std::uint64_t>> ended_;
  const std::shared_ptr<const std::atomic<bool>> draining_;
  absl::Mutex mutex_;
  FrameBucket bucket_ ABSL_GUARDED_BY(mutex_){{kMost, kMost}, kPerSecond};
  Clock::time_point logged_ ABSL_GUARDED_BY(mutex_){};
};

// The bytes of one connection, in order. Thread-safe.
class FrameMeter {
 public:
  // Of the connection's own: what a client sends that connects, makes a few calls and cancels some of them.
  static constexpr ExtraFrames kOwn = {.resets = 10, .others = 30};
  static constexpr double kOwnPerSecond = 2;
  // A header block that gRPC would still accept is an eighth of this: GRPC_ARG_MAX_METADATA_SIZE.
  static constexpr std::size_t kMaxHeaderBlockBytes = std::size_t{64} << 10;
  static constexpr int kMaxHeaderBlockFrames = 64;

  // Begins with the first byte of a new connection.
  void Begin(std::shared_ptr<FrameAllowance> allowance);
  void Stop();
  std::shared_ptr<FrameAllowance> allowance();

  // Whether the connection may go on after these bytes. Once it may not, it never may.
  bool Feed(const void* data, std::size_t bytes, FrameBucket::Clock::time_point now);

 private:
  struct Counts {
    double calls = 0, data = 0, resets = 0, others = 0;
  };

  std::string_view Count() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string_view Settle(FrameBucket::Clock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  std::shared_ptr<FrameAllowance> allowance_ ABSL_GUARDED_BY(mutex_);  // null: everything goes
  FrameBucket own_ ABSL_GUARDED_BY(mutex_){kOwn, kOwnPerSecond};
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  FrameCursor cursor_ ABSL_GUARDED_BY(mutex_);
  std::size_t block_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of the header block that has not ended
  int block_frames_ ABSL_GUARDED_BY(mutex_) = 0;
  Counts counts_ ABSL_GUARDED_BY(mutex_);  // that no bucket has heard of
};

// Meters what gRPC reads from the descriptor of a new connection, until another one has that descriptor. `tls`: the
// frames are what SSL_read gives. For each connection, before gRPC has it.
void MeterConnection(int file, bool tls, std::shared_ptr<FrameAllowance> allowance);

// The peer of the connection with TLS that this thread read from last; empty: there is none.
std::string LastEncryptedPeer();

// From now on the connections whose allowances are draining get a GOAWAY with the next bytes that gRPC sends there.
void EnableGoaway();
// Sends it now on a metered connection whose allowance is draining, unless that has TLS. On the thread that calls
// MeterConnection.
void SendGoaway(int file);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_FRAME_METER_H_
