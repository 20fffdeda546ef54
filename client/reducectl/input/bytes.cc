#include "client/reducectl/input/bytes.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/system/status_macros.h"

namespace reduced::client {
namespace {

// The most bytes of one read(), so that deadlines and progress are noticed.
constexpr std::size_t kPiece = std::size_t{1} << 20;

// Waits until there is something to read, or the end. A FIFO that nobody has opened for writing yet has neither.
absl::Status AwaitReadable(int fd, absl::Time deadline, absl::Duration timeout) {
  for (;;) {
    const absl::Duration left = std::clamp(deadline - absl::Now(), absl::ZeroDuration(), absl::Hours(1));
    pollfd one{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = poll(&one, 1, static_cast<int>(absl::ToInt64Milliseconds(left)));
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("hasn't ended within ", absl::FormatDuration(timeout)));
    }
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "can't be read");
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<FileBytes>> FileBytes::Open(const std::string& source, absl::Duration timeout) {
  std::unique_ptr<FileBytes> file(new FileBytes);
  file->timeout_ = timeout;
  file->deadline_ = absl::Now() + timeout;
  // O_NONBLOCK: to open a FIFO would wait for a writer. AwaitReadable waits, which has a deadline.
  file->fd_ = source == "-" ? STDIN_FILENO : open(source.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file->fd_ < 0) return absl::ErrnoToStatus(errno, "can't be opened");
  struct stat about = {};
  file->regular_ = fstat(file->fd_, &about) == 0 && S_ISREG(about.st_mode);
  file->fifo_ = S_ISFIFO(about.st_mode);
  const off_t at = file->regular_ ? lseek(file->fd_, 0, SEEK_CUR) : 0;
  // Of standard input somebody may have read the beginning: what is left is no file of its own.
  if (at != 0) file->regular_ = false;
  file->size_ = file->regular_ ? about.st_size : 0;
  return file;
}

FileBytes::~FileBytes() {
  if (fd_ > STDIN_FILENO) close(fd_);
}

absl::StatusOr<std::size_t> FileBytes::Read(char* to, std::size_t size) {
  const bool timed = !regular_ && deadline_ != absl::InfiniteFuture();
  std::size_t filled = 0;
  while (filled < size) {
    if (timed || fifo_) {  // before the first read() of a FIFO, which would take a missing writer for the end
      RETURN_IF_ERROR(AwaitReadable(fd_, deadline_, timeout_));
      fifo_ = false;
    }
    const ssize_t got = read(fd_, to + filled, std::min(size - filled, kPiece));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {
      RETURN_IF_ERROR(AwaitReadable(fd_, deadline_, timeout_));
      continue;
    }
    if (got < 0) return absl::ErrnoToStatus(errno, "can't be read");
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
    done_ += got;
    if (on_read_ != nullptr) on_read_(done_, size_);
  }
  return filled;
}

absl::StatusOr<std::size_t> FileBytes::ReadAt(std::int64_t offset, char* to, std::size_t size) const {
  std::size_t filled = 0;
  while (filled < size) {
    const ssize_t got = pread(fd_, to + filled, size - filled, offset + static_cast<std::int64_t>(filled));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, "can't be read");
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  return filled;
}

absl::StatusOr<absl::string_view> PeekedBytes::Peek(std::size_t size) {
  const std::size_t have = head_.size() - taken_;
  if (have < size) {
    head_.erase(0, std::exchange(taken_, 0));
    head_.resize(size);
    const absl::StatusOr<std::size_t> got = source_->Read(head_.data() + have, size - have);
    head_.resize(have + (got.ok() ? *got : 0));
    if (!got.ok()) return got.status();
  }
  return absl::string_view(head_).substr(taken_, size);
}

absl::StatusOr<std::size_t> PeekedBytes::Read(char* to, std::size_t size) {
  const std::size_t peeked = std::min(size, head_.size() - taken_);
  std::copy_n(head_.data() + taken_, peeked, to);
  taken_ += peeked;
  if (peeked == size) return size;
  const absl::StatusOr<std::size_t> got = source_->Read(to + peeked, size - peeked);
  if (!got.ok()) return got;
  return peeked + *got;
}

absl::StatusOr<std::string> ReadAll(ByteSource& source, std::size_t expected, std::size_t limit) {
  try {
    std::string bytes;
    bytes.resize(expected == 0 ? std::size_t{1} << 16 : expected + 1);
    for (std::size_t filled = 0;;) {
      ASSIGN_OR_RETURN(const std::size_t got, source.Read(bytes.data() + filled, bytes.size() - filled));
      filled += got;
      if (filled < bytes.size()) {
        bytes.resize(filled);
        return bytes;
      }
      if (filled > limit) {
        return absl::ResourceExhaustedError(absl::StrCat(
            "input: got more than ", limit, " bytes; allowed: at most that, a third of the memory that is available"));
      }
      std::string larger;  // a new string, because an old one takes twice its bytes and not those that it is asked for
      larger.resize(std::min(2 * filled, std::max(limit, filled) + 1));
      bytes.copy(larger.data(), filled);
      bytes = std::move(larger);
    }
  } catch (const std::exception&) {  // std::bad_alloc, std::length_error
    return absl::ResourceExhaustedError("is too large for the memory of this process");
  }
}

}  // namespace reduced::client
