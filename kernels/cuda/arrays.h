// Device memory for arrays that stay: Engine::Allocate of the CUDA engine.
//
// It comes from a memory pool of its own, which gives nothing back to the driver: an array that follows another takes
// microseconds, and neither waits for the kernels that run.
#ifndef REDUCED_KERNELS_CUDA_ARRAYS_H_
#define REDUCED_KERNELS_CUDA_ARRAYS_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/cuda/waits.h"
#include "kernels/engine/array_budget.h"
#include "kernels/engine/engine.h"

namespace reduced {

// Thread-safe. Outlives what it allocates.
class CudaArrays {
 public:
  // `limit`: bytes of all arrays together. `waits` outlives it. FAILED_PRECONDITION: the device has no memory pools.
  // Else as DeviceError.
  static absl::StatusOr<std::unique_ptr<CudaArrays>> Make(int device, std::string_view name, std::int64_t limit,
                                                          const cudaDeviceProp& properties, DeviceWaits& waits);
  ~CudaArrays();
  CudaArrays(const CudaArrays&) = delete;
  CudaArrays& operator=(const CudaArrays&) = delete;

  // See Engine::Allocate.
  absl::StatusOr<std::unique_ptr<ArrayMemory>> Allocate(std::int64_t bytes);

  const ArrayBudget& budget() const { return budget_; }

 private:
  class Memory;

  CudaArrays(int device, std::string_view name, std::int64_t limit, DeviceWaits& waits)
      : device_(device), waits_(waits), budget_(name, limit) {}

  absl::Status MakePool(const cudaDeviceProp& properties);

  const int device_;
  DeviceWaits& waits_;
  ArrayBudget budget_;
  cudaMemPool_t pool_ = nullptr;
  cudaStream_t stream_ = nullptr;  // that arrays are allocated, written and freed on, one after the other
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_ARRAYS_H_
