#include "server/calls/poller.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/system/failpoint.h"
#include "kernels/system/status_macros.h"

namespace reduced::server {
namespace {

constexpr int kTurn = 8;  // submissions of one ring before the next one's
// Of a turn, and of a round of turns, after which the doorbells are looked at and what has used least comes first
// again. Both end with the submission that is handled then.
constexpr std::chrono::nanoseconds kTurnTime = std::chrono::milliseconds(1);
constexpr std::chrono::nanoseconds kRoundTime = std::chrono::milliseconds(5);
// A turn may be longer because the thread had no processor: then that time is not the ring's.
constexpr std::chrono::nanoseconds kLongTurn = std::chrono::microseconds(30);
// That one ring may have used more than another while both have submissions. Beyond it, who was served longest ago
// comes first.
constexpr std::chrono::nanoseconds kMostAhead = std::chrono::microseconds(400);
// Between two looks at the doorbells of sleeping rings while others are awake. A look is a system call.
constexpr std::chrono::nanoseconds kTimePerLook = std::chrono::microseconds(50);
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
    RETURN_IF_ERROR(Start());
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
  bool served = false;  // in the last round
  for (;;) {
    if (news_.exchange(false) && !TakeNews()) return;
    if (awake_.empty()) {
      AwaitDoorbells(-1);
      served = false;
    } else {
      if (!served) now_ = Clock::now();  // else it is the end of the last turn
      served = ServeRound();
      if (served) spin = {};
      spin.Pause();
      if (now_ - looked_ > kTimePerLook) AwaitDoorbells(0);
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
    Polled& polled = rings_[ring.get()];
    polled.ring = std::move(ring);
    WakeUp(polled);  // its client may have rung before
  }
  for (PolledRing* const key : removed) {
    const auto found = rings_.find(key);
    if (found == rings_.end()) continue;
    const std::shared_ptr<PolledRing> ring = std::move(found->second.ring);
    awake_.erase(std::remove(awake_.begin(), awake_.end(), &found->second), awake_.end());
    rings_.erase(found);
    epoll_ctl(epoll_, EPOLL_CTL_DEL, ring->doorbell(), nullptr);
    count_.fetch_sub(1, std::memory_order_relaxed);
    ring->LetGo();
  }
  return true;
}

// A turn of every ring that has submissions, or of as many as there is time for. Returns whether any had.
bool Poller::ServeRound() {
  FindWork();
  if (ready_.empty()) return false;
  Clock::duration turn = kTurnTime;
  if (ready_.size() > 1) {
    turn = std::min(turn, 4 * kRoundTime / static_cast<int>(ready_.size()));
    std::sort(ready_.begin(), ready_.end(), [](const Polled* a, const Polled* b) {
      return std::tie(a->used, a->last_served) < std::tie(b->used, b->last_served);
    });
    now_ = Clock::now();  // the time that sorting took is not that of the first
  }
  const Clock::time_point end = now_ + kRoundTime;
  for (Polled* const polled : ready_) {
    TakeTurn(*polled, turn);
    if (now_ > end) break;
  }
  return true;
}

// Finds the rings that have submissions, and lets those sleep that have had none for long.
void Poller::FindWork() {
  ready_.clear();
  Clock::duration least = Clock::duration::max();
  for (std::size_t i = 0; i < awake_.size();) {
    Polled& polled = *awake_[i];
    const bool was_busy = std::exchange(polled.busy, polled.ring->HasWork());
    if (polled.busy) {
      if (!was_busy) polled.used = std::max(polled.used, least_used_);
      least = std::min(least, polled.used);
      ready_.push_back(&polled);
    } else if (now_ - polled.idle_since > polled.ring->patience().now() && polled.ring->Doze()) {
      polled.awake = false;
      awake_[i] = awake_.back();
      awake_.pop_back();
      continue;
    }
    ++i;
  }
  if (ready_.empty()) return;
  least_used_ = least;
  for (Polled* const polled : ready_) polled->used = std::min<Clock::duration>(polled->used, least + kMostAhead);
}

void Poller::TakeTurn(Polled& polled, Clock::duration most) {
  const Clock::time_point start = now_;
  int served = 0;
  do {
    polled.ring->Serve();
    now_ = Clock::now();
  } while (++served < kTurn && now_ - start < most && polled.ring->HasWork());
  Clock::duration used = now_ - start;
  if (used > kLongTurn) {
    const Clock::duration away = TakeTimeAway();
    now_ = ran_at_;  // If the thread lost the processor since the turn ended, the next ring doesn't pay for that.
    used = std::max(Clock::duration::zero(), now_ - start - away);
  }
  polled.used += used;
  polled.ring->patience().Took(now_ - polled.last_served);
  polled.last_served = polled.idle_since = now_;
}

// The time for which the thread has not run since this was last called. A system call: after long turns and waits only.
Poller::Clock::duration Poller::TakeTimeAway() {
  timespec ran{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ran);
  const Clock::duration before = ran_;
  const Clock::time_point before_at = ran_at_;
  ran_ = std::chrono::seconds(ran.tv_sec) + std::chrono::nanoseconds(ran.tv_nsec);
  ran_at_ = Clock::now();
  return std::max(Clock::duration::zero(), (ran_at_ - before_at) - (ran_ - before));
}

void Poller::AwaitDoorbells(int timeout_ms) {
  std::array<epoll_event, kMaxEvents> events;
  const int count = epoll_wait(epoll_, events.data(), kMaxEvents, timeout_ms);
  if (timeout_ms != 0) {
    TakeTimeAway();  // that of the wait is nobody's
    now_ = ran_at_;
  }
  looked_ = now_;
  for (int i = 0; i < count; ++i) {
    // One that is not known yet is among the news, and one that is not known any more is gone.
    const auto found = rings_.find(static_cast<PolledRing*>(events[static_cast<std::size_t>(i)].data.ptr));
    if (found != rings_.end()) WakeUp(found->second);
  }
}

void Poller::WakeUp(Polled& polled) {
  polled.idle_since = Clock::now();
  if (std::exchange(polled.awake, true)) return;
  awake_.push_back(&polled);
  polled.ring->WakeUp();
}

Pollers::Pollers(int gpu_lanes) {
  const int count = CountFor(ring::Processors(), gpu_lanes);
  for (int i = 0; i < count; ++i) pollers_.push_back(std::make_unique<Poller>());
}

int Pollers::CountFor(int processors, int gpu_lanes) {
  constexpr int kProcessors = 4;
  // Enough for what the processors reduce. A small reduction on a GPU holds its thread, and a lane, for some 20 us, so
  // that as many threads as lanes keep the GPUs busy, and more wait for each other.
  constexpr int kLeast = 4, kMost = 16;
  return std::clamp(processors / kProcessors, 1, std::clamp(gpu_lanes, kLeast, kMost));
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
