// One budget for the host memory that requests make a process take, whatever for: resident arrays, messages that were
// received, buffers of streams, arrays that ladders generate, scratch memory. Memory is set aside before it is taken.
#ifndef REDUCED_KERNELS_ENGINE_MEMORY_BUDGET_H_
#define REDUCED_KERNELS_ENGINE_MEMORY_BUDGET_H_

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace reduced {

// Thread-safe.
class MemoryBudget {
 public:
  // limit >= 0, in bytes.
  explicit MemoryBudget(std::int64_t limit = std::numeric_limits<std::int64_t>::max()) : limit_(limit) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  // Sets `bytes` >= 0 aside until Give() gets them back. RESOURCE_EXHAUSTED: they don't fit beside what is taken.
  // `what`: for the message, such as "a stream's buffers".
  absl::Status Take(std::int64_t bytes, std::string_view what);
  void Give(std::int64_t bytes) { taken_.fetch_sub(bytes, std::memory_order_relaxed); }

  std::int64_t taken() const { return taken_.load(std::memory_order_relaxed); }
  std::int64_t limit() const { return limit_; }

 private:
  const std::int64_t limit_;
  std::atomic<std::int64_t> taken_ = 0;
};

// Bytes of a budget, given back when it is destroyed. Move-only. The budget outlives it.
class MemoryLease {
 public:
  // Of nothing.
  MemoryLease() = default;
  // As MemoryBudget::Take.
  static absl::StatusOr<MemoryLease> Take(MemoryBudget& budget, std::int64_t bytes, std::string_view what);
  // Makes it a lease of `bytes` >= 0 of the budget, always the same one: takes or gives the difference. On an error,
  // which names the difference, it stays as it is.
  absl::Status Resize(MemoryBudget& budget, std::int64_t bytes, std::string_view what);
  MemoryLease(MemoryLease&& other) noexcept { *this = std::move(other); }
  MemoryLease& operator=(MemoryLease&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MemoryLease() {
    if (budget_ != nullptr) budget_->Give(bytes_);
  }

 private:
  MemoryBudget* budget_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_ENGINE_MEMORY_BUDGET_H_
