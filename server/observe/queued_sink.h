// A sink of spdlog whose callers never wait for whoever reads the log.
#ifndef REDUCED_SERVER_OBSERVE_QUEUED_SINK_H_
#define REDUCED_SERVER_OBSERVE_QUEUED_SINK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "spdlog/sinks/sink.h"

namespace reduced::server {

// Queues lines, which a thread of its own writes. Once the queue is full, further lines are dropped and counted until
// all that waits is written; then one line says how many were dropped. A line that can't be written is dropped, too.
// Thread-safe.
//
// spdlog's own asynchronous logger would wait at its end for a reader who may never read, and its queue is limited in
// lines instead of bytes.
class QueuedSink final : public spdlog::sinks::sink {
 public:
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 20;

  // Writes to a duplicate of `fd`. max_bytes: of the lines that wait. Lines have colours if `fd` is a terminal.
  explicit QueuedSink(int fd, std::size_t max_bytes = kMaxBytes);
  ~QueuedSink() override;  // flush; what waits then is lost
  QueuedSink(const QueuedSink&) = delete;
  QueuedSink& operator=(const QueuedSink&) = delete;

  void log(const spdlog::details::log_msg& message) override;
  // Waits until all lines are written, at most half a second.
  void flush() override;
  void set_pattern(const std::string& pattern) override;
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override;

  // Lines dropped so far.
  std::uint64_t dropped() const;

 private:
  class Queue;
  // The thread has it, too: it may be stuck in a write when the sink ends.
  const std::shared_ptr<Queue> queue_;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_OBSERVE_QUEUED_SINK_H_
