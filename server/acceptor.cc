#include "server/acceptor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "kernels/system/failpoint.h"
#include "spdlog/spdlog.h"

namespace reduced::server {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBeat{1000};  // the longest time between two rounds
constexpr std::chrono::seconds kDeaf{5};
constexpr milliseconds kFirstPause{10};
constexpr int kBatch = 64;  // connections of one listener in a round

// Errors of accept(2) that are of the connection, which is gone, and not of the listener.
constexpr int kOfConnection[] = {EINTR,     ECONNABORTED, EPERM,        EPROTO,     ENOPROTOOPT, ENETDOWN,
                                 EHOSTDOWN, ENONET,       EHOSTUNREACH, EOPNOTSUPP, ENETUNREACH};

int OpenReserve() { return FAILPOINT_ERRNO("acceptor/reserve", EMFILE, open("/dev/null", O_RDONLY | O_CLOEXEC)); }

int AcceptFrom(int listener) {
  return FAILPOINT_ERRNO("acceptor/accept", EMFILE, accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

}  // namespace

Acceptor::Acceptor(std::vector<Listener> listeners, const ConnectionLimits& limits)
    : listeners_(std::move(listeners)),
      connections_(limits),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      reserve_(OpenReserve()),
      beat_(Clock::now().time_since_epoch().count()),
      thread_([this] { Run(); }) {}

void Acceptor::Drain() {
  draining_->store(true);
  EnableGoaway();
  eventfd_write(wake_, 1);
}

void Acceptor::Stop() {
  if (!thread_.joinable()) return;
  Drain();
  stopping_.store(true);
  eventfd_write(wake_, 1);
  thread_.join();
  CloseListeners();
  connections_.CloseForWriting();
  if (wake_ >= 0) close(wake_);
  if (reserve_ >= 0) close(reserve_);
}

bool Acceptor::Accepts() const {
  const Clock::rep now = Clock::now().time_since_epoch().count();
  const Clock::rep limit = Clock::duration(kDeaf).count();
  const Clock::rep since = failing_since_.load();
  return now - beat_.load() < limit && (since == 0 || now - since < limit);
}

void Acceptor::Run() {
  std::vector<pollfd> polled = {{wake_, POLLIN, 0}};
  for (const Listener& each : listeners_) {
    for (const int file : each.sockets.files()) polled.push_back({file, POLLIN, 0});
  }
  milliseconds pause{0};  // without looking at the listeners
  Clock::time_point next_sweep = Clock::now() + kBeat;
  for (;;) {
    const milliseconds wait = pause.count() > 0 ? pause : kBeat;
    poll(polled.data(), pause.count() > 0 ? 1 : polled.size(), static_cast<int>(wait.count()));
    eventfd_t woken = 0;
    eventfd_read(wake_, &woken);
    if (stopping_.load()) return;
    const bool last = draining_->load();  // those that wait to be accepted are, and hear of the drain
    beat_.store(Clock::now().time_since_epoch().count());
    failed_ = false;
    for (Listener& each : listeners_) {
      for (const int file : each.sockets.files()) {
        for (int i = 0; i < kBatch && AcceptOne(file, each); ++i) continue;
      }
    }
    if (last && !listeners_.empty()) {
      CloseListeners();
      polled.resize(1);
    }
    if (failing_since_.load() != 0) CheckRecovery();
    pause = failed_ ? std::clamp(2 * pause, kFirstPause, kBeat) : milliseconds(0);
    if (Clock::now() < next_sweep) continue;
    connections_.Sweep();
    ForgetAllowances();
    LogSuppressed();
    next_sweep = Clock::now() + kBeat;
  }
}

void Acceptor::CloseListeners() {
  if (listeners_.empty()) return;
  listeners_.clear();
  connections_.ForEach([](int file) { SendGoaway(file); });
}

// Whether there may be another connection.
bool Acceptor::AcceptOne(int socket, Listener& listener) {
  const int file = AcceptFrom(socket);
  if (file >= 0) return TakeOver(socket, file, listener);
  if (errno == EAGAIN) return false;
  if (std::find(std::begin(kOfConnection), std::end(kOfConnection), errno) != std::end(kOfConnection)) return true;
  return HandleFailure(socket, errno);
}

bool Acceptor::TakeOver(int socket, int file, Listener& listener) {
  const std::optional<std::string> peer = PeerOf(file);
  if (!peer.has_value()) {
    close(file);  // as its peer has
  } else if (const std::optional<Refusal> why = connections_.Admit(file, *peer); why.has_value()) {
    Refuse(file, *why, *peer);
  } else {
    MeterConnection(file, listener.tls, AllowanceOf(*peer));
    listener.serve(socket, file, *peer, connections_);
  }
  return true;
}

const std::shared_ptr<FrameAllowance>& Acceptor::AllowanceOf(const std::string& peer) {
  std::shared_ptr<FrameAllowance>& allowance = allowances_[peer];
  if (allowance == nullptr) {
    auto* const ended = &(*refused_)[static_cast<std::size_t>(Refusal::kFrames)];
    allowance =
        std::make_shared<FrameAllowance>(peer, std::shared_ptr<std::atomic<std::uint64_t>>(refused_, ended), draining_);
  }
  return allowance;
}

// Those without a connection, unless their peers would find more than they left.
void Acceptor::ForgetAllowances() {
  const Clock::time_point now = Clock::now();
  absl::erase_if(allowances_,
                 [now](const auto& each) { return each.second.use_count() == 1 && each.second->IsFull(now); });
}

void Acceptor::Refuse(int file, Refusal why, std::string_view peer) {
  const auto index = static_cast<std::size_t>(why);
  (*refused_)[index].fetch_add(1, std::memory_order_relaxed);
  const std::string_view text = kRefusals[index].text;
  if (repeats_.Admit(text, absl::Now())) spdlog::warn("connections: refused one of {}: {}", peer, text);
  close(file);  // last: who sees it finds it counted
}

// Whether there may be another connection that can be handled.
bool Acceptor::HandleFailure(int listener, int error) {
  Clock::rep none = 0;
  failing_since_.compare_exchange_strong(none, Clock::now().time_since_epoch().count());
  const char* const text = std::strerror(error);
  if (repeats_.Admit(text, absl::Now())) spdlog::warn("connections: cannot accept one: {}", text);
  if ((error == EMFILE || error == ENFILE) && reserve_ >= 0) {
    close(reserve_);
    const int file = AcceptFrom(listener);
    const bool nobody = file < 0 && errno == EAGAIN;  // the kernel looks for a descriptor before a connection
    if (file >= 0) Refuse(file, Refusal::kDescriptors, PeerOf(file).value_or("a peer"));
    reserve_ = OpenReserve();
    if (file >= 0 || nobody) return file >= 0;
  }
  failed_ = true;
  return false;
}

// The next connection could be accepted if a socket can be made.
void Acceptor::CheckRecovery() {
  if (reserve_ < 0) reserve_ = OpenReserve();
  if (reserve_ < 0) return;
  const int file = FAILPOINT_ERRNO("acceptor/socket", EMFILE, socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (file < 0) return;
  close(file);
  failing_since_.store(0);
}

void Acceptor::LogSuppressed() {
  for (const Repeats::Suppressed& each : repeats_.TakeSuppressed(absl::Now())) {
    spdlog::warn("connections: repeated {} more times: {}", each.count, each.kind);
  }
}

}  // namespace reduced::server
