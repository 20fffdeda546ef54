// The memory of a session's ring, as its client has it: see proto/ring/README.md.
#ifndef REDUCED_CLIENT_LIB_RING_MEMORY_H_
#define REDUCED_CLIENT_LIB_RING_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/ring/layout.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced::client {

// The mapping and the doorbell. Immutable but for what is in the mapping.
class RingMemory {
 public:
  // Takes the descriptors of `ring` from the region socket at `path`. FAILED_PRECONDITION: the socket can't be
  // connected to. INTERNAL: what it gave is no ring of this version.
  static absl::StatusOr<std::unique_ptr<RingMemory>> Take(const std::string& path, const v1::Ring& ring,
                                                          absl::Time deadline);
  ~RingMemory();
  RingMemory(const RingMemory&) = delete;
  RingMemory& operator=(const RingMemory&) = delete;

  const ring::Mapping& mapping() const { return mapping_; }
  // Wakes the server if it sleeps: true. After a submission was published.
  bool Knock() const;
  bool ended() const;

 private:
  RingMemory() = default;
  absl::Status Map(int file, std::int64_t bytes);

  ring::Mapping mapping_;
  int doorbell_ = -1;
};

// Which parts of an arena are in use. Not thread-safe.
class ArenaParts {
 public:
  static constexpr std::uint64_t kAlignment = 64;

  explicit ArenaParts(std::uint64_t bytes) { free_.emplace(0, bytes); }

  // The offset of a part of so many bytes, the lowest there is; nothing: there is none now.
  std::optional<std::uint64_t> Take(std::uint64_t bytes);
  // Gives it back. `bytes`: as of Take.
  void Give(std::uint64_t offset, std::uint64_t bytes);

 private:
  static std::uint64_t RoundedUp(std::uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

  std::map<std::uint64_t, std::uint64_t> free_;  // bytes, by offset; neighbours are joined
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_RING_MEMORY_H_
