#include "server/calls/poller.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/system/failpoint.h"

namespace reduced::server {
namespace {

constexpr int kTurn = 8;  // submissions of one ring before the next one's
// Of rings that are awake before the doorbells of the others are looked at, which is a system call: some 10 us.
constexpr int kRoundsPerCheck = 128;
constexpr int kMaxEvents = 64;  // at a time

}  // namespace

Poller::~Poller() {
  std::thread thread;
  {
    const absl::MutexLock lock(&mutex_);
    stopping_ = true;
    news_ = true;
    if (wake_ >= 0) eventfd_write(wake_, 1);
    thread = std::move(thread_);
  }
  if (thread.joinable()) thread.join();
  if (epoll_ >= 0) close(epoll_);
  if (wake_ >= 0) close(wake_);
}

absl::Status Poller::Add(std::shared_ptr<PolledRing> ring) {
  const absl::MutexLock lock(&mutex_);
  if (!thread_.joinable()) {
    if (const absl::Status status = Start(); !status.ok()) return status;
  }
  // Here, so that its error is an error of the session. The thread knows the ring before it sees an event: see
  // TakeNews.
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.ptr = ring.get();
  if (FAILPOINT_ERRNO("ring/epoll", ENOSPC, epoll_ctl(epoll_, EPOLL_CTL_ADD, ring->doorbell(), &event)) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("the ring: epoll_ctl: ", std::strerror(errno)));
  }
  added_.push_back(std::move(ring));
  count_.fetch_add(1, std::memory_order_relaxed);
  news_ = true;
  eventfd_write(wake_, 1);
  return absl::OkStatus();
}

absl::Status Poller::Start() {
  if (epoll_ < 0) epoll_ = epoll_create1(EPOLL_CLOEXEC);
  if (wake_ < 0) wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  if (epoll_ < 0 || wake_ < 0 || (epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event) != 0 && errno != EEXIST)) {
    return absl::ResourceExhaustedError(absl::StrCat("the ring: epoll: ", std::strerror(errno)));
  }
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

void Poller::Remove(PolledRing* ring) {
  const absl::MutexLock lock(&mutex_);
  removed_.push_back(ring);
  news_ = true;
  eventfd_write(wake_, 1);
}

void Poller::Run() {
  ring::Spin spin;
  for (int round = 0;; ++round) {
    if (news_.exchange(false) && !TakeNews()) return;
    if (awake_.empty()) {
      AwaitDoorbells(-1);
    } else {
      if (ServeAll()) spin = {};
      spin.Pause();
      if (round % kRoundsPerCheck == 0) AwaitDoorbells(0);
    }
  }
}

// What the other threads have added and removed. False: the poller ends.
bool Poller::TakeNews() {
  std::vector<std::shared_ptr<PolledRing>> added;
  std::vector<PolledRing*> removed;
  {
    const absl::MutexLock lock(&mutex_);
    if (stopping_) return false;
    added.swap(added_);
    removed.swap(removed_);
  }
  for (std::shared_ptr<PolledRing>& ring : added) {
    PolledRing* const key = ring.get();
    rings_[key].ring = std::move(ring);
    WakeUp(key);  // its client may have rung before
  }
  for (PolledRing* const key : removed) {
    const auto found = rings_.find(key);
    if (found == rings_.end()) continue;
    const std::shared_ptr<PolledRing> ring = std::move(found->second.ring);
    rings_.erase(found);
    awake_.erase(std::remove(awake_.begin(), awake_.end(), key), awake_.end());
    epoll_ctl(epoll_, EPOLL_CTL_DEL, ring->doorbell(), nullptr);
    count_.fetch_sub(1, std::memory_order_relaxed);
    ring->LetGo();
  }
  return true;
}

// A turn of every ring that is awake. Returns whether there was anything to do.
bool Poller::ServeAll() {
  bool any = false;
  for (std::size_t i = 0; i < awake_.size();) {
    Polled& polled = rings_.at(awake_[i]);
    const int served = polled.ring->Serve(kTurn);
    const Clock::time_point now = Clock::now();
    if (served > 0) {
      any = true;
      polled.ring->patience().Took(now - polled.last_served);
      polled.last_served = polled.idle_since = now;
    } else if (now - polled.idle_since > polled.ring->patience().now() && polled.ring->Doze()) {
      polled.awake = false;
      awake_[i] = awake_.back();
      awake_.pop_back();
      continue;
    }
    ++i;
  }
  return any;
}

void Poller::AwaitDoorbells(int timeout_ms) {
  std::array<epoll_event, kMaxEvents> events;
  const int count = epoll_wait(epoll_, events.data(), kMaxEvents, timeout_ms);
  for (int i = 0; i < count; ++i) {
    // One that is not known yet is among the news, and one that is not known any more is gone.
    auto* const ring = static_cast<PolledRing*>(events[static_cast<std::size_t>(i)].data.ptr);
    if (ring != nullptr && rings_.contains(ring)) WakeUp(ring);
  }
}

void Poller::WakeUp(PolledRing* ring) {
  Polled& polled = rings_.at(ring);
  polled.idle_since = Clock::now();
  if (std::exchange(polled.awake, true)) return;
  awake_.push_back(ring);
  ring->WakeUp();
}

Pollers::Pollers() {
  constexpr int kProcessors = 4;
  constexpr int kMost = 4;
  const int count = std::clamp(ring::Processors() / kProcessors, 1, kMost);
  for (int i = 0; i < count; ++i) pollers_.push_back(std::make_unique<Poller>());
}

Poller& Pollers::Next() {
  return **std::min_element(pollers_.begin(), pollers_.end(),
                            [](const auto& a, const auto& b) { return a->count() < b->count(); });
}

int Pollers::count() const {
  return std::accumulate(pollers_.begin(), pollers_.end(), 0,
                         [](int sum, const auto& each) { return sum + each->count(); });
}

}  // namespace reduced::server
