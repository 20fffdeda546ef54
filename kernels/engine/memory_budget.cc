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
  if (absl::Status status = budget.Take(bytes, what); !status.ok()) return status;
  MemoryLease lease;
  lease.budget_ = &budget;
  lease.bytes_ = bytes;
  return lease;
}

}  // namespace reduced
