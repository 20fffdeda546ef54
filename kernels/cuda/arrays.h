// Device memory for resident arrays and for what reductions of arrays need: Engine::Allocate of the CUDA engine.
//
// It comes from a memory pool, which keeps freed memory: the next array takes microseconds, and neither allocating nor
// freeing waits for kernels that run. A thread trims the pool: it returns to the driver, for other processes, what was
// unused for some time.
#ifndef REDUCED_KERNELS_CUDA_ARRAYS_H_
#define REDUCED_KERNELS_CUDA_ARRAYS_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kernels/cuda/waits.h"
#include "kernels/engine/array_budget.h"
#include "kernels/engine/engine.h"

namespace reduced {

// Thread-safe. Outlives what it allocates.
class CudaArrays {
 public:
  static constexpr std::int64_t kKept = std::int64_t{64} << 20;  // unused bytes that the pool keeps
  // `limit`: bytes of all arrays together. `keeps`: the pool is trimmed of what was unused for so long, at most twice
  // as long. `waits` outlives it. FAILED_PRECONDITION: the device has no memory pools. Else as DeviceError.
  static absl::StatusOr<std::unique_ptr<CudaArrays>> Make(int device, std::string_view name, std::int64_t limit,
                                                          absl::Duration keeps, const cudaDeviceProp& properties,
                                                          DeviceWaits& waits);
  ~CudaArrays();
  CudaArrays(const CudaArrays&) = delete;
  CudaArrays& operator=(const CudaArrays&) = delete;

  // See Engine::Allocate.
  absl::StatusOr<std::unique_ptr<ArrayMemory>> Allocate(std::int64_t bytes);

  const ArrayBudget& budget() const { return budget_; }
  // What the pool has of the device's memory, free or not.
  std::int64_t reserved_bytes() const { return AttributeOf(cudaMemPoolAttrReservedMemCurrent); }

 private:
  class Memory;

  CudaArrays(int device, std::string_view name, std::int64_t limit, absl::Duration keeps, DeviceWaits& waits)
      : device_(device), keeps_(keeps), waits_(waits), budget_(name, limit) {}

  absl::Status MakePool(const cudaDeviceProp& properties);
  // The trimmer thread: after something was freed, trims every keeps_ until nothing more is unused. Returns at the end.
  void RunTrimmer();
  void NoteFreed();
  bool AwaitFreed();  // false: the trimmer is to end, as of Pause
  bool Pause();       // for keeps_
  // Returns to the driver what was unused since the last time, except kKept. True: there may be more the next time.
  bool TrimPool();
  std::int64_t AttributeOf(cudaMemPoolAttr attribute) const;

  const int device_;
  const absl::Duration keeps_;
  DeviceWaits& waits_;
  ArrayBudget budget_;
  cudaMemPool_t pool_ = nullptr;
  cudaStream_t stream_ = nullptr;  // that arrays are allocated, written and freed on, one after the other
  absl::Mutex mutex_;
  bool freed_ ABSL_GUARDED_BY(mutex_) = false;  // something was, since AwaitFreed returned
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread trimmer_;  // last: uses the rest
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_ARRAYS_H_
