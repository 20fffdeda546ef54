// The gate counts the calls that run, and is closed when the server drains.
#ifndef REDUCED_SERVER_CALLS_GATE_H_
#define REDUCED_SERVER_CALLS_GATE_H_

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
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
  // Waits until no call is inside; false after `timeout`.
  bool AwaitEmpty(absl::Duration timeout) {
    const absl::MutexLock lock(&mutex_);
    const auto empty = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return inside_ == 0; };
    return mutex_.AwaitWithTimeout(absl::Condition(&empty), timeout);
  }

 private:
  absl::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  int inside_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_GATE_H_
