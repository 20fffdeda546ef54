// A region: what a process shared through the region socket, until nobody uses it any more.
#ifndef REDUCED_SERVER_SOURCES_REGION_H_
#define REDUCED_SERVER_SOURCES_REGION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "kernels/engine/array.h"
#include "kernels/engine/engines.h"
#include "server/sources/descriptors.h"

namespace reduced::server {

// Thread-safe once it is made.
class Region {
 public:
  // Host memory: takes the descriptor over.
  Region(int file, std::int64_t bytes) : bytes_(bytes), file_(file) {}
  // Device memory, which lies in so many pieces.
  Region(HeldArray device, std::int64_t bytes, int pieces)
      : bytes_(bytes), pieces_(pieces), device_(std::move(device)) {}
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  // Of memory that nothing keeps from being mapped.
  absl::Status Map(const Memory& memory);
  // Of memory that nothing keeps from being written to.
  absl::Status MapForWriting();
  // Registers the mapping with the GPUs.
  absl::Status Pin(const Engines& engines);

  std::int64_t bytes() const { return bytes_; }
  int pieces() const { return pieces_; }

  // To be copied to by the kernel; null: the region is not writable.
  std::byte* writable() const { return static_cast<std::byte*>(writable_); }
  int file() const { return file_; }

  ArrayRef At(std::int64_t offset) const;

 private:
  absl::Status CannotMap(int error) const;

  const std::int64_t bytes_;
  const int pieces_ = 0;
  int file_ = -1;
  void* mapping_ = nullptr;
  void* writable_ = nullptr;  // the same memory, for writing
  std::shared_ptr<const void> pin_;
  HeldArray device_;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SOURCES_REGION_H_
