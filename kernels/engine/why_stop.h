// Whether the answer to a job is still wanted.
#ifndef REDUCED_KERNELS_ENGINE_WHY_STOP_H_
#define REDUCED_KERNELS_ENGINE_WHY_STOP_H_

#include <atomic>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace reduced {

// Set by whoever no longer wants the answer; read by the lane between chunks. Thread-safe. May be null.
using CancelFlag = std::shared_ptr<std::atomic<bool>>;

// How long work may run, whatever its caller wants; the time in a queue does not count. Copies made before Start() have
// clocks of their own.
class RunLimit {
 public:
  RunLimit() = default;  // none
  explicit RunLimit(absl::Duration most) : most_(most) {}

  // The work runs, and has run for `already`. Only the first call counts.
  void Start(absl::Duration already = absl::ZeroDuration()) {
    if (end_ == absl::InfiniteFuture() && most_ != absl::InfiniteDuration()) end_ = absl::Now() + most_ - already;
  }
  // DEADLINE_EXCEEDED: the time is over.
  absl::Status Check() const {
    if (end_ == absl::InfiniteFuture() || absl::Now() < end_) return absl::OkStatus();
    return absl::DeadlineExceededError(absl::StrCat("the request ran for ", absl::FormatDuration(most_),
                                                    ", the most that it may; see --max_run_time"));
  }

 private:
  absl::Duration most_ = absl::InfiniteDuration();
  absl::Time end_ = absl::InfiniteFuture();
};

// OK while the answer is wanted. Else why not: CANCELLED or DEADLINE_EXCEEDED.
inline absl::Status WhyStop(const CancelFlag& cancelled, absl::Time deadline, const RunLimit& limit = {}) {
  // The deadline first: gRPC cancels a call whose deadline has passed.
  if (deadline != absl::InfiniteFuture() && absl::Now() >= deadline) {
    return absl::DeadlineExceededError("the deadline passed before the answer was ready");
  }
  if (cancelled != nullptr && cancelled->load(std::memory_order_relaxed)) {
    return absl::CancelledError("the caller cancelled the call");
  }
  return limit.Check();
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_ENGINE_WHY_STOP_H_
