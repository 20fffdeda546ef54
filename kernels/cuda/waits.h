// Whether a CUDA device still answers: what waits for it, and for how long.
#ifndef REDUCED_KERNELS_CUDA_WAITS_H_
#define REDUCED_KERNELS_CUDA_WAITS_H_

#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace reduced {

// CUDA's own waits have no timeout, and nothing ends a kernel that hangs: so the threads that wait say so here, and
// another one asks Check(). Thread-safe.
class DeviceWaits {
 public:
  // A wait is too long after `patience` and a hundred times what it was expected to take.
  explicit DeviceWaits(absl::Duration patience) : patience_(patience) {}

  // A wait, from its construction to its destruction.
  class Wait {
   public:
    explicit Wait(DeviceWaits& waits, double expected_us = 0);
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    DeviceWaits& waits_;
    std::multiset<absl::Time>::iterator end_;
  };

  // UNAVAILABLE: a wait is too long, so that a kernel or transfer hangs. So it stays, whatever ends later.
  absl::Status Check();

 private:
  const absl::Duration patience_;
  absl::Mutex mutex_;
  std::multiset<absl::Time> ends_ ABSL_GUARDED_BY(mutex_);  // when each wait becomes too long
  bool hung_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_WAITS_H_
