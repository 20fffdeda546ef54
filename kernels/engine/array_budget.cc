#include "kernels/engine/array_budget.h"

#include "absl/strings/str_format.h"

namespace reduced {

absl::Status ArrayBudget::Take(std::int64_t bytes, std::uint64_t caller) {
  const absl::MutexLock lock(&mutex_);
  if (bytes > limit_ - taken_) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "%s has no room for an array of %d bytes: its arrays take %d of the %d bytes that they may take", device_,
        bytes, taken_, limit_));
  }
  if (memory_ != nullptr) {
    if (absl::Status status = memory_->Take(caller, bytes, "an array"); !status.ok()) return status;
  }
  taken_ += bytes;
  return absl::OkStatus();
}

void ArrayBudget::Give(std::int64_t bytes, std::uint64_t caller) {
  const absl::MutexLock lock(&mutex_);
  taken_ -= bytes;
  if (memory_ != nullptr) memory_->Give(caller, bytes);
}

std::int64_t ArrayBudget::taken() const {
  const absl::MutexLock lock(&mutex_);
  return taken_;
}

absl::Status ArrayBudget::NoRoom(std::int64_t bytes) const {
  return absl::ResourceExhaustedError(
      absl::StrFormat("%s has no memory left for an array of %d bytes, though its arrays take only %d of the %d bytes "
                      "that they may take",
                      device_, bytes, taken(), limit_));
}

}  // namespace reduced
