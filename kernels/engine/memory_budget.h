// One budget for the host memory that requests make a process take, whatever for: resident arrays, messages that were
// received or wait to be read, buffers of streams, arrays that ladders generate, scratch memory. Memory is set aside
// before it is taken, and no caller takes what others need: see fair_limit.h.
#ifndef REDUCED_KERNELS_ENGINE_MEMORY_BUDGET_H_
#define REDUCED_KERNELS_ENGINE_MEMORY_BUDGET_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/engine/fair_limit.h"

namespace reduced {

// Thread-safe.
class MemoryBudget : public std::enable_shared_from_this<MemoryBudget> {
 public:
  // limit >= 0, in bytes; share: of a caller, as FairLimit.
  explicit MemoryBudget(std::int64_t limit = std::numeric_limits<std::int64_t>::max(), double share = 1)
      : bytes_(limit, share) {}

  // Sets `bytes` >= 0 aside for the caller until Give() gets them back. RESOURCE_EXHAUSTED: they don't fit beside what
  // is taken, or exceed the caller's share. `what`: for the message, such as "a stream's buffers".
  absl::Status Take(std::uint64_t caller, std::int64_t bytes, std::string_view what);
  void Give(std::uint64_t caller, std::int64_t bytes) { bytes_.Give(caller, bytes); }

  std::int64_t taken() const { return bytes_.taken(); }
  std::int64_t limit() const { return bytes_.limit(); }
  // Whether the caller has more than its share now, because others have taken theirs since.
  bool IsOverShare(std::uint64_t caller) const { return bytes_.TakenBy(caller) > bytes_.ShareOf(caller); }

 private:
  FairLimit bytes_;
};

// Who pays for memory, and from which budget, which outlives what is taken from it.
struct MemoryPayer {
  MemoryBudget* budget = nullptr;
  std::uint64_t caller = 0;  // 0: an anonymous caller
};

// Bytes of a budget, given back when it is destroyed. A lease of 0 bytes may outlive the budget. Move-only.
class MemoryLease {
 public:
  // Of nothing.
  MemoryLease() = default;
  // As MemoryBudget::Take.
  static absl::StatusOr<MemoryLease> Take(const MemoryPayer& payer, std::int64_t bytes, std::string_view what);
  MemoryLease(MemoryLease&& other) noexcept { *this = std::move(other); }
  MemoryLease& operator=(MemoryLease&& other) noexcept {
    std::swap(payer_, other.payer_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MemoryLease() { Return(); }

  // Makes it a lease of `bytes` >= 0, always of the same payer: takes or gives the difference. On an error, which names
  // the difference, it stays as it is.
  absl::Status Resize(const MemoryPayer& payer, std::int64_t bytes, std::string_view what);
  // As Resize, but takes `bytes` >= 0 more.
  absl::Status Grow(const MemoryPayer& payer, std::int64_t bytes, std::string_view what);
  // Moves `bytes`, at most bytes(), to a lease of their own.
  MemoryLease Split(std::int64_t bytes);
  void Return();

  // Makes it a lease that several can hold. It keeps a budget that is owned by shared pointers.
  static std::shared_ptr<const MemoryLease> Share(MemoryLease lease);

  std::int64_t bytes() const { return bytes_; }

 private:
  MemoryPayer payer_;
  std::int64_t bytes_ = 0;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_ENGINE_MEMORY_BUDGET_H_
