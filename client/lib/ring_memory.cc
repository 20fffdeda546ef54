#include "client/lib/ring_memory.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/lib/region_connection.h"
#include "kernels/system/status_macros.h"
#include "reduced/v1/regions.pb.h"

namespace reduced::client {

absl::StatusOr<std::unique_ptr<RingMemory>> RingMemory::Take(const std::string& path, const v1::Ring& ring,
                                                             absl::Time deadline) {
  ASSIGN_OR_RETURN(const auto regions, Region::Connection::Open(path, deadline));
  v1::RegionRequest request;
  request.mutable_take_ring()->set_token(ring.token());
  std::vector<int> files;
  const absl::StatusOr<v1::RegionReply> reply = regions->Ask(request, {}, deadline, &files);
  absl::Status status = reply.status();
  if (status.ok() && files.size() != 2) {
    status = absl::InternalError(
        absl::StrCat("descriptors: got ", files.size(), "; allowed: 2, the memory and the doorbell"));
  }
  std::unique_ptr<RingMemory> memory(new RingMemory);
  if (status.ok()) {
    memory->doorbell_ = std::exchange(files[1], -1);
    status = memory->Map(files[0], ring.bytes());
  }
  for (const int file : files) {
    if (file >= 0) close(file);
  }
  if (!status.ok()) return status;
  return memory;
}

absl::Status RingMemory::Map(int file, std::int64_t bytes) {
  struct stat size {};
  if (fstat(file, &size) != 0 || size.st_size != bytes || bytes < static_cast<std::int64_t>(sizeof(ring::Header))) {
    return absl::InternalError(
        absl::StrCat("ring.bytes: got ", bytes, "; allowed: ", size.st_size, ", the bytes of its memory"));
  }
  const int seals = fcntl(file, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {  // else reading it might fault
    return absl::InternalError("ring: got memory that can shrink; allowed: memory that is sealed against that");
  }
  void* const mapped = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("can't map ", bytes, " bytes of a ring: ", std::strerror(errno)));
  }
  const ring::Header& header = *static_cast<const ring::Header*>(mapped);
  mapping_ = {static_cast<std::byte*>(mapped), {.slots = header.slots, .arena_bytes = header.arena_bytes}};
  const ring::Geometry& geometry = mapping_.geometry;
  const bool right =
      header.magic == ring::kMagic && header.version == ring::kVersion && std::has_single_bit(geometry.slots) &&
      geometry.slots <= ring::kMaxSlots && geometry.arena_bytes <= static_cast<std::uint64_t>(bytes) &&
      geometry.bytes() == static_cast<std::uint64_t>(bytes) && header.submissions_offset == geometry.submissions() &&
      header.completions_offset == geometry.completions() && header.arena_offset == geometry.arena();
  if (right) return absl::OkStatus();
  munmap(std::exchange(mapping_.data, nullptr), static_cast<std::size_t>(bytes));
  return absl::InternalError(absl::StrCat("ring: got another header; allowed: that of version ", ring::kVersion));
}

RingMemory::~RingMemory() {
  if (mapping_.data != nullptr) munmap(mapping_.data, mapping_.geometry.bytes());
  if (doorbell_ >= 0) close(doorbell_);
}

bool RingMemory::Knock() const {
  std::atomic_thread_fence(std::memory_order_seq_cst);  // after the sequence number was stored
  if (ring::Shared(mapping_.header().asleep).load(std::memory_order_seq_cst) == 0) return false;
  eventfd_write(doorbell_, 1);
  return true;
}

bool RingMemory::ended() const { return ring::Shared(mapping_.header().ended).load(std::memory_order_acquire) != 0; }

std::optional<std::uint64_t> ArenaParts::Take(std::uint64_t bytes) {
  const std::uint64_t needed = RoundedUp(bytes);
  if (needed == 0) return 0;
  for (auto part = free_.begin(); part != free_.end(); ++part) {
    if (part->second < needed) continue;
    const std::uint64_t offset = part->first, left = part->second - needed;
    free_.erase(part);
    if (left > 0) free_.emplace(offset + needed, left);
    return offset;
  }
  return std::nullopt;
}

void ArenaParts::Give(std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t needed = RoundedUp(bytes);
  if (needed == 0) return;
  auto part = free_.emplace(offset, needed).first;
  if (const auto next = std::next(part); next != free_.end() && part->first + part->second == next->first) {
    part->second += next->second;
    free_.erase(next);
  }
  if (part == free_.begin()) return;
  if (const auto before = std::prev(part); before->first + before->second == part->first) {
    before->second += part->second;
    free_.erase(part);
  }
}

}  // namespace reduced::client
