#include "kernels/cuda/arrays.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "kernels/cuda/status.h"
#include "kernels/system/failpoint.h"

namespace reduced {

class CudaArrays::Memory final : public ArrayMemory {
 public:
  // Has taken `bytes` of the budget.
  Memory(CudaArrays& arrays, std::int64_t bytes) : arrays_(arrays), bytes_(bytes) {}
  // Its memory is there again for what is allocated after it, on the same stream.
  ~Memory() override {
    if (data_ != nullptr) {
      cudaSetDevice(arrays_.device_);
      cudaFreeAsync(data_, arrays_.stream_);
      arrays_.NoteFreed();
    }
    arrays_.budget_.Give(bytes_);
  }

  cudaError_t Allocate() {
    if (bytes_ == 0) return cudaSuccess;
    cudaError_t error = cudaSetDevice(arrays_.device_);
    if (error != cudaSuccess) return error;
    void* data = nullptr;
    error = FAILPOINT("cuda/allocate_array")
                ? cudaErrorMemoryAllocation
                : cudaMallocFromPoolAsync(&data, static_cast<std::size_t>(bytes_), arrays_.pool_, arrays_.stream_);
    if (error != cudaSuccess) return error;
    data_ = data;
    const DeviceWaits::Wait wait(arrays_.waits_);
    return cudaStreamSynchronize(arrays_.stream_);
  }

  ArrayRef array() const override { return {.data = data_, .space = MemorySpace::kDevice, .device = arrays_.device_}; }
  absl::Status Write(std::int64_t offset, const void* data, std::int64_t bytes) override {
    return Copy(static_cast<std::byte*>(data_) + offset, data, bytes, cudaMemcpyHostToDevice);
  }
  absl::Status Read(std::int64_t offset, std::int64_t bytes, void* to) const override {
    return Copy(to, static_cast<const std::byte*>(data_) + offset, bytes, cudaMemcpyDeviceToHost);
  }

 private:
  absl::Status Copy(void* to, const void* from, std::int64_t bytes, cudaMemcpyKind kind) const {
    if (bytes == 0) return absl::OkStatus();
    REDUCED_RETURN_IF_CUDA_ERROR(cudaSetDevice(arrays_.device_));
    const DeviceWaits::Wait wait(arrays_.waits_);  // copying memory that is not pinned waits, too
    REDUCED_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), kind, arrays_.stream_));
    REDUCED_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(arrays_.stream_));
    return absl::OkStatus();
  }

  CudaArrays& arrays_;
  const std::int64_t bytes_;
  void* data_ = nullptr;
};

absl::StatusOr<std::unique_ptr<CudaArrays>> CudaArrays::Make(int device, std::string_view name, std::int64_t limit,
                                                             absl::Duration keeps, const cudaDeviceProp& properties,
                                                             DeviceWaits& waits) {
  auto arrays = std::unique_ptr<CudaArrays>(new CudaArrays(device, name, limit, keeps, waits));
  if (const absl::Status status = arrays->MakePool(properties); !status.ok()) return status;
  arrays->trimmer_ = std::thread([&arrays = *arrays] { arrays.RunTrimmer(); });
  return arrays;
}

absl::Status CudaArrays::MakePool([[maybe_unused]] const cudaDeviceProp& properties) {
  REDUCED_RETURN_IF_CUDA_ERROR(cudaSetDevice(device_));
  int pools = 0;
  REDUCED_RETURN_IF_CUDA_ERROR(cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, device_));
  if (pools == 0) return absl::FailedPreconditionError("the device has no memory pools (cudaMemPool)");
  REDUCED_RETURN_IF_CUDA_ERROR(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  cudaMemPoolProps wanted{};
  wanted.allocType = cudaMemAllocationTypePinned;
  wanted.location.type = cudaMemLocationTypeDevice;
  wanted.location.id = device_;
#if CUDART_VERSION >= 12020
  // The budget keeps to the limit; this holds if it doesn't. The pool takes memory in large pieces, and what is between
  // its arrays counts too.
  constexpr std::size_t kSlack = std::size_t{256} << 20;
  const auto limit = static_cast<std::size_t>(budget_.limit());
  wanted.maxSize = std::min(limit, properties.totalGlobalMem - std::min(kSlack, properties.totalGlobalMem)) + kSlack;
#endif
  REDUCED_RETURN_IF_CUDA_ERROR(cudaMemPoolCreate(&pool_, &wanted));
  std::uint64_t keep_all = std::numeric_limits<std::uint64_t>::max();
  REDUCED_RETURN_IF_CUDA_ERROR(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep_all));
  return absl::OkStatus();
}

// Errors are ignored: there is nothing left to do about them.
CudaArrays::~CudaArrays() {
  {
    const absl::MutexLock lock(&mutex_);
    ends_ = true;
  }
  if (trimmer_.joinable()) trimmer_.join();
  cudaSetDevice(device_);
  if (stream_ != nullptr) cudaStreamSynchronize(stream_);
  if (pool_ != nullptr) cudaMemPoolDestroy(pool_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

void CudaArrays::NoteFreed() {
  const absl::MutexLock lock(&mutex_);
  freed_ = true;
}

bool CudaArrays::AwaitFreed() {
  const absl::MutexLock lock(&mutex_);
  const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return freed_ || ends_; };
  mutex_.Await(absl::Condition(&has_work));
  freed_ = false;
  return !ends_;
}

bool CudaArrays::Pause() {
  const absl::MutexLock lock(&mutex_);
  return !mutex_.AwaitWithTimeout(absl::Condition(&ends_), keeps_);
}

// Errors are ignored: whoever needs the device next reports them.
bool CudaArrays::TrimPool() {
  cudaError_t error = cudaSetDevice(device_);
  if (error == cudaSuccess) {
    const DeviceWaits::Wait wait(waits_);
    error = cudaStreamSynchronize(stream_);  // the pool has what was freed before
  }
  if (error != cudaSuccess) return false;
  const std::int64_t most = AttributeOf(cudaMemPoolAttrUsedMemHigh);
  std::uint64_t none = 0;
  cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrUsedMemHigh, &none);  // CUDA sets it to what is in use now
  cudaMemPoolTrimTo(pool_, static_cast<std::size_t>(most + kKept));
  return most > AttributeOf(cudaMemPoolAttrUsedMemCurrent);
}

void CudaArrays::RunTrimmer() {
  while (AwaitFreed()) {
    while (Pause() && TrimPool()) {
    }
  }
}

std::int64_t CudaArrays::AttributeOf(cudaMemPoolAttr attribute) const {
  std::uint64_t value = 0;
  cudaMemPoolGetAttribute(pool_, attribute, &value);
  return static_cast<std::int64_t>(value);
}

absl::StatusOr<std::unique_ptr<ArrayMemory>> CudaArrays::Allocate(std::int64_t bytes) {
  const absl::Status taken = budget_.Take(bytes);
  if (!taken.ok()) return taken;
  auto memory = std::make_unique<Memory>(*this, bytes);
  const cudaError_t error = memory->Allocate();
  if (error == cudaSuccess) return memory;
  memory.reset();
  const absl::Status status = DeviceError(error, "allocating an array");
  return absl::IsResourceExhausted(status) ? budget_.NoRoom(bytes) : status;
}

}  // namespace reduced
