// Memory that a server on the same machine reads where it is, so that no elements are sent.
//
//   auto buffer = reduced::client::SharedBuffer::Allocate(count * sizeof(float));
//   std::ranges::copy(samples, buffer->As<float>().begin());
//   auto region = (*client)->Share(*buffer);
//   auto reply = (*client)->Reduce(region->Array("f32", {count}), {"sum"});
#ifndef REDUCED_SHARED_H_
#define REDUCED_SHARED_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "reduced/array.h"

namespace reduced::client {

// Memory to fill and share: an anonymous file (memfd), mapped for reading and writing. It is sealed so that its size
// can't change and it is written through data() only: write(), and further mappings for writing, fail. It is
// zero-initialized. It is freed when this is destroyed and there is no region of it left. Needs Linux 5.1 or newer.
class REDUCED_EXPORT SharedBuffer {
 public:
  // RESOURCE_EXHAUSTED: there isn't enough memory. INVALID_ARGUMENT: the number of bytes is negative.
  static absl::StatusOr<SharedBuffer> Allocate(std::int64_t bytes);
  // The same for results, to be shared with ShareOptions.writable: only the size is sealed, and the system provides all
  // of the memory now, not page by page as it is written. RESOURCE_EXHAUSTED also if the system does not have that
  // much.
  static absl::StatusOr<SharedBuffer> AllocateForResults(std::int64_t bytes);

  SharedBuffer(SharedBuffer&& other) noexcept;
  SharedBuffer& operator=(SharedBuffer&& other) noexcept;
  ~SharedBuffer();

  void* data() const { return data_; }  // page-aligned; null if bytes() is 0
  std::int64_t bytes() const { return bytes_; }
  // The memory as elements, as many as fit.
  template <class T>
  std::span<T> As() const {
    static_assert(std::is_trivially_copyable_v<T>);
    return {static_cast<T*>(data_), static_cast<std::size_t>(bytes_) / sizeof(T)};
  }
  int file() const { return file_; }  // owned by the buffer

 private:
  SharedBuffer() = default;
  static absl::StatusOr<SharedBuffer> Allocate(std::int64_t bytes, bool for_results);

  int file_ = -1;
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

struct ShareOptions {
  // Registers the memory with the server's GPU, which takes some 30 ms per GiB, so that it is copied there by DMA. For
  // memory that is reduced repeatedly. It must be sealed against shrinking and writing (F_SEAL_SHRINK and
  // F_SEAL_FUTURE_WRITE), as a SharedBuffer is, and every page of it must have been written.
  bool pin = false;
  // Lets the server write results to the memory (PartitionOptions.write_to), as to a SharedBuffer::AllocateForResults.
  // Memory of your own must be open for reading and writing, not sealed against writing, and have all of its pages, as
  // after posix_fallocate. It can't be pinned.
  bool writable = false;
  // Overrides ClientOptions.timeout. If the server doesn't answer in time, the client closes its connection to the
  // region socket, which ends all of its regions.
  std::optional<absl::Duration> timeout{};
};

// Device memory of this process: an allocation by its CUDA IPC handle, or pieces of physical memory (cuMemCreate),
// mapped one behind the other. reduced/cuda.h fills it in.
struct DeviceMemory {
  std::string handle{};       // the bytes of the cudaIpcMemHandle_t of the allocation; empty: `pieces`
  std::string device_uuid{};  // the 16 bytes of cudaDeviceProp.uuid
  std::int64_t offset = 0;    // bytes from the start of the allocation, or of the first piece
  std::int64_t bytes = 0;
  std::string event{};  // the bytes of the cudaIpcEventHandle_t that each reduction waits for; empty: none
  std::vector<std::int64_t> pieces{};  // the bytes of each, at most 65,536
  // The descriptor of a piece, of cuMemExportToShareableHandle, which the client closes once it is sent. It is called
  // for each piece in turn, by the thread that shares the memory; its error is that of Client::ShareDevice.
  std::function<absl::StatusOr<int>(std::size_t piece)> export_piece{};
};

// A place in a region for results, for PartitionOptions.write_to. Region::Place makes it.
struct RegionPlace {
  std::string token{};
  std::int64_t offset = 0;  // bytes, a multiple of 64
};

// The handle of memory that the server can read until this is destroyed. Reductions in flight then still finish
// normally. If the memory changes while it is reduced, the result is that of some mixture of old and new elements.
// Thread-safe.
class REDUCED_EXPORT Region {
 public:
  Region(Region&& other) noexcept;
  Region& operator=(Region&& other) noexcept;
  ~Region();

  const std::string& token() const { return token_; }
  std::int64_t bytes() const { return bytes_; }

  // The elements of which that with the indexes 0 is at byte `offset`, for Client::Reduce. Every second column of a
  // matrix of floats: Array("f32", {rows, columns / 2}, 0, {.strides = {{4 * columns, 8}}}).
  RemoteArray Array(std::string dtype, std::vector<std::int64_t> shape, std::int64_t offset = 0,
                    ElementLayout layout = {}) const;
  // Where results go, in a region that was shared with ShareOptions.writable.
  RegionPlace Place(std::int64_t offset = 0) const { return {token_, offset}; }

  class Connection;  // internal

 private:
  friend class Client;
  Region(std::shared_ptr<Connection> connection, std::string token, std::int64_t bytes);
  void Release();

  std::shared_ptr<Connection> connection_;
  std::string token_;
  std::int64_t bytes_ = 0;
};

}  // namespace reduced::client

#endif  // REDUCED_SHARED_H_
