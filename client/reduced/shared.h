// Memory that a server on the same machine reads where it is, instead of being sent it.
//
//   auto buffer = reduced::client::SharedBuffer::Allocate(count * sizeof(float));
//   ... fill buffer->data() ...
//   auto region = (*client)->Share(*buffer);
//   auto reply = (*client)->Reduce(region->Array("f32", {count}), {"sum"});
#ifndef REDUCED_SHARED_H_
#define REDUCED_SHARED_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "reduced/types.h"

namespace reduced::client {

// Memory to fill in and share: an anonymous file (memfd), sealed so that its size can't change, mapped for reading and
// writing. All zero at first. Freed when it is destroyed and no region of it is left.
class REDUCED_EXPORT SharedBuffer {
 public:
  // RESOURCE_EXHAUSTED: there is not so much memory. INVALID_ARGUMENT: a negative number of bytes.
  static absl::StatusOr<SharedBuffer> Allocate(std::int64_t bytes);

  SharedBuffer(SharedBuffer&& other) noexcept;
  SharedBuffer& operator=(SharedBuffer&& other) noexcept;
  ~SharedBuffer();

  void* data() const { return data_; }  // page-aligned; null if there is no byte
  std::int64_t bytes() const { return bytes_; }
  int file() const { return file_; }  // stays the buffer's

 private:
  SharedBuffer() = default;

  int file_ = -1;
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

struct ShareOptions {
  // For memory that is reduced repeatedly: registers it with the server's GPU, which takes some 30 ms a GiB, so that it
  // is copied there by DMA. It must be sealed against shrinking, as a SharedBuffer is, and written throughout.
  bool pin = false;
  // Instead of ClientOptions.timeout. When the server doesn't answer in time, the connection that all of the client's
  // regions belong to is given up, and they with it.
  std::optional<absl::Duration> timeout{};
};

// Device memory of this process, as CUDA's IPC handles name it; reduced/cuda.h fills it in.
struct DeviceMemory {
  std::string handle{};       // the bytes of a cudaIpcMemHandle_t: the allocation
  std::string device_uuid{};  // the 16 bytes of cudaDeviceProp.uuid
  std::int64_t offset = 0;    // in the allocation, bytes
  std::int64_t bytes = 0;
  std::string event{};  // the bytes of a cudaIpcEventHandle_t that each reduction waits for; empty: none
};

// What the server can read, until this is destroyed; reductions under way then still end well. The memory must stay as
// it is while it is reduced: else a reduction sees some mixture of old and new. Thread-safe.
class REDUCED_EXPORT Region {
 public:
  Region(Region&& other) noexcept;
  Region& operator=(Region&& other) noexcept;
  ~Region();

  const std::string& token() const { return token_; }
  std::int64_t bytes() const { return bytes_; }

  // The elements from byte `offset` on, for Client::Reduce.
  RemoteArray Array(std::string dtype, std::vector<std::int64_t> shape, std::int64_t offset = 0) const;

  class Connection;  // the library's own

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
