#include "server/observe/queued_sink.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <deque>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kernels/system/failpoint.h"
#include "spdlog/details/os.h"
#include "spdlog/pattern_formatter.h"

namespace reduced::server {
namespace {

constexpr absl::Duration kFlushTimeout = absl::Milliseconds(500);
constexpr int kPollMs = 100;  // after which the thread looks whether the sink has ended

// By level: the colours that spdlog's own sinks have.
constexpr std::string_view kColors[SPDLOG_LEVEL_OFF + 1] = {
    "\033[37m", "\033[36m", "\033[32m", "\033[33m\033[1m", "\033[31m\033[1m", "\033[1m\033[41m", ""};
constexpr std::string_view kNoColor = "\033[m";

}  // namespace

class QueuedSink::Queue {
 public:
  Queue(int fd, std::size_t max_bytes)
      : max_bytes_(max_bytes),
        colored_(isatty(fd) == 1 && spdlog::details::os::is_color_terminal()),
        fd_(fcntl(fd, F_DUPFD_CLOEXEC, 0)) {}
  ~Queue() {
    if (fd_ >= 0) close(fd_);
  }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  void Push(const spdlog::details::log_msg& message) {
    const absl::MutexLock lock(&mutex_);
    if (gap_ && !lines_.empty()) return Drop();  // until the gap is reported
    Append(message);
  }

  void Flush() {
    const absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(this, &Queue::IsEmpty), kFlushTimeout);
  }

  void End() {
    const absl::MutexLock lock(&mutex_);
    ended_ = true;
  }

  void SetFormatter(std::unique_ptr<spdlog::formatter> formatter) {
    const absl::MutexLock lock(&mutex_);
    formatter_ = std::move(formatter);
  }

  // The thread: writes lines until End.
  void Run() {
    for (;;) {
      std::string_view line;
      {
        const absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(this, &Queue::HasWork));
        if (ended_) return;
        line = lines_.front();  // stays where it is while others are appended
      }
      const bool written = Write(line);
      const absl::MutexLock lock(&mutex_);
      bytes_ -= lines_.front().size();
      lines_.pop_front();
      if (!written) {
        Drop();
      } else if (gap_ && lines_.empty()) {
        gap_ = false;
        const std::string report =
            absl::StrCat(dropped(), " lines of the log were dropped since the start: standard error took no more");
        Append({"reduced", spdlog::level::warn, report});
      }
    }
  }

  std::uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  bool IsEmpty() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return lines_.empty(); }
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return ended_ || !lines_.empty(); }

  void Drop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    gap_ = true;
    dropped_.fetch_add(1, std::memory_order_relaxed);
  }

  void Append(const spdlog::details::log_msg& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    message.color_range_start = message.color_range_end = 0;
    spdlog::memory_buf_t formatted;
    formatter_->format(message, formatted);
    std::string line(formatted.data(), formatted.size());
    if (colored_ && message.color_range_end > message.color_range_start) {
      line.insert(message.color_range_end, kNoColor);
      line.insert(message.color_range_start, kColors[message.level]);
    }
    if (bytes_ + line.size() > max_bytes_) return Drop();
    bytes_ += line.size();
    lines_.push_back(std::move(line));
  }

  // Waits until the file takes the line. False: it can't, or the sink has ended. The mode of the file may not be
  // changed, because other processes have it, too. So a write follows a poll, and is small enough that a pipe takes it
  // as a whole.
  bool Write(std::string_view line) const {
    while (!line.empty()) {
      pollfd file{fd_, POLLOUT, 0};
      if (fd_ >= 0 && poll(&file, 1, kPollMs) <= 0) {
        if (ended_) return false;
        continue;
      }
      const ssize_t written =
          FAILPOINT_ERRNO("log/write", ENOSPC, write(fd_, line.data(), std::min<std::size_t>(line.size(), PIPE_BUF)));
      if (written >= 0) {
        line.remove_prefix(static_cast<std::size_t>(written));
      } else if (errno != EINTR && errno != EAGAIN) {
        return false;
      }
    }
    return true;
  }

  const std::size_t max_bytes_;
  const bool colored_;
  const int fd_;  // below 0: none
  std::atomic<std::uint64_t> dropped_ = 0;
  std::atomic<bool> ended_ = false;

  absl::Mutex mutex_;
  std::unique_ptr<spdlog::formatter> formatter_ ABSL_GUARDED_BY(mutex_) = std::make_unique<spdlog::pattern_formatter>();
  std::deque<std::string> lines_ ABSL_GUARDED_BY(mutex_);  // the first is being written
  std::size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;          // of lines_
  bool gap_ ABSL_GUARDED_BY(mutex_) = false;               // lines were dropped since the last report
};

QueuedSink::QueuedSink(int fd, std::size_t max_bytes) : queue_(std::make_shared<Queue>(fd, max_bytes)) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for other threads
  std::thread([queue = queue_] { queue->Run(); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

QueuedSink::~QueuedSink() {
  queue_->Flush();
  queue_->End();
}

void QueuedSink::log(const spdlog::details::log_msg& message) { queue_->Push(message); }

void QueuedSink::flush() { queue_->Flush(); }

void QueuedSink::set_pattern(const std::string& pattern) {
  queue_->SetFormatter(std::make_unique<spdlog::pattern_formatter>(pattern));
}

void QueuedSink::set_formatter(std::unique_ptr<spdlog::formatter> formatter) {
  queue_->SetFormatter(std::move(formatter));
}

std::uint64_t QueuedSink::dropped() const { return queue_->dropped(); }

}  // namespace reduced::server
