// How many bytes the arrays that stay on a device take, and may take.
#ifndef REDUCED_KERNELS_ENGINE_ARRAY_BUDGET_H_
#define REDUCED_KERNELS_ENGINE_ARRAY_BUDGET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "kernels/engine/memory_budget.h"

namespace reduced {

// Thread-safe.
class ArrayBudget {
 public:
  // `device`: its name, for messages. limit >= 0. `memory`: what these bytes count towards as well; may be null.
  ArrayBudget(std::string_view device, std::int64_t limit, std::shared_ptr<MemoryBudget> memory = nullptr)
      : device_(device), limit_(limit), memory_(std::move(memory)) {}

  // Sets `bytes` >= 0 aside until Give() gets them back. RESOURCE_EXHAUSTED: they don't fit beside what is taken.
  // `caller`: who pays for the memory.
  absl::Status Take(std::int64_t bytes, std::uint64_t caller = 0);
  void Give(std::int64_t bytes, std::uint64_t caller = 0);

  std::int64_t taken() const;
  std::int64_t limit() const { return limit_; }
  // That the device itself has no room for an array of `bytes`, though the limit would allow it.
  absl::Status NoRoom(std::int64_t bytes) const;

 private:
  const std::string device_;
  const std::int64_t limit_;
  const std::shared_ptr<MemoryBudget> memory_;
  mutable absl::Mutex mutex_;
  std::int64_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_ENGINE_ARRAY_BUDGET_H_
