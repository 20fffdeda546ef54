// Whether the tasks of a reduction go on: they stop together when the answer is no longer wanted, or when one of them
// fails.
#ifndef REDUCED_KERNELS_CPU_TASK_STOP_H_
#define REDUCED_KERNELS_CPU_TASK_STOP_H_

#include <atomic>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "kernels/engine/engine.h"

namespace reduced {

// Thread-safe.
class TaskStop {
 public:
  explicit TaskStop(const Job& job) : job_(job) {}

  // Whether a task has stopped the others. Takes a load.
  bool requested() const { return requested_.load(std::memory_order_relaxed); }

  // The same, and requests it if the job is cancelled or its time is over. Reads the clock.
  bool Due() {
    if (!requested()) Request(WhyStop(job_));
    return requested();
  }

  // Stops the tasks, unless `why` is OK. The first reason counts.
  void Request(const absl::Status& why) {
    if (why.ok()) return;
    requested_.store(true, std::memory_order_relaxed);
    const absl::MutexLock lock(&mutex_);
    why_.Update(why);
  }

  // OK: the tasks have not been stopped.
  absl::Status why() const {
    const absl::MutexLock lock(&mutex_);
    return why_;
  }

 private:
  const Job& job_;
  std::atomic<bool> requested_ = false;
  mutable absl::Mutex mutex_;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_TASK_STOP_H_
