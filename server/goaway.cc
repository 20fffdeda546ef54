#include "server/goaway.h"

#include <cerrno>

namespace reduced::server {
namespace {

// 8 bytes on stream 0: the last stream that is served is the last there can be; NO_ERROR.
constexpr char kBytes[] = "\0\0\x08\x07\0\0\0\0\0\x7f\xff\xff\xff\0\0\0";
constexpr std::string_view kFrame(kBytes, sizeof(kBytes));  // its last byte is 0, too
static_assert(kFrame.size() == 9 + 8);

}  // namespace

void Goaway::Begin() {
  const absl::MutexLock lock(&mutex_);
  cursor_ = FrameCursor();
  possible_ = false;
  left_ = kFrame;
}

ssize_t Goaway::Send(bool due, Write frame, absl::FunctionRef<ssize_t(Sent&)> write) {
  const absl::MutexLock lock(&mutex_);
  if (!SendFrame(due, frame)) return -1;
  Sent sent(*this);
  return write(sent);
}

void Goaway::SendAlone(Write frame) {
  const absl::MutexLock lock(&mutex_);
  SendFrame(/*due=*/true, frame);
}

// False: gRPC must not write, since only a part of the frame has been written, or nothing can be.
bool Goaway::SendFrame(bool due, Write frame) {
  const bool begun = left_.size() < kFrame.size();
  if (left_.empty() || (!begun && (!due || !possible_ || !cursor_.between_frames()))) return true;
  const ssize_t written = frame(left_);
  if (written < 0) return false;
  left_.remove_prefix(static_cast<std::size_t>(written));
  if (left_.empty()) return true;
  errno = EAGAIN;
  return false;
}

void Goaway::Sent::Add(const void* data, std::size_t bytes) {
  goaway_.mutex_.AssertHeld();
  const auto* next = static_cast<const std::uint8_t*>(data);
  const std::uint8_t* const end = next + bytes;
  while (goaway_.cursor_.Next(&next, end)) {
    const std::uint8_t type = goaway_.cursor_.type();
    goaway_.possible_ = (type != kHeaders && type != kContinuation) || goaway_.cursor_.has(kEndHeaders);
  }
}

}  // namespace reduced::server
