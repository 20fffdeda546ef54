#include "server/frame_meter.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "server/goaway.h"
#include "spdlog/spdlog.h"

namespace reduced::server {
namespace {

constexpr std::size_t kPrefaceBytes = 24;
constexpr double kResetsPerCall = 0.5;
constexpr double kOthersPerGood = 0.25;
constexpr double kOthersPerWindow = 0.1;  // gRPC's clients send one or two for each message of the server
constexpr std::chrono::seconds kLogEvery{10};

// The frames of one connection.
struct Frames {
  bool Due() { return in.allowance() != nullptr && in.allowance()->draining(); }

  FrameMeter in;
  Goaway out;
  bool read = false;  // of TLS: `in` has begun
};

// The frames of each descriptor; null: it never was that of a connection. They stay: a thread of gRPC may use them.
struct Metered {
  std::atomic<Frames*> frames = nullptr;
  std::atomic<std::uint64_t> cookie = 0;  // of the socket
  std::atomic<bool> tls = false;
};
constexpr std::size_t kDescriptors = std::size_t{1} << 20;  // the most descriptors that Linux allows by default
std::array<Metered, kDescriptors> metered;

std::atomic<bool> goaway_enabled = false;

// The meter of the descriptor that this thread read from last, whose frames SSL_read gives.
thread_local FrameMeter* encrypted = nullptr;

std::uint64_t CookieOf(int file) {
  std::uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  return getsockopt(file, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

// Whether the bytes of a message that recvmsg has received may reach gRPC.
[[maybe_unused]] bool Pass(int file, const msghdr& message, std::size_t bytes) {
  Metered& slot = metered[static_cast<std::size_t>(file)];
  Frames* const frames = slot.frames.load(std::memory_order_acquire);
  if (frames == nullptr) return true;
  if (slot.tls.load(std::memory_order_relaxed)) {
    encrypted = &frames->in;
    return true;
  }
  bool may = true;
  for (std::size_t i = 0; may && bytes > 0 && i < message.msg_iovlen; ++i) {
    const std::size_t here = std::min(bytes, message.msg_iov[i].iov_len);
    may = frames->in.Feed(message.msg_iov[i].iov_base, here, FrameBucket::Clock::now());
    bytes -= here;
  }
  if (may || CookieOf(file) == slot.cookie.load(std::memory_order_relaxed)) return may;
  frames->in.Stop();  // the connection has gone, and the descriptor is another socket's
  return true;
}

// The frames that gRPC sends through the descriptor; null: it is no connection, or one with TLS.
[[maybe_unused]] Frames* PlainFrames(int file) {
  if (file < 0 || static_cast<std::size_t>(file) >= metered.size()) return nullptr;
  const Metered& slot = metered[static_cast<std::size_t>(file)];
  return slot.tls.load(std::memory_order_relaxed) ? nullptr : slot.frames.load(std::memory_order_acquire);
}

void DeleteFrames(void* /*ssl*/, void* frames, CRYPTO_EX_DATA* /*data*/, int /*index*/, long /*unused*/,
                  void* /*unused*/) {
  delete static_cast<Frames*>(frames);
}

// The frames of a server's connection with TLS; null: it is none.
[[maybe_unused]] Frames* FramesOf(SSL* ssl) {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, &DeleteFrames);
  auto* frames = static_cast<Frames*>(SSL_get_ex_data(ssl, index));
  if (frames != nullptr || SSL_is_server(ssl) == 0) return frames;
  frames = new Frames();
  frames->out.Begin();
  if (SSL_set_ex_data(ssl, index, frames) == 1) return frames;
  delete frames;
  return nullptr;
}

}  // namespace

ExtraFrames FrameBucket::Take(const ExtraFrames& frames, Clock::time_point now) {
  Refill(now);
  ExtraFrames rest;
  for (const auto kind : {&ExtraFrames::resets, &ExtraFrames::others}) {
    const double left = left_.*kind - frames.*kind;
    left_.*kind = std::clamp(left, 0.0, most_.*kind);
    rest.*kind = left_.*kind - left;
  }
  return rest;
}

bool FrameBucket::IsFull(Clock::time_point now) {
  Refill(now);
  return left_.resets >= most_.resets && left_.others >= most_.others;
}

void FrameBucket::Refill(Clock::time_point now) {
  const double more = per_second_ * std::max(0.0, std::chrono::duration<double>(now - refilled_).count());
  refilled_ = std::max(refilled_, now);
  left_.resets = std::min(most_.resets, left_.resets + more);
  left_.others = std::min(most_.others, left_.others + more);
}

bool FrameAllowance::Take(const ExtraFrames& frames, Clock::time_point now) {
  const absl::MutexLock lock(&mutex_);
  const ExtraFrames rest = bucket_.Take(frames, now);
  return rest.resets <= 0 && rest.others <= 0;
}

bool FrameAllowance::IsFull(Clock::time_point now) {
  const absl::MutexLock lock(&mutex_);
  return bucket_.IsFull(now);
}

void FrameAllowance::Ended(std::string_view why, Clock::time_point now) {
  ended_->fetch_add(1, std::memory_order_relaxed);
  {
    const absl::MutexLock lock(&mutex_);
    if (logged_ != Clock::time_point() && now - logged_ < kLogEvery) return;
    logged_ = now;
  }
  spdlog::warn("connections: ended one of {}: it sent {}", peer_, why);
}

void FrameMeter::Begin(std::shared_ptr<FrameAllowance> allowance) {
  const absl::MutexLock lock(&mutex_);
  allowance_ = std::move(allowance);
  own_ = {kOwn, kOwnPerSecond};
  ended_ = false;
  cursor_ = FrameCursor(kPrefaceBytes);
  block_bytes_ = 0;
  block_frames_ = 0;
  counts_ = {};
}

void FrameMeter::Stop() { Begin(nullptr); }

std::shared_ptr<FrameAllowance> FrameMeter::allowance() {
  const absl::MutexLock lock(&mutex_);
  return allowance_;
}

bool FrameMeter::Feed(const void* data, std::size_t bytes, FrameBucket::Clock::time_point now) {
  const absl::MutexLock lock(&mutex_);
  if (ended_ || allowance_ == nullptr) return !ended_;
  const auto* next = static_cast<const std::uint8_t*>(data);
  const std::uint8_t* const end = next + bytes;
  std::string_view why;
  while (why.empty() && cursor_.Next(&next, end)) why = Count();
  if (why.empty()) why = Settle(now);
  if (why.empty()) return true;
  ended_ = true;
  allowance_->Ended(why, now);
  return false;
}

// Counts the frame whose header is complete. Not empty: what the connection ends for.
std::string_view FrameMeter::Count() {
  const std::size_t length = cursor_.length();
  switch (cursor_.type()) {
    case kData:
      if (length > 0) {
        ++counts_.data;
      } else if (!cursor_.has(kEndStream)) {
        ++counts_.others;
      }
      return "";
    case kWindowUpdate:
      counts_.others += kOthersPerWindow;
      return "";
    case kReset:
      ++counts_.resets;
      return "";
    case kHeaders:
      ++counts_.calls;
      block_bytes_ = 0;
      block_frames_ = 0;
      break;
    case kContinuation:
      break;
    default:
      ++counts_.others;
      return "";
  }
  block_bytes_ += length;
  ++block_frames_;
  return block_bytes_ > kMaxHeaderBlockBytes || block_frames_ > kMaxHeaderBlockFrames ? "a header block without end"
                                                                                      : "";
}

// Pays for the frames since the last time, once there is something to pay for.
std::string_view FrameMeter::Settle(FrameBucket::Clock::time_point now) {
  if (counts_.resets + counts_.others == 0) return "";
  const Counts counts = std::exchange(counts_, Counts());
  const ExtraFrames rest = own_.Take({.resets = counts.resets - kResetsPerCall * counts.calls,
                                      .others = counts.others - kOthersPerGood * (counts.calls + counts.data)},
                                     now);
  if (rest.resets == 0 && rest.others == 0) return "";
  if (allowance_->Take(rest, now)) return "";
  return rest.resets > 0 ? "more resets than half of its calls" : "too many frames that bring neither a call nor data";
}

void MeterConnection(int file, bool tls, std::shared_ptr<FrameAllowance> allowance) {
  if (file < 0 || static_cast<std::size_t>(file) >= metered.size()) return;
  Metered& slot = metered[static_cast<std::size_t>(file)];
  Frames* frames = slot.frames.load(std::memory_order_acquire);
  if (frames == nullptr) frames = new Frames();
  frames->in.Begin(std::move(allowance));
  frames->out.Begin();
  slot.tls.store(tls, std::memory_order_relaxed);
  slot.cookie.store(CookieOf(file), std::memory_order_relaxed);
  slot.frames.store(frames, std::memory_order_release);
}

void EnableGoaway() { goaway_enabled.store(true); }

void SendGoaway(int file) {
  Frames* const frames = PlainFrames(file);
  if (frames == nullptr || !frames->Due()) return;
  // gRPC may close the descriptor meanwhile, so that the number is something else's. This copy stays what it is.
  const int copy = fcntl(file, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return;
  const absl::Cleanup close_copy = [copy] { close(copy); };
  if (CookieOf(copy) != metered[static_cast<std::size_t>(file)].cookie.load(std::memory_order_relaxed)) return;
  frames->out.SendAlone(
      [copy](std::string_view frame) { return send(copy, frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL); });
}

std::string LastEncryptedPeer() {
  const std::shared_ptr<FrameAllowance> allowance = encrypted == nullptr ? nullptr : encrypted->allowance();
  return allowance == nullptr ? "" : allowance->peer();
}

}  // namespace reduced::server

// ---- in the place of libc's and libssl's
//
// Not with ThreadSanitizer, which knows a read of libgrpc's, whose order it cannot see, by its caller.
#ifndef __SANITIZE_THREAD__

namespace {

template <class Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" ssize_t recvmsg(int file, msghdr* message, int flags) {
  static auto* const next = Next<ssize_t(int, msghdr*, int)>("recvmsg");
  const ssize_t bytes = next(file, message, flags);
  // gRPC's reads of sockets have no flags.
  if (bytes <= 0 || flags != 0 || static_cast<std::size_t>(file) >= reduced::server::kDescriptors) return bytes;
  if (reduced::server::Pass(file, *message, static_cast<std::size_t>(bytes))) return bytes;
  errno = ECONNRESET;
  return -1;
}

extern "C" ssize_t sendmsg(int file, const msghdr* message, int flags) {
  static auto* const next = Next<ssize_t(int, const msghdr*, int)>("sendmsg");
  reduced::server::Frames* const frames = reduced::server::PlainFrames(file);
  if (frames == nullptr) return next(file, message, flags);
  const auto cookie = reduced::server::metered[static_cast<std::size_t>(file)].cookie.load(std::memory_order_relaxed);
  const bool due = reduced::server::goaway_enabled.load() && frames->Due() && reduced::server::CookieOf(file) == cookie;
  return frames->out.Send(
      due, [&](std::string_view frame) { return send(file, frame.data(), frame.size(), flags); },
      [&](reduced::server::Goaway::Sent& sent) {
        const ssize_t bytes = next(file, message, flags);
        std::size_t left = bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
        for (std::size_t i = 0; left > 0 && i < message->msg_iovlen; ++i) {
          const std::size_t here = std::min(left, message->msg_iov[i].iov_len);
          sent.Add(message->msg_iov[i].iov_base, here);
          left -= here;
        }
        return bytes;
      });
}

extern "C" int SSL_read(SSL* ssl, void* buffer, int size) {
  static auto* const next = Next<int(SSL*, void*, int)>("SSL_read");
  const int bytes = next(ssl, buffer, size);
  if (bytes <= 0) return bytes;
  reduced::server::Frames* const frames = reduced::server::FramesOf(ssl);
  if (frames == nullptr) return bytes;
  if (!std::exchange(frames->read, true) && reduced::server::encrypted != nullptr) {
    frames->in.Begin(reduced::server::encrypted->allowance());
  }
  const auto now = reduced::server::FrameBucket::Clock::now();
  return frames->in.Feed(buffer, static_cast<std::size_t>(bytes), now) ? bytes : -1;
}

extern "C" int SSL_write(SSL* ssl, const void* buffer, int size) {
  static auto* const next = Next<int(SSL*, const void*, int)>("SSL_write");
  reduced::server::Frames* const frames = reduced::server::FramesOf(ssl);
  if (frames == nullptr) return next(ssl, buffer, size);
  const bool due = reduced::server::goaway_enabled.load() && frames->Due();
  return static_cast<int>(frames->out.Send(
      due, [&](std::string_view frame) -> ssize_t { return next(ssl, frame.data(), static_cast<int>(frame.size())); },
      [&](reduced::server::Goaway::Sent& sent) -> ssize_t {
        const int bytes = next(ssl, buffer, size);
        if (bytes > 0) sent.Add(buffer, static_cast<std::size_t>(bytes));
        return bytes;
      }));
}

#endif
