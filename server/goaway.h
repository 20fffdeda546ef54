// Tells a client that its connection ends, while the server goes on to serve what arrives there: a GOAWAY of HTTP/2
// (RFC 9113, 6.8) that refuses no call. The client makes its next calls over another connection, to another server if
// it knows one, and closes this one once its calls have ended.
//
// gRPC 1.51 sends a GOAWAY only as it shuts down, when it cancels the calls that are still on their way to it. So the
// process has a sendmsg() and an SSL_write() of its own, in frame_meter.cc, which put the frame between two of gRPC's.
#ifndef REDUCED_SERVER_GOAWAY_H_
#define REDUCED_SERVER_GOAWAY_H_

#include <sys/types.h>

#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "server/frame_cursor.h"

namespace reduced::server {

// The bytes that a server sends on one connection. Thread-safe.
class Goaway {
 public:
  // Writes bytes of the frame; how many, or -1 with errno.
  using Write = absl::FunctionRef<ssize_t(std::string_view)>;
  // What gRPC has written, for Goaway to look at.
  class Sent {
   public:
    explicit Sent(Goaway& goaway) : goaway_(goaway) {}
    void Add(const void* data, std::size_t bytes);

   private:
    Goaway& goaway_;
  };

  // Begins with the first byte of a new connection.
  void Begin();

  // Writes what gRPC wants to write: `write` does, adds the bytes that were written, and returns what this is to
  // return. `due`: the frame is to be sent, once. It goes first where that is possible; -1 with EAGAIN: the connection
  // does not take all of it now.
  ssize_t Send(bool due, Write frame, absl::FunctionRef<ssize_t(Sent&)> write);

  // Writes the frame alone, if that is possible now: gRPC may have nothing to write for long.
  void SendAlone(Write frame);

 private:
  bool SendFrame(bool due, Write frame) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  FrameCursor cursor_ ABSL_GUARDED_BY(mutex_);
  bool possible_ ABSL_GUARDED_BY(mutex_) = false;  // the settings are first, and nothing comes within a header block
  std::string_view left_ ABSL_GUARDED_BY(mutex_);  // of the frame
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_GOAWAY_H_
