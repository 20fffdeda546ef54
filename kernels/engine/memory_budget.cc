#include "kernels/engine/memory_budget.h"

#include "absl/strings/str_format.h"

namespace reduced {

absl::Status MemoryBudget::Take(std::int64_t bytes, std::string_view what) {
  std::int64_t taken = taken_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_ - taken) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("the server has no memory for %s, %d bytes: requests take %d of the %d bytes that they may "
                          "take; see --memory_bytes",
                          what, bytes, taken, limit_));
    }
  } while (!taken_.compare_exchange_weak(taken, taken + bytes, std::memory_order_relaxed));
  return absl::OkStatus();
}

absl::StatusOr<MemoryLease> MemoryLease::Take(MemoryBudget& budget, std::int64_t bytes, std::string_view what) {
  MemoryLease lease;
  if (absl::Status status = lease.Resize(budget, bytes, what); !status.ok()) return status;
  return lease;
}

absl::Status MemoryLease::Resize(MemoryBudget& budget, std::int64_t bytes, std::string_view what) {
  if (bytes > bytes_) {
    if (absl::Status status = budget.Take(bytes - bytes_, what); !status.ok()) return status;
  } else {
    budget.Give(bytes_ - bytes);
  }
  budget_ = &budget;
  bytes_ = bytes;
  return absl::OkStatus();
}

}  // namespace reduced
