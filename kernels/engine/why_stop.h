// Whether the answer to a job is still wanted.
#ifndef REDUCED_KERNELS_ENGINE_WHY_STOP_H_
#define REDUCED_KERNELS_ENGINE_WHY_STOP_H_

#include <atomic>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace reduced {

// Set by whoever no longer wants the answer; read by the lane between chunks. Thread-safe. May be null.
using CancelFlag = std::shared_ptr<std::atomic<bool>>;

// OK while the answer is wanted. Else why not: CANCELLED or DEADLINE_EXCEEDED.
inline absl::Status WhyStop(const CancelFlag& cancelled, absl::Time deadline) {
  // The deadline first: gRPC cancels a call whose deadline has passed.
  if (deadline != absl::InfiniteFuture() && absl::Now() >= deadline) {
    return absl::DeadlineExceededError("the deadline passed before the answer was ready");
  }
  if (cancelled != nullptr && cancelled->load(std::memory_order_relaxed)) {
    return absl::CancelledError("the caller cancelled the call");
  }
  return absl::OkStatus();
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_ENGINE_WHY_STOP_H_
