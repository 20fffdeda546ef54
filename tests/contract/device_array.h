// Arrays in CUDA device memory.
#ifndef REDUCED_TESTS_CONTRACT_DEVICE_ARRAY_H_
#define REDUCED_TESTS_CONTRACT_DEVICE_ARRAY_H_

#include <cuda_runtime.h>

#include <cstddef>

#include "gtest/gtest.h"
#include "kernels/engine/array.h"
#include "tests/support/data.h"

namespace reduced::test {

// `bytes` of device memory, `misalignment` bytes past a multiple of 256, between at least 256 bytes of 0xff on either
// side. data() is null, with a test failure, if the device has no room.
class DeviceArray {
 public:
  static constexpr std::size_t kMargin = 256;

  DeviceArray(std::size_t bytes, std::size_t misalignment)
      : whole_(bytes + misalignment + 2 * kMargin), before_(kMargin + misalignment) {
    EXPECT_EQ(cudaGetDevice(&device_), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&memory_, whole_), cudaSuccess) << whole_ << " bytes";
    if (memory_ != nullptr) Fill(0, whole_, 0xff);
  }
  ~DeviceArray() { cudaFree(memory_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  std::byte* data() const { return memory_ == nullptr ? nullptr : static_cast<std::byte*>(memory_) + before_; }

  // The array, on the device that this thread allocates on: CUDA's first, if nothing else was said.
  ArrayRef array() const { return {.data = data(), .space = MemorySpace::kDevice, .device = device_}; }

  void Write(std::size_t offset, const void* from, std::size_t bytes) {
    EXPECT_EQ(cudaMemcpy(data() + offset, from, bytes, cudaMemcpyHostToDevice), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);  // pageable memory: it may not have arrived yet
  }
  void FillAll(int byte) { Fill(before_, whole_ - before_ - kMargin, byte); }

  // What lies in the allocation now, margins included.
  Bytes Read() const {
    Bytes all(whole_);
    EXPECT_EQ(cudaMemcpy(all.data(), memory_, whole_, cudaMemcpyDeviceToHost), cudaSuccess);
    return all;
  }

 private:
  void Fill(std::size_t offset, std::size_t bytes, int byte) {
    EXPECT_EQ(cudaMemset(static_cast<std::byte*>(memory_) + offset, byte, bytes), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

  const std::size_t whole_;
  const std::size_t before_;
  int device_ = 0;
  void* memory_ = nullptr;
};

}  // namespace reduced::test

#endif  // REDUCED_TESTS_CONTRACT_DEVICE_ARRAY_H_
