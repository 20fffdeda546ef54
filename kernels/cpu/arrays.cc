#include "kernels/cpu/arrays.h"

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "kernels/system/failpoint.h"

namespace reduced {
namespace {

class CpuArray final : public ArrayMemory {
 public:
  static absl::StatusOr<std::unique_ptr<ArrayMemory>> Make(std::int64_t bytes, ArrayBudget& budget,
                                                           std::uint64_t caller) {
    const absl::Status taken = budget.Take(bytes, caller);
    if (!taken.ok()) return taken;
    void* data = nullptr;
    if (bytes > 0) {
      data = FAILPOINT("cpu/map") ? MAP_FAILED
                                  : mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (data == MAP_FAILED) {
        budget.Give(bytes, caller);
        return budget.NoRoom(bytes);
      }
      madvise(data, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);  // where they can be had: fewer page faults
    }
    return std::unique_ptr<ArrayMemory>(new CpuArray(data, bytes, budget, caller));
  }
  ~CpuArray() override {
    if (data_ != nullptr) munmap(data_, static_cast<std::size_t>(bytes_));
    budget_.Give(bytes_, caller_);
  }

  ArrayRef array() const override { return {data_, MemorySpace::kHost}; }
  absl::Status Write(std::int64_t offset, const void* data, std::int64_t bytes) override {
    if (bytes > 0) std::memcpy(static_cast<char*>(data_) + offset, data, static_cast<std::size_t>(bytes));
    return absl::OkStatus();
  }
  absl::Status Read(std::int64_t offset, std::int64_t bytes, void* to) const override {
    if (bytes > 0) std::memcpy(to, static_cast<const char*>(data_) + offset, static_cast<std::size_t>(bytes));
    return absl::OkStatus();
  }

 private:
  CpuArray(void* data, std::int64_t bytes, ArrayBudget& budget, std::uint64_t caller)
      : data_(data), bytes_(bytes), budget_(budget), caller_(caller) {}

  void* const data_;
  const std::int64_t bytes_;
  ArrayBudget& budget_;
  const std::uint64_t caller_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ArrayMemory>> AllocateCpuArray(std::int64_t bytes, ArrayBudget& budget,
                                                              std::uint64_t caller) {
  return CpuArray::Make(bytes, budget, caller);
}

}  // namespace reduced
