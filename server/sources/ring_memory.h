// The memory of a session's ring: a memfd of this process, and the eventfd by which its client wakes the server. Nobody
// can shrink the memory, so that reading and writing the mapping never faults, whatever the client does to it. A page
// that the client punches out comes back as zeros; it belongs to the memory that was set aside for the ring.
#ifndef REDUCED_SERVER_SOURCES_RING_MEMORY_H_
#define REDUCED_SERVER_SOURCES_RING_MEMORY_H_

#include <memory>

#include "absl/status/statusor.h"
#include "proto/ring/layout.h"

namespace reduced::server {

// Immutable but for what is in the mapping.
class RingMemory {
 public:
  // RESOURCE_EXHAUSTED: there is no memory, address space or descriptor for it.
  static absl::StatusOr<std::shared_ptr<const RingMemory>> Create(const ring::Geometry& geometry);
  ~RingMemory();
  RingMemory(const RingMemory&) = delete;
  RingMemory& operator=(const RingMemory&) = delete;

  const ring::Mapping& mapping() const { return mapping_; }
  int file() const { return file_; }
  // The client writes to it; the server polls it, and never reads it, which the client could make wait.
  int doorbell() const { return doorbell_; }

 private:
  RingMemory() = default;

  ring::Mapping mapping_;
  int file_ = -1;
  int doorbell_ = -1;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SOURCES_RING_MEMORY_H_
