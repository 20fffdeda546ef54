#include "kernels/engine/lanes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace reduced {
namespace {

// How long a job that nobody waits for may keep its place.
constexpr absl::Duration kSweepEvery = absl::Milliseconds(5);

// What the least job counts as: a lane's hand-off.
constexpr double kLeastUs = 1;

bool IsLong(const Lanes::Ticket& ticket) { return std::max(ticket.expected_us, ticket.most_us) > 1e6; }

bool IsWanted(const Lanes::Ticket& ticket) { return WhyStop(ticket.cancelled, ticket.deadline).ok(); }

}  // namespace

Lanes::Lanes(int lanes, int queue_limit, absl::Duration queue_target)
    : lanes_(lanes), queue_limit_(queue_limit), delay_(queue_target), in_use_(lanes), idle_(lanes) {
  threads_.reserve(lanes);
  for (int lane = 0; lane < lanes; ++lane) threads_.emplace_back([this, lane] { Run(lane); });
  sweeper_ = std::thread([this] { Sweep(); });
}

Lanes::~Lanes() {
  std::vector<Waiting> dropped;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    for (Idle& each : idle_) each.wake.Signal();
    queued_.Signal();
    stopped_.Signal();
    dropped = queue_.RemoveUnless([](const Waiting&) { return false; });
  }
  for (Waiting& each : dropped) {
    std::move(each.job)(absl::CancelledError("the engine stopped before a lane was free"));
  }
  for (std::thread& thread : threads_) thread.join();
  sweeper_.join();
}

void Lanes::Submit(Job job, Ticket ticket) {
  std::optional<Waiting> displaced;
  // Takes the job and the ticket, unless it refuses.
  const auto enqueue = [&]() -> absl::Status {
    absl::Status refused = WhyStop(ticket.cancelled, ticket.deadline);
    if (!refused.ok()) return refused;
    absl::MutexLock lock(&mutex_);
    if (!ticket.admitted) {
      refused = WhyRefused(ticket);
      if (!refused.ok()) return refused;
      displaced = MakeRoom(ticket);
    }
    Waiting added{.caller = ticket.caller,
                  .cost = std::max(ticket.expected_us, kLeastUs),
                  .job_class = IsLong(ticket) ? JobClass::kLong : JobClass::kShort,
                  .stays = ticket.admitted};
    added.job = std::move(job);
    added.ticket = std::move(ticket);
    queue_.Push(std::move(added));
    CallLane();
    queued_.Signal();
    return absl::OkStatus();
  };
  if (const absl::Status refused = enqueue(); !refused.ok()) return std::move(job)(refused);
  if (!displaced.has_value()) return;
  std::move(displaced->job)(absl::ResourceExhaustedError(absl::StrFormat(
      "the queue is full: %d reductions wait, the most allowed; most of them are this caller's, and its "
      "newest one had to make room for another caller's",
      queue_limit_)));
}

bool Lanes::IsFull() const { return queue_.size() - (count() - busy_) >= queue_limit_; }
bool Lanes::IsFullOfLong() const { return queue_.size(JobClass::kLong) >= (queue_limit_ + 1) / 2; }

absl::Status Lanes::CheckRoom(std::uint64_t caller, absl::Time deadline) const {
  const absl::MutexLock lock(&mutex_);
  return WhyRefused({.deadline = deadline, .caller = caller});
}

absl::Status Lanes::WhyRefused(const Ticket& ticket) const {
  if (IsFull() && !queue_.MayDisplace(ticket.caller)) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("the queue is full: %d jobs run and %d wait, the most allowed", count(), queue_limit_));
  }
  if (IsLong(ticket) && IsFullOfLong() && !queue_.MayDisplace(ticket.caller, JobClass::kLong)) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "half of the queue is full: %d reductions wait that take more than a second, as this one, the most allowed",
        queue_.size(JobClass::kLong)));
  }
  if (queue_.size() < count() - busy_) return absl::OkStatus();  // a lane is there for it
  // Only what is queued, which callers share: one that runs for minutes is no reason to refuse what another lane takes.
  const double before_us = queue_.CostBefore(ticket.caller);
  const absl::Duration queued = absl::Microseconds(slowness_ * before_us / count());
  if (queued > delay_.Allowed(ticket.caller)) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "the server is overloaded: this reduction would wait about %.0f ms for others of its caller; allowed: %s "
        "(--queue_target), and twice as long in a burst",
        absl::ToDoubleMilliseconds(queued), absl::FormatDuration(delay_.target())));
  }
  const absl::Duration wait = absl::Microseconds(WaitUs(before_us));
  if (absl::Now() + wait <= ticket.deadline) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrFormat("the deadline would pass in the queue: %d jobs run and %d wait, which takes about %.0f ms", busy_,
                      queue_.size(), absl::ToDoubleMilliseconds(wait)));
}

std::optional<Lanes::Waiting> Lanes::MakeRoom(const Ticket& ticket) {
  if (IsLong(ticket) && IsFullOfLong()) return queue_.Displace(ticket.caller, JobClass::kLong);
  if (IsFull()) return queue_.Displace(ticket.caller);
  return std::nullopt;
}

std::optional<int> Lanes::TryBorrow(double expected_us) {
  absl::MutexLock lock(&mutex_);
  if (!queue_.empty()) return std::nullopt;
  const auto free = std::find_if(in_use_.begin(), in_use_.end(), [](const auto& use) { return !use.has_value(); });
  if (free == in_use_.end()) return std::nullopt;
  const int lane = static_cast<int>(free - in_use_.begin());
  Take(lane, {.expected_us = expected_us});
  return lane;
}

void Lanes::Take(int lane, Ticket ticket) {
  ++busy_;
  if (IsLong(ticket)) ++long_running_;
  in_use_[lane].emplace(Use{.ticket = std::move(ticket)});
}

void Lanes::GiveBack(int lane) {
  absl::MutexLock lock(&mutex_);
  const Use use = *std::exchange(in_use_[lane], std::nullopt);
  const double expected_us = use.ticket.expected_us;
  // What was stopped on its way says nothing of the others.
  if (expected_us > 0 && IsWanted(use.ticket)) {
    constexpr double kWeight = 1.0 / 8;  // of the latest job
    constexpr double kAtMost = 64;       // one that had to wait for something else says little of the others, either
    const double slowness = std::clamp(use.since.micros() / expected_us, 1 / kAtMost, kAtMost);
    if (use.ticket.most_us == 0) slowness_ += kWeight * (slowness - slowness_);
    // Who was served longer than expected, more than others are, is next later.
    queue_.Charge(use.ticket.caller, std::max(0.0, use.since.micros() / slowness_ - expected_us));
  }
  --busy_;
  if (IsLong(use.ticket)) --long_running_;
  CallLane();
}

void Lanes::CallLane() {
  if (!queue_.HasNext(MayRunLong())) return;
  for (std::size_t lane = 0; lane < idle_.size(); ++lane) {
    if (in_use_[lane].has_value() || idle_[lane].called) continue;
    idle_[lane].called = true;
    idle_[lane].wake.Signal();
    return;
  }
}

int Lanes::busy() const {
  absl::MutexLock lock(&mutex_);
  return busy_;
}

int Lanes::queue_length() const {
  absl::MutexLock lock(&mutex_);
  return queue_.size();
}

double Lanes::waiting_us() const {
  absl::MutexLock lock(&mutex_);
  return WaitUs(queue_.cost());
}

double Lanes::WaitUs(double queued_us) const {
  double left_us = slowness_ * queued_us;
  for (const std::optional<Use>& use : in_use_) {
    if (!use.has_value() || !IsWanted(use->ticket)) continue;
    left_us += std::max(0.0, slowness_ * use->ticket.expected_us - use->since.micros());
  }
  return left_us / count();
}

void Lanes::Run(int lane) {
  while (true) {
    Job job;
    {
      absl::MutexLock lock(&mutex_);
      while (!stopping_ && !HasJobFor(lane)) {
        idle_[lane].called = false;
        idle_[lane].wake.Wait(&mutex_);
      }
      if (stopping_) return;
      Waiting next = *queue_.Pop(MayRunLong());
      delay_.Left(next.caller, absl::Microseconds(next.since.micros()), absl::Now());
      job = std::move(next.job);
      Take(lane, std::move(next.ticket));
    }
    std::move(job)(lane);
    job = nullptr;
    GiveBack(lane);
  }
}

void Lanes::Sweep() {
  while (true) {
    std::vector<Waiting> left;
    {
      absl::MutexLock lock(&mutex_);
      while (!stopping_ && queue_.empty()) queued_.Wait(&mutex_);
      const absl::Time next = absl::Now() + kSweepEvery;
      while (!stopping_ && !stopped_.WaitWithDeadline(&mutex_, next)) {
      }
      if (stopping_) return;
      left = queue_.RemoveUnless([](const Waiting& each) { return IsWanted(each.ticket); });
      const auto waits = [this](std::uint64_t caller)
                             ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return queue_.Waits(caller); };
      delay_.Look(waits, absl::Now());
    }
    for (Waiting& each : left) std::move(each.job)(WhyStop(each.ticket.cancelled, each.ticket.deadline));
  }
}

Lanes::Ticket TicketOf(const Job& job, const Calibration& calibration, int runs) {
  return {.expected_us = runs * ExpectedUs(calibration, job.spec, job.array),
          .admitted = job.admitted,
          .cancelled = job.cancelled,
          .deadline = job.deadline,
          .caller = job.caller};
}

Lanes::Ticket TicketOf(const MatmulJob& job) {
  return {.cancelled = job.cancelled, .deadline = job.deadline, .caller = job.caller};
}

}  // namespace reduced
