// A fixed number of threads that take jobs from one bounded first-in, first-out queue.
#ifndef REDUCED_KERNELS_ENGINE_LANES_H_
#define REDUCED_KERNELS_ENGINE_LANES_H_

#include <deque>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kernels/engine/stopwatch.h"

namespace reduced {

// Thread-safe.
class Lanes {
 public:
  // A job is called exactly once: with its lane, 0 to lanes - 1, on that lane's thread; or with why it never gets one,
  // RESOURCE_EXHAUSTED (the queue is full) before Submit returns, CANCELLED (the lanes stopped) from the destructor.
  using Job = absl::AnyInvocable<void(absl::StatusOr<int> lane) &&>;

  // Both at least 1.
  Lanes(int lanes, int queue_limit);
  // Waits for the jobs that run; cancels those that wait.
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  // Gives the job a lane, or a place in the queue if every lane is busy. Never blocks. `admitted`: part of something
  // that runs already, for which there is always a place.
  void Submit(Job job, bool admitted = false);

  // Lends a lane that is free, if no job waits for one, to the calling thread: for what takes less than a hand-off. The
  // caller gives it back; the lanes outlive that.
  std::optional<int> TryBorrow();
  void GiveBack(int lane);

  int count() const { return static_cast<int>(threads_.size()); }
  int busy() const;
  int queue_length() const;
  int queue_limit() const { return queue_limit_; }
  // How long a job that is submitted now would wait, in microseconds: every lane's share of what runs and what is
  // queued, each of which takes as long as the last ones did. Lanes share their device, so a free one waits, too.
  double waiting_us() const;

 private:
  void Run(int lane);

  const int queue_limit_;
  mutable absl::Mutex mutex_;
  std::deque<Job> queue_ ABSL_GUARDED_BY(mutex_);
  // By lane: since when it is in use; absent: it is free.
  std::vector<std::optional<Stopwatch>> in_use_ ABSL_GUARDED_BY(mutex_);
  int busy_ ABSL_GUARDED_BY(mutex_) = 0;           // lanes in use
  double typical_us_ ABSL_GUARDED_BY(mutex_) = 0;  // that a job has a lane for: the latest count most
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_ENGINE_LANES_H_
