// The DeviceBuffer of a build with CUDA, by CUDA IPC.
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/reducectl/loadtest/device.h"
#include "kernels/system/status_macros.h"
#include "reduced/cuda.h"

namespace reduced::client {
namespace {

absl::Status CudaError(cudaError_t error, const char* what) {
  const std::string message = absl::StrCat(what, ": ", cudaGetErrorString(error), " (", cudaGetErrorName(error), ")");
  if (error == cudaErrorMemoryAllocation) return absl::ResourceExhaustedError(message);
  return absl::FailedPreconditionError(message);
}

class CudaBuffer final : public DeviceBuffer {
 public:
  CudaBuffer() = default;
  ~CudaBuffer() override {
    region_.reset();  // before the memory, which the server may still read
    cudaFree(memory_);
  }
  CudaBuffer(const CudaBuffer&) = delete;
  CudaBuffer& operator=(const CudaBuffer&) = delete;

  absl::Status Fill(Client& client, const void* data, std::int64_t bytes) {
    if (const cudaError_t error = cudaMalloc(&memory_, static_cast<std::size_t>(bytes)); error != cudaSuccess) {
      return CudaError(error, absl::StrCat(bytes, " bytes of a GPU's memory").c_str());
    }
    RETURN_IF_ERROR(Write(data, bytes));
    ASSIGN_OR_RETURN(region_, ShareDevice(client, memory_, bytes));
    return absl::OkStatus();
  }

  RemoteArray Array(const std::string& dtype, std::vector<std::int64_t> shape, std::int64_t offset) const override {
    return region_->Array(dtype, std::move(shape), offset);
  }

  // cudaMemcpy from pageable memory may return before the copy is complete.
  absl::Status Write(const void* data, std::int64_t bytes) override {
    cudaError_t error = cudaMemcpy(memory_, data, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice);
    if (error == cudaSuccess) error = cudaStreamSynchronize(cudaStreamLegacy);
    return error == cudaSuccess ? absl::OkStatus() : CudaError(error, "copying to a GPU");
  }

 private:
  void* memory_ = nullptr;
  std::optional<Region> region_;
};

}  // namespace

absl::Status DeviceBuffer::Available() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess) return CudaError(error, "this process has no GPU");
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> DeviceBuffer::Share(Client& client, const void* data,
                                                                  std::int64_t bytes) {
  RETURN_IF_ERROR(Available());
  auto buffer = std::make_unique<CudaBuffer>();
  RETURN_IF_ERROR(buffer->Fill(client, data, bytes));
  return buffer;
}

}  // namespace reduced::client
