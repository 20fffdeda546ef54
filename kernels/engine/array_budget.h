// How many bytes the arrays that stay on a device take, and may take.
#ifndef REDUCED_KERNELS_ENGINE_ARRAY_BUDGET_H_
#define REDUCED_KERNELS_ENGINE_ARRAY_BUDGET_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace reduced {

// Thread-safe.
class ArrayBudget {
 public:
  // `device`: its name, for messages. limit >= 0.
  ArrayBudget(std::string_view device, std::int64_t limit) : device_(device), limit_(limit) {}

  // Sets `bytes` >= 0 aside until Give() gets them back. RESOURCE_EXHAUSTED: they don't fit beside what is taken.
  absl::Status Take(std::int64_t bytes);
  void Give(std::int64_t bytes);

  std::int64_t taken() const;
  std::int64_t limit() const { return limit_; }
  // That the device itself has no room for an array of `bytes`, though the limit would allow it.
  absl::Status NoRoom(std::int64_t bytes) const;

 private:
  const std::string device_;
  const std::int64_t limit_;
  mutable absl::Mutex mutex_;
  std::int64_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_ENGINE_ARRAY_BUDGET_H_
