// Memory of a GPU that this process has, as servers on this machine reduce it where it is: by CUDA IPC, or by
// descriptors of its pieces. The driver's library is loaded when the first such array comes; nothing here is linked to
// CUDA.
#ifndef REDUCED_CLIENT_PYTHON_SRC_CUDA_H_
#define REDUCED_CLIENT_PYTHON_SRC_CUDA_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "client/python/src/fork.h"
#include "reduced/client.h"
#include "reduced/shared.h"

namespace reduced::python {

// One allocation of cudaMalloc, such as a segment of a framework's allocator in which many arrays lie, or pieces of
// CUDA's virtual memory management that are mapped one behind the other, such as those in which a tensor of PyTorch's
// expandable segments lies; with its region at each client that has shared it. Thread-safe.
class CudaAllocation {
 public:
  // What the driver says of it.
  struct Facts {
    std::uint64_t base = 0;
    std::int64_t bytes = 0;
    void* context = nullptr;  // pieces have none
    int device = 0;           // as this process counts
    // What names it, or each piece, for the life of the process: others at the same address have others.
    std::vector<std::uint64_t> ids{};
    std::vector<std::int64_t> pieces{};  // the bytes of each; empty: it is of cudaMalloc, and has an IPC handle
  };

  explicit CudaAllocation(const Facts& facts) : facts_(facts) {}
  ~CudaAllocation();
  CudaAllocation(const CudaAllocation&) = delete;
  CudaAllocation& operator=(const CudaAllocation&) = delete;

  const Facts& facts() const { return facts_; }

  // The elements at `address`, which lie in this allocation, as the client's server reads them: after the work that
  // `stream` has been given. Shares the allocation the first time. FAILED_PRECONDITION: the server does not see this
  // GPU, or shares no memory. Other errors: those of Client::ShareDevice.
  absl::StatusOr<client::RemoteArray> Share(client::Client& client, std::uint64_t stream, std::uint64_t address,
                                            const std::string& dtype, const std::vector<std::int64_t>& shape,
                                            const client::ElementLayout& layout);
  // Ends the region at this client, if there is one. Blocks for the server's answer.
  void Forget(const client::Client& client);

 private:
  absl::Status Record(std::uint64_t stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<client::DeviceMemory> Describe() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Facts facts_;
  const int generation_ = ForkGeneration();
  absl::Mutex mutex_;
  void* context_ ABSL_GUARDED_BY(mutex_) = facts_.context;  // of pieces: the device's primary one, which it holds
  void* event_ ABSL_GUARDED_BY(mutex_) = nullptr;           // made with the first region
  std::uint64_t stream_ ABSL_GUARDED_BY(mutex_) = 0;        // whose work `event_` has
  std::map<const client::Client*, Owned<client::Region>> regions_ ABSL_GUARDED_BY(mutex_);
};

// Elements in an allocation, which it keeps known.
class CudaArray {
 public:
  // `stream`: the CUstream whose work writes the elements. FAILED_PRECONDITION: this process has no CUDA driver.
  // INVALID_ARGUMENT: the elements are in other memory, or in memory that CUDA can't share. `owner`: the memory, of so
  // many bytes, whose pieces are shared if those of the elements are not yet; none: theirs alone.
  static absl::StatusOr<CudaArray> Find(std::uint64_t address, std::string dtype, std::vector<std::int64_t> shape,
                                        std::uint64_t stream, std::pair<std::uint64_t, std::uint64_t> owner,
                                        client::ElementLayout layout);

  // Names the allocation as long as it is known.
  std::uint64_t allocation() const { return reinterpret_cast<std::uintptr_t>(allocation_.get()); }
  // As the client's server reads them. Errors: those of CudaAllocation::Share.
  absl::StatusOr<client::RemoteArray> Share(client::Client& client) const {
    return allocation_->Share(client, stream_, address_, dtype_, shape_, layout_);
  }
  void Forget(const client::Client& client) const { allocation_->Forget(client); }

 private:
  CudaArray(std::shared_ptr<CudaAllocation> allocation, std::uint64_t address, std::string dtype,
            std::vector<std::int64_t> shape, std::uint64_t stream, client::ElementLayout layout)
      : allocation_(std::move(allocation)),
        address_(address),
        dtype_(std::move(dtype)),
        shape_(std::move(shape)),
        stream_(stream),
        layout_(std::move(layout)) {}

  std::shared_ptr<CudaAllocation> allocation_;
  std::uint64_t address_;
  std::string dtype_;
  std::vector<std::int64_t> shape_;
  std::uint64_t stream_;
  client::ElementLayout layout_;
};

// Ends all regions of GPU memory at a client.
void ForgetAllCuda(const client::Client& client);

}  // namespace reduced::python

#endif  // REDUCED_CLIENT_PYTHON_SRC_CUDA_H_
