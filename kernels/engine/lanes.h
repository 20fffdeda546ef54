// A fixed number of threads that take jobs from one bounded queue, which serves callers in turn (fair_queue.h) and each
// caller's jobs first in, first out. A job that nobody waits for any more leaves the queue within some milliseconds.
// Long jobs, of more than a second, leave one lane and half of the queue to others, which pass them.
//
// In a full queue a caller with less than its share of the places gets that of the newest job of the caller with most.
// Who is behind (standing_delay.h) gets no further place before what it has queued takes less than the target.
#ifndef REDUCED_KERNELS_ENGINE_LANES_H_
#define REDUCED_KERNELS_ENGINE_LANES_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/fair_queue.h"
#include "kernels/engine/standing_delay.h"
#include "kernels/engine/stopwatch.h"
#include "kernels/engine/why_stop.h"

namespace reduced {

// Thread-safe.
class Lanes {
 public:
  // A job is called exactly once: with its lane, 0 to lanes - 1, on that lane's thread; or with why it never gets one:
  // RESOURCE_EXHAUSTED (the queue is full, the caller is behind, or the deadline would pass in the queue) before Submit
  // returns, or later from another thread (the place went to another caller); as WhyStop, then or from another thread,
  // once the answer is no longer wanted; CANCELLED (the lanes stopped) from the destructor.
  using Job = absl::AnyInvocable<void(absl::StatusOr<int> lane) &&>;

  // What the queue knows of a job.
  struct Ticket {
    double expected_us = 0;  // that it needs a lane for, by itself, as the calibration has it
    // That it may need at most, if there is no telling beforehand: from how long it takes, nothing is learnt then.
    double most_us = 0;
    bool admitted = false;  // part of something that runs already, for which there is always a place
    CancelFlag cancelled{};
    absl::Time deadline = absl::InfiniteFuture();
    std::uint64_t caller = 0;  // whose turn it takes: as Job::caller
  };

  // Lanes and limit: at least 1. `queue_target`: how long jobs may wait for more than an interval before their caller
  // is behind.
  Lanes(int lanes, int queue_limit, absl::Duration queue_target = absl::InfiniteDuration());
  // Waits for the jobs that run; cancels those that wait.
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  // Gives the job a lane, or a place in the queue if every lane is busy. Never blocks.
  void Submit(Job job, Ticket ticket);
  void Submit(Job job) { Submit(std::move(job), Ticket()); }

  // Lends a lane that is free, if no job waits for one, to the calling thread: for what takes less than a hand-off. The
  // caller gives it back; the lanes outlive that.
  std::optional<int> TryBorrow(double expected_us = 0);
  void GiveBack(int lane);

  int count() const { return lanes_; }
  int busy() const;
  int queue_length() const;
  int queue_limit() const { return queue_limit_; }
  // RESOURCE_EXHAUSTED: why Submit would refuse a job now, whatever else it is.
  absl::Status CheckRoom(std::uint64_t caller, absl::Time deadline) const;
  // How long a job that is submitted now would wait, in microseconds: every lane's share of what is left of the jobs
  // that run, and of those that wait, as expected of each and corrected by how much longer than expected the last ones
  // took. Lanes share their device, so a free one waits, too.
  double waiting_us() const;

 private:
  struct Waiting {  // for FairQueue
    std::uint64_t caller = 0;
    double cost = 0;  // in microseconds
    JobClass job_class = JobClass::kShort;
    bool stays = false;
    Job job{};
    Ticket ticket{};
    Stopwatch since{};
  };
  struct Use {  // of a lane
    Ticket ticket;
    Stopwatch since{};
  };

  void Run(int lane);
  bool HasJobFor(int lane) const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !in_use_[lane].has_value() && queue_.HasNext(MayRunLong());
  }
  // Wakes the thread of a free lane, if there is a job for it.
  void CallLane() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Until the lanes stop: answers what waits in vain.
  void Sweep();
  bool IsFull() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  bool IsFullOfLong() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // RESOURCE_EXHAUSTED: why there is no place in the queue.
  absl::Status WhyRefused(const Ticket& ticket) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // The job whose place a new one takes, if it can't have another.
  std::optional<Waiting> MakeRoom(const Ticket& ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayRunLong() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return long_running_ < std::max(1, count() - 1); }
  void Take(int lane, Ticket ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // How long a job waits behind so much of others: in the queue, and what is left of the jobs that run.
  double WaitUs(double queued_us) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  const int lanes_;
  const int queue_limit_;
  mutable absl::Mutex mutex_;
  FairQueue<Waiting> queue_ ABSL_GUARDED_BY(mutex_);
  StandingDelay delay_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::optional<Use>> in_use_ ABSL_GUARDED_BY(mutex_);  // by lane; absent: it is free
  int busy_ ABSL_GUARDED_BY(mutex_) = 0;                            // lanes in use
  int long_running_ ABSL_GUARDED_BY(mutex_) = 0;
  double slowness_ ABSL_GUARDED_BY(mutex_) = 1;  // time taken over time expected: the latest jobs count most
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Not conditions of the mutex: whoever unlocks it would look at those of all idle lanes, small requests several
  // times.
  struct Idle {
    absl::CondVar wake{};
    bool called = false;  // and not awake yet
  };
  std::vector<Idle> idle_ ABSL_GUARDED_BY(mutex_);  // by lane
  absl::CondVar queued_, stopped_;                  // wake the sweeper
  std::vector<std::thread> threads_;
  std::thread sweeper_;
};

// The ticket of a job that is done `runs` times.
Lanes::Ticket TicketOf(const Job& job, const Calibration& calibration, int runs = 1);
// The ticket of a matrix product, which is not predicted.
Lanes::Ticket TicketOf(const MatmulJob& job);

}  // namespace reduced

#endif  // REDUCED_KERNELS_ENGINE_LANES_H_
