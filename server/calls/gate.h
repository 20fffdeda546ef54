// The gate counts the calls that run, and is closed when the server drains.
#ifndef REDUCED_SERVER_CALLS_GATE_H_
#define REDUCED_SERVER_CALLS_GATE_H_

#include <algorithm>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace reduced::server {

// Thread-safe.
class Gate {
 public:
  // Counts a call in. UNAVAILABLE: the gate is closed.
  absl::Status Enter() {
    const absl::MutexLock lock(&mutex_);
    if (closed_) return absl::UnavailableError("the server is draining: it accepts no new requests");
    ++inside_;
    ++entered_;
    return absl::OkStatus();
  }
  // Counts out a call that was counted in.
  void Leave() {
    const absl::MutexLock lock(&mutex_);
    --inside_;
  }

  bool IsEmpty() {
    const absl::MutexLock lock(&mutex_);
    return inside_ == 0;
  }

  // Closes the gate for good.
  void Close() {
    const absl::MutexLock lock(&mutex_);
    closed_ = true;
  }
  // Waits until no call has been inside for `quiet`; false: calls still were at the deadline.
  bool AwaitQuiet(absl::Duration quiet, absl::Time deadline) {
    const absl::MutexLock lock(&mutex_);
    const auto empty = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return inside_ == 0; };
    for (;;) {
      if (!mutex_.AwaitWithDeadline(absl::Condition(&empty), deadline)) return false;
      const auto used = [this, before = entered_]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return entered_ != before; };
      const absl::Time until = std::min(absl::Now() + quiet, deadline);
      if (closed_ || !mutex_.AwaitWithDeadline(absl::Condition(&used), until)) return true;
    }
  }

 private:
  absl::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  int inside_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t entered_ ABSL_GUARDED_BY(mutex_) = 0;  // calls, in all
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_GATE_H_
