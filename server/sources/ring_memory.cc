#include "server/sources/ring_memory.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/system/failpoint.h"

namespace reduced::server {

absl::StatusOr<std::shared_ptr<const RingMemory>> RingMemory::Create(const ring::Geometry& geometry) {
  const auto failed = [](const char* what) {
    return absl::ResourceExhaustedError(absl::StrCat("the ring: ", what, ": ", std::strerror(errno)));
  };
  const std::shared_ptr<RingMemory> memory(new RingMemory);
  const std::size_t bytes = geometry.bytes();
  memory->file_ = FAILPOINT_ERRNO("ring/memory", EMFILE, memfd_create("reduced_ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (memory->file_ < 0) return failed("memfd_create");
  if (ftruncate(memory->file_, static_cast<off_t>(bytes)) != 0) return failed("ftruncate");
  if (fcntl(memory->file_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return failed("fcntl");
  memory->doorbell_ = FAILPOINT_ERRNO("ring/doorbell", EMFILE, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (memory->doorbell_ < 0) return failed("eventfd");
  void* const mapped = FAILPOINT("ring/map") && failpoint::SetErrno(ENOMEM)
                           ? MAP_FAILED
                           : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->file_, 0);
  if (mapped == MAP_FAILED) return failed("mmap");
  memory->mapping_ = {static_cast<std::byte*>(mapped), geometry};
  ring::Header& header = memory->mapping_.header();
  header.magic = ring::kMagic;
  header.version = ring::kVersion;
  header.slots = geometry.slots;
  header.submissions_offset = geometry.submissions();
  header.completions_offset = geometry.completions();
  header.arena_offset = geometry.arena();
  header.arena_bytes = geometry.arena_bytes;
  return memory;
}

RingMemory::~RingMemory() {
  if (mapping_.data != nullptr) munmap(mapping_.data, mapping_.geometry.bytes());
  if (doorbell_ >= 0) close(doorbell_);
  if (file_ >= 0) close(file_);
}

}  // namespace reduced::server
