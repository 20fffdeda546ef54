#include "kernels/cuda/waits.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace reduced {

DeviceWaits::Wait::Wait(DeviceWaits& waits, double expected_us) : waits_(waits) {
  constexpr double kFactor = 100;
  const absl::Time end = absl::Now() + waits.patience_ + absl::Microseconds(kFactor * expected_us);
  const absl::MutexLock lock(&waits_.mutex_);
  end_ = waits_.ends_.insert(end);
}

DeviceWaits::Wait::~Wait() {
  const absl::MutexLock lock(&waits_.mutex_);
  waits_.ends_.erase(end_);
}

absl::Status DeviceWaits::Check() {
  const absl::Time now = absl::Now();
  const absl::MutexLock lock(&mutex_);
  hung_ = hung_ || (!ends_.empty() && *ends_.begin() <= now);
  if (!hung_) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("the CUDA device hangs: what it was given has not ended after ",
                                             absl::FormatDuration(patience_),
                                             " and 100 times its predicted time (--device_timeout)"));
}

}  // namespace reduced
