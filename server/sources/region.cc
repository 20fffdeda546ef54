#include "server/sources/region.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/system/failpoint.h"
#include "kernels/system/status_macros.h"

namespace reduced::server {

Region::~Region() {
  pin_.reset();
  for (void* const mapping : {mapping_, writable_}) {
    if (mapping != nullptr) munmap(mapping, static_cast<std::size_t>(bytes_));
  }
  if (file_ >= 0) close(file_);
}

absl::Status Region::Map(const Memory& memory) {
  const std::size_t bytes = static_cast<std::size_t>(bytes_);
  void* const mapping = FAILPOINT("regions/map") && failpoint::SetErrno(ENOMEM)
                            ? MAP_FAILED
                            : mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file_, 0);
  // Of huge pages nothing else tells whether each exists: those that don't, come into being here, or it fails.
  if (mapping != MAP_FAILED && (!memory.huge_pages || madvise(mapping, bytes, MADV_POPULATE_READ) == 0)) {
    mapping_ = mapping;
    return absl::OkStatus();
  }
  const int error = errno;
  if (mapping != MAP_FAILED) munmap(mapping, bytes);
  return CannotMap(error);
}

absl::Status Region::MapForWriting() {
  void* const mapping = mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (mapping == MAP_FAILED) return CannotMap(errno);
  writable_ = mapping;
  return absl::OkStatus();
}

absl::Status Region::Pin(const Engines& engines) {
  ASSIGN_OR_RETURN(pin_, engines.Pin(mapping_, bytes_));
  return absl::OkStatus();
}

ArrayRef Region::At(std::int64_t offset) const {
  if (file_ < 0) {
    ArrayRef array = device_.array;
    array.data = static_cast<const std::byte*>(array.data) + offset;
    return array;
  }
  const void* const data = mapping_ == nullptr ? nullptr : static_cast<const std::byte*>(mapping_) + offset;
  return {.data = data,
          .space = pin_ == nullptr ? MemorySpace::kFile : MemorySpace::kPinnedHost,
          .file = file_,
          .offset = offset};
}

absl::Status Region::CannotMap(int error) const {
  return absl::ResourceExhaustedError(absl::StrCat("cannot map ", bytes_, " bytes: ", std::strerror(error)));
}

}  // namespace reduced::server
